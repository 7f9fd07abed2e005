"""A reader of a segment that began before a compaction, with a table open or before the next one."""

import pytest

from seaweedmq.codec.frame import split_frames
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT
from seaweedmq.codec.state.documents import lineage_document, topic_document
from seaweedmq.storage.jobs.compacting import compact_topic
from seaweedmq.storage.read.reader import read_segment
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import convert_files
from tests.support.segments import NAME, logs_of, make_frame, make_segment, make_topic, tables_of, write_log


@pytest.mark.parametrize("after_chunks", [0, 1, 5, 11])
async def test_it_reads_on_and_every_record_once(store: FileSegmentStore, after_chunks: int) -> None:
    documents = {TOPIC_DOCUMENT: topic_document(make_topic())}
    documents[LINEAGE_DOCUMENT] = lineage_document(NAME, [make_segment()])
    await store.put_documents(NAME, documents, uid=7, revision=1)
    for base in range(0, 120, 10):
        await write_log(store, base, [make_frame(base, 10)])
        convert_files(store.place, make_topic(), await logs_of(store), None, 2_000)
        await store.delete(await logs_of(store))
    assert len(await tables_of(store)) == 12
    found: list[int] = []
    chunks = read_segment(store, make_topic(), 0, 0, 120, chunk_bytes=200)
    for number in range(1_000):
        if number == after_chunks:
            assert compact_topic(store.place, NAME).tables_after == 1
        chunk = await anext(chunks, None)
        if chunk is None:
            break
        for frame in split_frames(chunk.data):
            found += range(max(frame.header.base_offset, len(found)), frame.header.end_offset)
    assert found == list(range(120))
    assert len(await tables_of(store)) == 1
