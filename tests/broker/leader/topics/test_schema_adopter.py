"""Schema adoption by an empty topic, also while records are in flight; a topic has one kind of records."""

import asyncio
import random
import warnings
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from seaweedmq import aio
from seaweedmq.broker.leader.topics.schema_adopter import SchemaAdopter
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import topic_to_json
from seaweedmq.codec.topic_schema import schema_from_bytes, schema_to_bytes
from seaweedmq.errors import InvalidArgument, SeaweedMQError, Unavailable
from seaweedmq.model.messages.calls import AdoptSchema, AlterTopic, DescribeTopic, MoveSegment, SealSegment
from seaweedmq.model.topic import TopicChange, TopicName
from seaweedmq.ports import BrokerApi, Put
from tests.broker.test_etcd_refuses import KINDS, refuse
from tests.broker.testbed import NAME, TTL_S, Host, Testbed
from tests.doubles.memory_store import StorageOp
from tests.sim.machines.loop import Owner

NUMBERS = schema_to_bytes(pa.schema([("number", pa.int64())]))
WORDS = schema_to_bytes(pa.schema([("word", pa.string())]))


def hold_answers(hosts: list[Host]) -> asyncio.Event:
    """Delay the end offsets that primaries return until the event is set."""
    released = asyncio.Event()
    for host in hosts:
        descriptions = host.inspect.descriptions
        say = descriptions.log_ends

        async def late(name: TopicName, uid: int, revision: int, say=say) -> Mapping[int, int]:  # type: ignore[no-untyped-def]
            ends = await say(name, uid, revision)
            await released.wait()
            return ends  # type: ignore[no-any-return]

        descriptions.log_ends = late  # type: ignore[method-assign]
    return released


