"""No request fails a handler, however bad its fields are: each has a reply, or an error with a code."""

import asyncio
from dataclasses import replace
from typing import Any

from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.wire.messages import API, REQUESTS
from seaweedmq.kafka.wire.versions import ADVERTISED, name_of
from tests.broker.testbed import Testbed
from tests.kafka.differential.messages import Names, built
from tests.kafka.differential.play import Play
from tests.kafka.in_process_client import InProcessClient, in_process_clients
from tests.kafka.requests.asking import ANSWER_S, furnish, prefix_of
from tests.kafka.requests.cases import cases
from tests.kafka.requests.good import Place
from tests.sim.machines.determinism import WALL_START_US
from tests.support.kafka_wire import decode

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
