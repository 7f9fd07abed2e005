"""Parquet files that the brokers write for the demo's flights."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from benchmarks.demo.flights import COUNT, DemoFailed
from seaweedmq.cli.output import progress, say
from seaweedmq.codec.paths import parse_segment_file, table_dir
from seaweedmq.model.topic import TopicName

TIMEOUT_S = 60.0


async def until_parquet(storage: Path, topic: str) -> None:
    """Return when the brokers have converted all log files to Parquet.

    Raises:
        DemoFailed: If they did not in time.
    """
    with progress("flights") as bars:
        bar = bars.add("logs to Parquet", COUNT)
        files = await asyncio.to_thread(_tables, storage, topic)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while (records := sum(file.records for file in files)) < COUNT:
                    bar.at(records)
                    await asyncio.sleep(0.1)
                    files = await asyncio.to_thread(_tables, storage, topic)
        except TimeoutError:
            raise DemoFailed(f"not all log files were converted to Parquet within {TIMEOUT_S:.0f} s") from None
    say(f"the brokers wrote {len(files)} Parquet files of them, {sum(file.size_bytes for file in files) / 1e6:.1f} MB")


class _Table(NamedTuple):
    records: int
    size_bytes: int


def _tables(storage: Path, topic: str) -> list[_Table]:
    """Return the complete Parquet files, whose names tell their offsets."""
    found = []
    for path in (storage / table_dir(TopicName.parse(topic))).glob("*.parquet"):
        name = parse_segment_file(path.relative_to(storage).as_posix())
        if name is not None and name.end_offset is not None:
            found.append(_Table(name.end_offset - name.base_offset, path.stat().st_size))
    return found
