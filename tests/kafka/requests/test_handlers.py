"""No request fails a handler, however bad its fields are: each has a reply, or an error with a code."""

import asyncio
from dataclasses import replace
from typing import Any

from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.decoding import decode
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.messages import API, REQUESTS
from seaweedmq.kafka.wire.versions import ADVERTISED, name_of
from tests.broker.testbed import Testbed, story
from tests.kafka.differential.messages import Names, built
from tests.kafka.differential.play import Play
from tests.kafka.in_process_client import InProcessClient, in_process_clients
from tests.kafka.requests.asking import ANSWER_S, furnish, prefix_of
from tests.kafka.requests.cases import cases
from tests.kafka.requests.good import Place
from tests.sim.machines.determinism import WALL_START_US

T0_MS = WALL_START_US // 1_000


class PlayInProcess(Play):
    """A play whose requests go to the handlers of a broker in virtual time."""

    def __init__(self, client: InProcessClient, title: str) -> None:
        super().__init__(0, title, Names(T0_MS))
        self._door = client

    async def quietly(self, api: API, version: int, on: str = "", **fields: Any) -> Any:
        sent = bytes(built(api, version, fields).encode(version=version))
        body = decode(REQUESTS[api], version, memoryview(sent))
        return await self._door.send(replace(self._door.request(api, version), body=body))


async def ready(testbed: Testbed) -> tuple[InProcessClient, int]:
    """Return the handlers of a broker that coordinates groups, and its number as a node."""
    [client] = await in_process_clients(testbed)
    play = PlayInProcess(client, "ready")
    while not await play.is_ready():  # noqa: ASYNC110 - the time is virtual
        await asyncio.sleep(0.1)
    [node] = (await play.quietly(API.METADATA, 9, topics=[], allow_auto_topic_creation=False)).brokers
    return client, node.node_id


@story
async def test_no_request_fails_a_handler(testbed: Testbed) -> None:
    client, node_id = await ready(testbed)
    failed = []
    for api in ADVERTISED.keys() - {API.API_VERSIONS}:  # the connection answers that one
        versions = ADVERTISED[api]
        for version in {versions.lowest, versions.highest}:
            prefix = prefix_of(api, version)
            play, place = PlayInProcess(client, prefix.removesuffix("-")), Place(prefix, T0_MS, node_id)
            await furnish(play, place, api)
            for case in cases(api, version, place):
                try:
                    async with asyncio.timeout(ANSWER_S):
                        await play.quietly(api, version, **case.fields)
                except (SeaweedMQError, TimeoutError):
                    continue  # the first has a code, the second waits for an event
                except Exception as error:  # noqa: BLE001 - any other is a defect
                    failed.append(f"{name_of(api)} {version}: {case.title}: {error!r}")
    assert not failed, "\n".join(failed)


@story
async def test_odd_requests_are_answered_as_by_apache_kafka(testbed: Testbed) -> None:
    client, node_id = await ready(testbed)

    async def asked(api: API, version: int, title: str) -> Any:
        prefix = f"{len(prefixes)}-{prefix_of(api, version)}"
        prefixes.append(prefix)
        play, place = PlayInProcess(client, prefix.removesuffix("-")), Place(prefix, T0_MS, node_id)
        await furnish(play, place, api)
        [fields] = [case.fields for case in cases(api, version, place) if case.title == title]
        try:
            return await play.quietly(api, version, **fields)
        except KafkaError as refused:
            return refused.kafka_code

    prefixes: list[str] = []
    unknown, fenced = Code.UNKNOWN_TOPIC_OR_PARTITION, Code.FENCED_LEADER_EPOCH

    said = await asked(API.PRODUCE, 12, "topic_data.0.name=''")
    assert said.responses[0].partition_responses[0].error_code == unknown
    said = await asked(API.PRODUCE, 13, "topic_data.0.topic_id=UUID('00000000-0000-0000-0000-000000000000')")
    assert said.responses[0].partition_responses[0].error_code == Code.UNKNOWN_TOPIC_ID
    assert (await asked(API.PRODUCE, 12, "topic_data.0.partition_data=[]")).responses == []
    assert (await asked(API.FETCH, 12, "topics.0.topic=''")).responses[0].partitions[0].error_code == unknown
    assert (await asked(API.LIST_OFFSETS, 10, "topics.0.partitions=[]")).topics == []
    said = await asked(API.LIST_OFFSETS, 10, "topics.0.partitions.0.current_leader_epoch=-2")
    assert said.topics[0].partitions[0].error_code == fenced
    said = await asked(API.OFFSET_FOR_LEADER_EPOCH, 4, "topics.0.partitions.0.current_leader_epoch=-2")
    assert said.topics[0].partitions[0].error_code == fenced
    said = await asked(API.FETCH, 12, "topics.0.partitions.0.current_leader_epoch=-2")
    assert said.responses[0].partitions[0].error_code == Code.NONE
    said = await asked(API.OFFSET_FETCH, 7, "topics=twice")
    assert [[part.partition_index for part in topic.partitions] for topic in said.topics] == [[0, 1], [0, 1]]
    said = await asked(API.OFFSET_FETCH, 9, "groups.0.topics.0.partition_indexes=[]")
    assert [topic.partitions for topic in said.groups[0].topics] == [[]]
    assert (await asked(API.DELETE_RECORDS, 2, "topics.0.partitions=[]")).topics == []
    assert (await asked(API.OFFSET_DELETE, 0, "topics.0.partitions=[]")).topics == []
    assert [one.error_code for one in (await asked(API.DELETE_GROUPS, 2, "groups_names=twice")).results] == [Code.NONE]
    assert await asked(API.SYNC_GROUP, 5, "protocol_name=None") == Code.INCONSISTENT_GROUP_PROTOCOL
    for title in ("producer_id=-2", "producer_epoch=-2", "producer_id=1"):
        assert await asked(API.INIT_PRODUCER_ID, 4, title) == Code.INVALID_REQUEST
    for api, version in ((API.ALTER_CONFIGS, 2), (API.INCREMENTAL_ALTER_CONFIGS, 1)):
        [one] = (await asked(api, version, "resources.0.resource_name=''")).responses
        assert one.error_code == Code.INVALID_REQUEST
