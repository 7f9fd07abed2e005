"""The time at which a member with ``stop="latest"`` finds that its group has read everything."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seaweedmq.client.group import completion as stop
from seaweedmq.client.group.completion import wait_finished
from seaweedmq.errors import NotFound, SeaweedMQError, Unavailable
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.groups import GroupDescription
from seaweedmq.model.topic import TopicName

NAME = TopicName.parse("shop/orders")
NOBODY_READ = GroupDescription(group="billing", topics=())
STOPS = {0: 10}


class Views:
    """Successive answers with the topic's segments; the last one repeats."""

    def __init__(self, *answers: set[int] | SeaweedMQError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[bool, set[int]]] = []

    async def description(self, refresh: bool, ids: Iterable[int]) -> TopicDescription:
        self.asked.append((refresh, set(ids)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, SeaweedMQError):
            raise answer
        return cast(TopicDescription, SimpleNamespace(segments=[SimpleNamespace(id=number) for number in answer]))


async def finish(views: Views, *groups: SeaweedMQError) -> None:
    errors = list(groups)

    async def call(what: str, request: object) -> GroupDescription:
        if errors:
            raise errors.pop(0)
        return NOBODY_READ

    cluster: Any = SimpleNamespace(call=call)
    async with asyncio.timeout(5):
        await wait_finished(cluster, "billing", NAME, views.description, STOPS, lambda: True)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "STOP_POLL_S", 0.001)


async def test_brokers_that_lag_or_are_out_of_reach_are_asked_again_until_the_topic_is_deleted() -> None:
    views = Views(Unavailable("segment 0 is not known yet"), {0}, Unavailable("not now"), set())
    await finish(views, Unavailable("no coordinator at the moment"))
    assert len(views.asked) == 4
    with pytest.raises(NotFound):
        await finish(Views({0}, NotFound("there is no topic shop/orders")))


@pytest.mark.parametrize(("look_s", "refreshed"), [(1_000.0, [True, False, False]), (0.0, [True, True, True])])
async def test_what_is_known_is_asked_for_now_and_then_only(
    monkeypatch: pytest.MonkeyPatch, look_s: float, refreshed: list[bool]
) -> None:
    monkeypatch.setattr(stop, "CHECK_INTERVAL_S", look_s)
    views = Views({0}, {0}, set())
    await finish(views)
    assert views.asked == [(refresh, {0}) for refresh in refreshed]
