"""Memory that the allocator holds between blocks in use returns to the system."""

import subprocess
import sys
import textwrap

PROGRAM = """
    import asyncio
    from seaweedmq.cli.servers.own_process import OwnProcess
    from seaweedmq.cli.servers.process import keep_memory, trim_heap

    MIB = 1 << 20

    async def main():
        resident = OwnProcess().resident_bytes
        keep_memory()
        before = resident()
        blocks = [b"a" * size for _ in range(200) for size in (MIB, 2_000)]
        full = resident()
        del blocks[::2]
        with_holes = resident()
        trimming = asyncio.create_task(trim_heap(resident, before + 100 * MIB))
        async with asyncio.timeout(30):
            while resident() > before + 50 * MIB:
                await asyncio.sleep(0.05)
        assert full > before + 200 * MIB, "the blocks are in use"
        assert with_holes > before + 190 * MIB, "otherwise nothing has to be trimmed"
        trimming.cancel()

    asyncio.run(main())
"""


def test_holes_between_blocks_return_to_the_system_above_the_limit() -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], check=True, timeout=60)