async def adopting(testbed: Testbed) -> None:
    """Wait until every primary knows the schema."""
    await testbed.until(
        lambda: all(
            h.inspect.view.topics[NAME].adopting or not h.lives for h in testbed.hosts if NAME in h.inspect.view.topics
        )
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_an_adoption_that_etcd_refused_is_decided_later(testbed: Testbed, kind: type[SeaweedMQError]) -> None:
    host = await testbed.single()
    end = refuse(host, kind("no"), ("transact",))
    adopting = replace(host.inspect.view.topics[NAME], adopting=NUMBERS)
    testbed.etcd.server.transact([], [Put(keys.topic_key(NAME), topic_to_json(adopting))])
    await asyncio.sleep(20)
    assert host.inspect.view.topics[NAME].adopting == NUMBERS
    end()
    await testbed.until(lambda: host.inspect.view.topics[NAME].adopting is None, 10)
    assert host.inspect.view.topics[NAME].schema in (NUMBERS, None), "in time, or given up"
    assert not host.has_failed


async def test_a_record_that_is_not_committed_yet_counts(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing()
    synced = testbed.faults.hold(StorageOp.SYNC)
    await publisher.send()
    await testbed.until(lambda: host.inspect.segments[NAME, 0].log.end == 1)
    with pytest.raises(InvalidArgument, match=r"has plain records \(segment 0\), or some are in flight"):
        await host.api.call(AdoptSchema(NAME, NUMBERS))
    testbed.faults.held.clear()
    synced.set()
    assert await publisher.acks() == [(0, 0)]
    await publisher.store()
    assert host.inspect.view.topics[NAME].adopting is None


async def test_plain_frames_wait_until_it_is_decided_and_are_refused_if_there_is_a_schema_now(testbed: Testbed) -> None:
    hosts = await testbed.several(2, segments=2)
    primary = await testbed.primary(hosts[0], segment=1)
    publisher = await primary.publisher(segment=1)
    answered = hold_answers(hosts)
    schema_adopter = asyncio.create_task(hosts[0].api.call(AdoptSchema(NAME, NUMBERS)))
    await adopting(testbed)
    await publisher.send(slots=(40_000, 40_000))
    assert await publisher.quiet(1)
    answered.set()
    assert (await schema_adopter).topic.schema == NUMBERS
    with pytest.raises(InvalidArgument, match="plain frame sent to topic test/topic, which has a schema"):
        await publisher.acks()
    assert primary.inspect.segments[NAME, 1].log.end == 0


async def test_plain_frames_go_on_if_another_segment_holds_some(testbed: Testbed) -> None:
    hosts = await testbed.several(2, segments=2)
    lower, upper = [await testbed.primary(hosts[0], segment=n) for n in (0, 1)]
    first, second = await lower.publisher(segment=0), await upper.publisher(2, segment=1)
    synced = testbed.faults.hold(StorageOp.SYNC)
    await first.send()
    await testbed.until(lambda: lower.inspect.segments[NAME, 0].log.end == 1)
    answered = hold_answers(hosts)
    schema_adopter = asyncio.create_task(hosts[0].api.call(AdoptSchema(NAME, NUMBERS)))
    await adopting(testbed)
    await second.send(slots=(40_000, 40_000))
    assert await second.quiet(1)
    answered.set()
    with pytest.raises(InvalidArgument, match=r"has plain records \(segment 0\)"):
        await schema_adopter
    testbed.faults.held.clear()
    synced.set()
    assert await first.acks() == [(0, 0)]
    assert await second.acks() == [(0, 0)]


async def test_a_leader_that_dies_in_the_middle_leaves_it_to_the_next(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    leader = testbed.leader()
    await testbed.topic(hosts[0], segments=3)
    before = await testbed.primary(hosts[0])
    to = next(h for h in hosts if h not in (leader, before))
    await hosts[0].api.call(MoveSegment(NAME, 0, (to.broker.id,)))
    primary = await testbed.primary(hosts[0], segment=3)
    publisher = await primary.publisher(segment=3)
    answered = hold_answers(hosts)
    schema_adopter = asyncio.create_task(leader.api.call(AdoptSchema(NAME, NUMBERS)))
    await adopting(testbed)
    await publisher.send()
    leader.kill()
    answered.set()
    with pytest.raises(SeaweedMQError):
        await schema_adopter
    await testbed.until(lambda: primary.inspect.view.topics[NAME].adopting is None, 20 * TTL_S)
    if primary.inspect.view.topics[NAME].schema is None:
        assert await publisher.acks() == [(0, 0)]
    else:
        assert primary.inspect.segments[NAME, 3].log.end == 0
        with pytest.raises(InvalidArgument, match="has a schema"):
            await publisher.acks()


async def test_a_primary_that_does_not_answer_stops_no_other_for_long(testbed: Testbed) -> None:
    hosts = await testbed.several(3, segments=3)
    silent = next(h for h in hosts if h is not testbed.leader())
    other = next(h for h in hosts if h is not silent)
    segment = next(n for (_, n) in other.inspect.segments)
    publisher = await other.publisher(segment=segment)
    hold_answers([silent])
    schema_adopter = asyncio.create_task(other.api.call(AdoptSchema(NAME, NUMBERS)))
    await adopting(testbed)
    await publisher.send(slots=(segment * 21_846, segment * 21_846))
    with pytest.raises(Unavailable, match="as a primary of its segments does not answer: retry"):
        await schema_adopter
    assert await publisher.acks() == [(0, 0)]


async def test_of_two_schemas_at_once_one_is_adopted(testbed: Testbed) -> None:
    hosts = await testbed.several(2, segments=4)
    outcomes = await asyncio.gather(
        *(hosts[n % 2].api.call(AdoptSchema(NAME, (NUMBERS, WORDS)[n % 2])) for n in range(8)), return_exceptions=True
    )
    topics = {outcome.topic.schema for outcome in outcomes if not isinstance(outcome, BaseException)}
    refusals = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert len(topics) == 1
    assert len(refusals) == 4
    assert all("has another schema already" in str(refusal) for refusal in refusals)


async def test_what_changes_the_topic_in_the_middle_is_no_obstacle(testbed: Testbed) -> None:
    hosts = await testbed.several(2, segments=2)
    answered = hold_answers(hosts)
    schema_adopter = asyncio.create_task(hosts[0].api.call(AdoptSchema(NAME, NUMBERS)))
    await adopting(testbed)
    await hosts[1].api.call(AlterTopic(NAME, TopicChange(retention_s=3600)))
    await hosts[1].api.call(SealSegment(NAME, 0))
    answered.set()
    topic = (await schema_adopter).topic
    assert (topic.schema, topic.retention_s, topic.next_segment) == (NUMBERS, 3600, 3)


async def test_a_primary_that_can_not_be_dialled_leaves_no_question_to_another_behind(testbed: Testbed) -> None:
    hosts = await testbed.several(2, segments=4)
    leader, dialled = testbed.leader(), 0

    def second_is_gone(broker: str) -> BrokerApi:
        nonlocal dialled
        dialled += 1
        if dialled == 2:
            raise Unavailable(f"broker {broker} is gone")
        return next(host.api for host in hosts if host.broker.id == broker)  # type: ignore[no-any-return]

    schema_adopter = SchemaAdopter(leader.inspect.leader.metadata, second_is_gone)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning of a coroutine that was never awaited
        await testbed.network.spawn(leader.owner, schema_adopter.adopt(NAME, NUMBERS))
    assert (await hosts[0].api.call(DescribeTopic(NAME))).topic.schema == NUMBERS
    assert dialled >= 2, "the one that is gone was dialled; by then the leader may have decided by itself"


@pytest.mark.parametrize("seed", range(6))
async def test_tables_and_plain_records_that_race_for_a_topic_have_an_outcome(testbed: Testbed, seed: int) -> None:
    hosts = await testbed.several(3, segments=3)
    rng = random.Random(seed)

    async def connect(name: str) -> aio.Client:
        owner = Owner(f"{seed} {name}")
        return await testbed.client(owner, delivery_timeout_s=60.0, admin_timeout_s=60.0)

    async def plain(name: str) -> list[bool]:
        async with await connect(name) as client, client.publisher(str(NAME)) as publisher:
            await asyncio.sleep(rng.uniform(0, 0.02))
            sent = []
            for number in range(20):
                try:
                    sent.append(await publisher.send(b"x", key=b"%d" % number))
                except InvalidArgument:
                    break
                await asyncio.sleep(rng.uniform(0, 0.01))
            return [not isinstance(r, BaseException) for r in await asyncio.gather(*sent, return_exceptions=True)]

    async def tables(name: str) -> bool:
        async with await connect(name) as client, client.publisher(str(NAME)) as publisher:
            await asyncio.sleep(rng.uniform(0, 0.03))
            try:
                receipt = await (await publisher.send_table(pa.table({"number": range(10)}), key="number"))
            except InvalidArgument:
                return False
            return receipt.records == 10

    one, two, typed = await asyncio.gather(plain("one"), plain("two"), tables("tables"))
    schema = hosts[0].inspect.view.topics[NAME].schema
    assert typed == (schema is not None)
    assert typed != any([*one, *two])
    if schema is not None:
        assert schema_from_bytes(schema).names == ["number"]
