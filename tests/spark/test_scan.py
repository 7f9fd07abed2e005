"""Reading the pieces of a snapshot, without Spark running."""

from pathlib import Path

from seaweedmq.spark.columns import columns_of
from seaweedmq.spark.scan import Scan
from seaweedmq.spark.window import Span
from seaweedmq.storage.snapshot.plan import plan_snapshot
from seaweedmq.storage.store.files import FileSegmentStore
from tests.support.segments import NAME, make_frame, make_segment, make_topic, write_log


async def test_a_segment_ends_where_power_loss_tore_it_before_brokers_seal_it_there(tmp_path: Path) -> None:
    store = FileSegmentStore(tmp_path)
    await write_log(store, 0, [make_frame(0, 8), make_frame(8, 2)[:-40]], flushed=0)
    await write_log(store, 10, [make_frame(10, 5)], flushed=8)
    topic = make_topic()
    scan = Scan(root=tmp_path, topic=topic, timestamps=Span(), columns=columns_of(topic))

    async def offsets(end: int | None = None) -> list[int]:
        pieces = plan_snapshot(make_segment(end), await store.list_files(NAME, 0))
        return [row["offset"] for batch in scan.read(pieces) for row in batch.to_pylist()]

    assert await offsets() == list(range(8))
    assert await offsets(end=8) == list(range(8))
    await write_log(store, 8, [make_frame(8, 2)], writer="b-2")
    assert await offsets() == list(range(15))
    await store.close()
