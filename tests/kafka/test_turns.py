"""Requests of many elements yield to others wherever their handlers loop over the elements."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.neighbors.requests import GROUP, OF_MANY, TOPIC
from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.wire.frames import LENGTH_BYTES
from seaweedmq.kafka.wire.messages import API, Line, Reply, Request
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.turns import Turn, Turns
from tests.broker.testbed import Testbed
from tests.kafka.byte_client import ByteClient, byte_clients
from tests.support.kafka_wire import read_request

CONTEXT = CallContext(listener=ListenerKind.KAFKA, peer="127.0.0.1:1")
ELEMENTS = 3_000
GARBAGE_ELEMENTS = 500
A_TURN_MAX = 1_000
"""Limit of elements that a handler loops over between checks of the turn."""


CHEAP = frozenset(
    {
        API.CREATE_TOPICS, API.DELETE_TOPICS, API.CREATE_PARTITIONS, API.INCREMENTAL_ALTER_CONFIGS, API.LEAVE_GROUP,
        API.DESCRIBE_LOG_DIRS, API.OFFSET_DELETE,
    }
)  # fmt: skip
"""APIs with at most 10,000 elements that loop over them once without a check, to count names: some 2 ms."""


class Counting(list[Any]):
    """Elements of a request that count iterations over them."""

    def __init__(self, elements: list[Any], counter: "Counter") -> None:
        super().__init__(elements)
        self._counter = counter

    def __iter__(self) -> Iterator[Any]:
        for element in super().__iter__():
            self._counter.add()
            yield element


class Counter:
    """Elements since the last check of the turn, and their maximum."""

    def __init__(self) -> None:
        self.now = self.most = self.pauses = 0

    def add(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)


class CountedTurn(Turn):
    def __init__(self, counter: Counter) -> None:
        super().__init__(Turns(lambda: 0.0), lambda: 0.0)
        self._counter = counter

    async def pause(self) -> None:
        self._counter.now = 0
        self._counter.pauses += 1


def counted(body: Any, counter: Counter) -> None:
    for name in type(body).fields:
        value = getattr(body, name)
        if isinstance(value, list):
            for element in value:
                if hasattr(type(element), "fields"):
                    counted(element, counter)
            setattr(body, name, Counting(value, counter))


async def handled(client: ByteClient, request: Request) -> Reply:
    reply = await client.handlers[request.api](request)
    return await reply if request.api == API.PRODUCE else reply


async def ready(testbed: Testbed) -> ByteClient:
    """Return the handlers of a broker with the topic and the coordinator of the requests."""
    (client,) = await byte_clients(testbed, 1)
    await testbed.topic(client.host, TopicName("kafka", TOPIC), partitions=1)
    await client.ask(API.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    return client


@pytest.mark.parametrize("api", [api for api in OF_MANY if api not in CHEAP], ids=lambda api: api.name)
async def test_it_gives_way(testbed: Testbed, api: API) -> None:
    client = await ready(testbed)
    data = memoryview(OF_MANY[api](ELEMENTS))[LENGTH_BYTES:]
    counter = Counter()
    request = read_request(data, context=CONTEXT, connection=1, line=Line())
    counted(request.body, counter)
    request = replace(request, turn=CountedTurn(counter))
    try:
        await testbed.network.spawn(client.host.owner, handled(client, request))
    except SeaweedMQError as error:
        pytest.fail(f"{api.name} was rejected: {error}")
    assert counter.pauses >= ELEMENTS / A_TURN_MAX
    assert counter.most <= A_TURN_MAX, f"{counter.most:,} elements were looped over without a look at the turn"


@pytest.mark.parametrize("api", list(OF_MANY), ids=lambda api: api.name)
async def test_it_leaves_no_garbage_in_cycles(testbed: Testbed, api: API) -> None:
    """Errors that refer to their own frames would stay, and a million of them hold the loop for a second."""
    client = await ready(testbed)
    data = memoryview(OF_MANY[api](GARBAGE_ELEMENTS))[LENGTH_BYTES:]
    gc.collect()
    gc.disable()
    try:
        request = read_request(data, context=CONTEXT, connection=1, line=Line())
        await testbed.network.spawn(client.host.owner, handled(client, request))
        del request
        left = gc.collect()
    finally:
        gc.enable()
    assert left < GARBAGE_ELEMENTS, f"{left:,} objects of {GARBAGE_ELEMENTS:,} elements"
