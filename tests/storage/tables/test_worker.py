"""The child process that converts: started on demand, restarted after its death, gone when idle or orphaned."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import uvloop

from seaweedmq.codec.state.metadata import topic_to_json
from seaweedmq.errors import Corrupt, DeadlineExceeded, Unavailable
from seaweedmq.model.files import SegmentFile
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.converter import ProcessTableConverter
from seaweedmq.storage.tables.delta.updater import rebuild_log
from seaweedmq.storage.tables.delta.versions import history
from tests.support.no_descriptors import no_descriptors
from tests.support.segments import NAME, T0, make_frame, make_topic, tables_of, write_log

pytestmark = pytest.mark.integration


@pytest.fixture
async def log(store: FileSegmentStore) -> SegmentFile:
    return await write_log(store, 0, [make_frame(0, 10), make_frame(10, 10)])


@pytest.fixture
async def converter(store: FileSegmentStore) -> AsyncIterator[ProcessTableConverter]:
    made = ProcessTableConverter(store.place, row_group_bytes=1_000, rng=random.Random(1))
    yield made
    await made.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.01)


async def test_it_converts_in_a_niced_child_that_is_kept_and_reused(store: FileSegmentStore, log: SegmentFile) -> None:
    converter = ProcessTableConverter(store.place, row_group_bytes=1_000, rng=random.Random(1))
    made = await converter.convert(make_topic(), [log], None)
    assert made == await tables_of(store)
    assert [(t.base_offset, t.end_offset) for t in made] == [(0, 20)]
    child = converter.pid
    assert child is not None
    assert psutil.Process(child).nice() > 0
    assert await converter.convert(make_topic(), [log], None) == made
    assert converter.pid == child
    await converter.close()
    assert not psutil.pid_exists(child)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_child_that_cannot_start_starts_later(tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def convert() -> None:
        store = FileSegmentStore(tmp_path)
        written = await write_log(store, 0, [make_frame(0, 10)])
        converter = ProcessTableConverter(store.place, rng=random.Random(1))
        with no_descriptors(), pytest.raises(Unavailable, match="limit of open files"):
            await converter.convert(make_topic(), [written], None)
        assert len(await converter.convert(make_topic(), [written], None)) == 1
        await converter.close()
        await store.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(convert())


WITHOUT_PANDAS = """
import asyncio, sys
from pathlib import Path
from seaweedmq.codec.state.metadata import topic_from_json
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.read.time_search import find_offset_by_time
from seaweedmq.storage.tables import files
from seaweedmq.storage.tables.delta import updater

async def main():
    store, topic = FileSegmentStore(sys.argv[1]), topic_from_json(sys.argv[2].encode())
    for step in ("from logs", "from tables"):
        ends = [chunk.end_offset async for chunk in read_segment(store, topic, 0, 0, 20, chunk_bytes=100)]
        assert ends[-1] == 20, ends
        found = await find_offset_by_time(store, topic, 0, int(sys.argv[3]), 20)
        assert found and found.offset == 13, found
        logs = [f for f in await store.list_files(topic.name, 0) if f.kind == "log"]
        files.convert_files(store.place, topic, logs, None, 1_000)
        updater.is_checkpoint_due = lambda commits, *_: True
        for step in ("first", "from the checkpoint"):
            updater.DeltaLogs().reconcile(store.place, topic)
        await store.delete(logs)
    await store.close()

