"""The store on a server of S3 behind a proxy with faults."""

import math
import random
from dataclasses import replace

import pytest

from seaweedmq.codec.paths import TOPIC_DOCUMENT, journal_name
from seaweedmq.codec.state.documents import topic_document, topic_from_document
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.storage.object_store.store import ObjectSegmentStore
from seaweedmq.storage.stores import open_store
from tests.support.moto_server import MotoServer, point_to
from tests.support.object_proxy import FaultKind, ObjectProxy
from tests.support.segments import NAME, make_topic
from tests.support.stores import marker, put_log

JOURNAL = journal_name(0, 1, 1)


@pytest.mark.parametrize("kind", [FaultKind.REPLY_LOST, FaultKind.TWICE, FaultKind.LATE, FaultKind.RESET])
async def test_each_write_survives_a_fault(moto: MotoServer, monkeypatch: pytest.MonkeyPatch, kind: FaultKind) -> None:
    async with ObjectProxy(moto.port) as proxy:
        point_to(moto, monkeypatch.setenv, monkeypatch.delenv, proxy.port)
        store = open_store(f"s3://{moto.new_bucket()}/prefix", random.Random(1))
        assert isinstance(store, ObjectSegmentStore)

        def fault(part: str) -> None:
            proxy.heal()
            proxy.inject(kind, method="PUT", contains=part, times=math.inf if kind is FaultKind.TWICE else 1)

        async def put_topic(revision: int) -> None:
            topic = replace(make_topic(), pruned=IdRanges(((0, revision),)))
            documents = {TOPIC_DOCUMENT: topic_document(topic)}
            await store.put_documents(NAME, documents, uid=7, revision=revision)

        fault("cluster.json")
        assert await store.create_marker(marker()) == marker()
        fault("cluster.json")
        await store.replace_marker(marker(revision=2))
        store.bind("one")
        for revision in (1, 2):
            fault("topic.json")
            await put_topic(revision)
        fault(".log")
        log = await put_log(store, 0, b"x")
        journal = await store.create_journal(JOURNAL)
        for line in (b"one", b"two"):
            fault("groups/")
            await journal.append([line])
        fault(".removed")
        await store.record_removed(NAME, 7, {0: 5})
        for _ in range(2):  # before and after what is late
            found = topic_from_document(await store.read_document(NAME, TOPIC_DOCUMENT))
            assert found.pruned == IdRanges(((0, 2),))
            assert await store.read_marker() == marker(revision=2)
            assert [each.path for each in await store.list_files(NAME, 0)] == [log.path]
            assert (await store.read_journal(JOURNAL), await store.removed(NAME, 7)) == (b"onetwo", {0: 5})
            proxy.heal()
            await proxy.release()
        fault("topic.json")
        await store.delete_topic(NAME, 7, revision=3)
        await proxy.release()
        assert await store.list_topics() == []
        assert not await store.has_topics()
