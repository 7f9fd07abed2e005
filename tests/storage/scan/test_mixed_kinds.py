"""Plain records in a topic with a schema: read as rows without its columns, from logs and tables."""

from pathlib import Path

import pyarrow as pa
import pytest

from seaweedmq.codec.state.documents import lineage_document, topic_document
from seaweedmq.codec.topic_schema import schema_to_bytes
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.plan.partitions import plan_partitions
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import ReadWindow
from seaweedmq.storage.snapshot import read_snapshot
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import convert_files
from tests.support.scans import scan_of
from tests.support.segments import NAME, logs_of, make_frame, make_segment, make_topic, write_log

ROWS = [(0, None), (1, 1), (2, 2), (3, None), (4, None), (5, 5)]


@pytest.mark.parametrize("is_converted", [False, True])
@pytest.mark.parametrize("chosen", [None, ("offset", "number"), ("number",)])
async def test_plain_records_lack_columns(tmp_path: Path, is_converted: bool, chosen: tuple[str, ...] | None) -> None:
    numbers = pa.schema([pa.field("number", pa.int64(), nullable=False)])
    store = FileSegmentStore(tmp_path)
    topic = make_topic(schema_to_bytes(numbers))
    await store.put_documents(NAME, {"topic.json": topic_document(topic)}, uid=7, revision=1)
    await store.put_documents(NAME, {"lineage.json": lineage_document(NAME, [make_segment()])}, uid=7, revision=1)
    frames = [
        make_frame(0, 1),
        make_frame(1, 2, schema=numbers),
        make_frame(3, 2, keys=True),
        make_frame(5, 1, schema=numbers),
    ]
    await write_log(store, 0, frames)
    if is_converted:
        assert len(convert_files(DirectoryPlace(tmp_path), topic, await logs_of(store), None, 500)) == 4
    snapshot = read_snapshot(DirectoryPlace(tmp_path), NAME)
    scan = scan_of(tmp_path, snapshot.topic, chosen)
    parts = plan_partitions(TopicSource(place=DirectoryPlace(tmp_path), snapshot=snapshot), ReadWindow(), 1)
    batches = [batch for part in parts for batch in scan.read(part)]
    table = pa.Table.from_batches(batches)
    assert table["number"].to_pylist() == [number for _, number in ROWS]
    if "offset" in table.column_names:
        assert table["offset"].to_pylist() == [offset for offset, _ in ROWS]
    await store.close()