asyncio.run(main())
sys.exit("pandas was imported" if "pandas" in sys.modules else 0)
"""


async def test_neither_conversion_nor_reading_imports_pandas(store: FileSegmentStore) -> None:
    """Arrow imports pandas at the first Python value that it gets: 35 MB and half a second, in a process per broker."""
    await write_log(store, 0, [make_frame(0, 10), make_frame(10, 10, stamps=True, keys=True)])
    arguments = (str(store.place.root), topic_to_json(make_topic()).decode(), str(T0 + 13_000_000))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WITHOUT_PANDAS, *arguments, cwd=Path(__file__).parents[3]
    )
    assert await child.wait() == 0


async def test_errors_come_back_as_what_they_are_and_the_child_goes_on(
    store: FileSegmentStore, log: SegmentFile, converter: ProcessTableConverter
) -> None:
    cut = await write_log(store, 20, [make_frame(20, 10)])
    with pytest.raises(Corrupt, match=f"{cut.path} ends with offset 30"):
        await converter.convert(make_topic(), [cut], 40)
    child = converter.pid
    assert len(await converter.convert(make_topic(), [log, cut], 30)) == 1
    assert converter.pid == child


async def test_a_conversion_and_a_request_to_reconcile_bring_the_delta_log_in_line(
    store: FileSegmentStore, log: SegmentFile, converter: ProcessTableConverter, caplog: pytest.LogCaptureFixture
) -> None:
    (table,) = await converter.convert(make_topic(), [log], None)
    (only,) = history(store.place, NAME)
    assert (only.version, only.added, only.records) == (0, 1, 20)
    (store.place.root / log.path).unlink()
    await store.delete([table])
    assert await converter.reconcile(make_topic())
    assert [(v.operation, v.removed, v.records) for v in history(store.place, NAME)[1:]] == [("DELETE", 1, 0)]
    damaged = store.place.root / "topics/shop/orders/table/_delta_log/00000000000000000001.json"
    damaged.write_text("{")
    more = await write_log(store, 20, [make_frame(20, 10)])
    for _ in range(2):
        assert len(await converter.convert(make_topic(), [more], 30)) == 1, "conversion does not depend on it"
        assert not await converter.reconcile(make_topic())
    assert caplog.text.count("Delta log out of date") == 1
    rebuild_log(store.place, make_topic())
    assert await converter.reconcile(make_topic())


async def test_death_of_a_child(store: FileSegmentStore, log: SegmentFile, converter: ProcessTableConverter) -> None:
    await converter.convert(make_topic(), [log], None)
    first = converter.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert len(await converter.convert(make_topic(), [log], None)) == 1
    assert converter.pid != first


def test_a_child_whose_end_of_the_pipe_is_gone_before_its_exit_is_known_is_started_again(tmp_path: Path) -> None:
    """The loop of brokers reports the death and the broken pipe in any order, and a write to that pipe as a bug."""

    async def story() -> None:
        store = FileSegmentStore(tmp_path)
        log = await write_log(store, 0, [make_frame(0, 10)])
        converter = ProcessTableConverter(store.place, rng=random.Random(1))
        made = await converter.convert(make_topic(), [log], None)
        child = converter._child  # noqa: SLF001 - only the system brings it into this state
        assert child is not None
        assert child.stdin is not None
        child.stdin.close()
        for _ in range(3):
            await asyncio.sleep(0)  # the loop closes it
        assert child.returncode is None
        assert await converter.convert(make_topic(), [log], None) == made
        assert converter.pid not in (None, child.pid)
        await converter.close()
        await store.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


async def test_an_idle_child_is_ended(store: FileSegmentStore, log: SegmentFile) -> None:
    converter = ProcessTableConverter(store.place, idle_s=0.05, rng=random.Random(1))
    await converter.convert(make_topic(), [log], None)
    await until(lambda: converter.pid is None)
    assert len(await converter.convert(make_topic(), [log], None)) == 1
    await converter.close()


async def test_a_child_that_hangs_is_killed_at_the_deadline(store: FileSegmentStore, log: SegmentFile) -> None:
    converter = ProcessTableConverter(store.place, timeout_s=10, rng=random.Random(1))
    await converter.convert(make_topic(), [log], None)
    child = converter.pid
    assert child is not None
    os.kill(child, signal.SIGSTOP)
    converter.timeout_s = 0.1
    with pytest.raises(DeadlineExceeded):
        await converter.convert(make_topic(), [log], None)
    assert not psutil.pid_exists(child)
    await converter.close()


async def test_a_cancelled_request_does_not_answer_the_next_one(
    store: FileSegmentStore, log: SegmentFile, converter: ProcessTableConverter
) -> None:
    request = asyncio.create_task(converter.convert(make_topic(), [log], None))
    await until(lambda: converter.pid is not None)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert len(await converter.convert(make_topic(), [log], None)) == 1


async def test_the_child_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import asyncio, random, sys; from pathlib import Path\n"
        "from tests.support.segments import *\n"
        "from seaweedmq.storage.store.files import FileSegmentStore\n"
        "from seaweedmq.storage.tables.converter import ProcessTableConverter\n"
        "async def main():\n"
        "    store = FileSegmentStore(sys.argv[1])\n"
        "    log = await write_log(store, 0, [make_frame(0, 1)])\n"
        "    converter = ProcessTableConverter(store.place, rng=random.Random(1))\n"
        "    await converter.convert(make_topic(), [log], None)\n"
        "    print(converter.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n",
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()
    await until(lambda: not psutil.pid_exists(child))
