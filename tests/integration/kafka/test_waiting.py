"""A Fetch that waits for records, and later requests of the client on the same connection."""

import asyncio
from collections.abc import Callable

import pytest

from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import API, REQUESTS
from tests.integration.kafka.raw import FETCH, Brokers, fetch_fields
from tests.kafka.wire.script import TIMEOUT_S, script

pytestmark = pytest.mark.integration

FIND, NUMBERS = 3, (1, 2)


async def test_a_question_behind_a_fetch_that_waits_is_answered_at_once(
    brokers: Brokers, create: Callable[..., str]
) -> None:
    topic = create()
    await brokers.coordinator("waiting")
    port = await brokers.leader(topic)
    fields = fetch_fields(topic, 0, 0, max_wait_ms=int(10 * TIMEOUT_S * 1_000))
    async with script(port) as peer:
        for number in NUMBERS:
            peer.ask(number, API.FETCH, FETCH, REQUESTS[API.FETCH](version=FETCH, **fields))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.reader.read(1), 0.5)
        question = REQUESTS[API.FIND_COORDINATOR](version=FIND, key="waiting", key_type=0)
        peer.ask(3, API.FIND_COORDINATOR, FIND, question)
        for number in NUMBERS:
            correlation_id, fetched = await peer.hear(API.FETCH, FETCH)
            part = fetched.responses[0].partitions[0]
            assert (correlation_id, part.error_code, bytes(part.records or b"")) == (number, Code.NONE, b"")
        correlation_id, found = await peer.hear(API.FIND_COORDINATOR, FIND)
        assert (correlation_id, found.error_code) == (3, Code.NONE)
