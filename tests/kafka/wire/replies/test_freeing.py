"""Large requests are freed in turns after their reply."""

from typing import Any

import pytest

from seaweedmq.kafka.wire.messages import API, REQUESTS, DescribeGroupsResponse, Request
from seaweedmq.kafka.wire.replies.freeing import ELEMENTS_A_STEP, free, free_message
from seaweedmq.runtime.turns import Turn, Turns
from tests.kafka.wire.script import listening, script, until

TOPICS = 1_000
FETCHED = REQUESTS[API.FETCH]


class CountedTurn(Turn):
    def __init__(self) -> None:
        super().__init__(Turns(lambda: 0.0), lambda: 0.0)
        self.looks = 0

    async def pause(self) -> None:
        self.looks += 1


@pytest.mark.parametrize("items", [list(range(TOPICS)), dict.fromkeys(range(TOPICS))])
async def test_a_container_is_emptied_some_elements_at_a_time(items: list[int] | dict[int, None]) -> None:
    turn = CountedTurn()
    await free(items, turn)
    assert not items
    assert turn.looks == TOPICS // ELEMENTS_A_STEP


async def test_all_arrays_of_a_message_are_emptied() -> None:
    topic = FETCHED.FetchTopic
    partitions = [topic.FetchPartition(partition=number) for number in range(TOPICS)]
    body = FETCHED(topics=[topic(topic="t", partitions=partitions)], forgotten_topics_data=None)
    turn = CountedTurn()
    await free_message(body, turn)
    assert not body.topics
    assert not partitions
    assert turn.looks >= TOPICS // ELEMENTS_A_STEP


@pytest.mark.parametrize(("groups", "is_freed"), [(TOPICS, True), (10, False)])
async def test_a_large_request_is_freed_after_its_answer(groups: int, is_freed: bool) -> None:
    bodies: list[Any] = []

    async def answer(request: Request) -> Any:
        bodies.append(request.body)
        return DescribeGroupsResponse(groups=[])

    async with listening({API.DESCRIBE_GROUPS: answer}) as (_, port), script(port) as peer:
        fields = {"groups": ["group"] * groups, "include_authorized_operations": False}
        peer.ask(1, API.DESCRIBE_GROUPS, 5, REQUESTS[API.DESCRIBE_GROUPS](version=5, **fields))
        await peer.hear(API.DESCRIBE_GROUPS, 5)
        if is_freed:
            await until(lambda: not bodies[0].groups)
    assert len(bodies[0].groups) == (0 if is_freed else groups)
