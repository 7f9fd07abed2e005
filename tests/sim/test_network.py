"""Tests of the simulated network: ordered, bounded, breakable, and precise about lost messages."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from seaweedmq.errors import InvalidArgument, Unavailable, fresh
from seaweedmq.model.messages.calls import Call, ListTopics
from seaweedmq.model.messages.frames import SMALL_MESSAGE_BYTES
from seaweedmq.model.messages.publish import PublishFrames
from tests.sim.machines.determinism import deterministic
from tests.sim.machines.loop import Owner, OwnerState, SimLoop
from tests.sim.machines.network import Network


class EchoBroker:
    """A broker that answers ``publish`` with its requests, and counts the messages that it took from the stream."""

    def __init__(self) -> None:
        self.taken = 0
        self.cancelled = False

    async def publish(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        try:
            async for request in requests:
                self.taken += 1
                yield request
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled = True
            raise

    async def subscribe(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for _ in requests:
            raise InvalidArgument("there is nothing to subscribe to")
        yield

    async def call(self, request: Call[Any]) -> Any:
        return ("one",)


def play(story: Callable[[Network, EchoBroker, Owner], Awaitable[None]], seed: int = 1) -> Network:
    """Run a story with an echo broker at ``echo:1``."""
    with deterministic():
        loop = SimLoop()
        network = Network(loop, random.Random(seed))
        broker, owner = EchoBroker(), Owner("echo")
        network.serve("echo:1", owner, broker)
        loop.run_until_complete(_coroutine(story(network, broker, owner)))
        assert loop.failures() == []
        loop.close()
    return network


async def _coroutine(work: Awaitable[None]) -> None:
    await work


def echo(network: Network) -> Any:
    """Return the broker as a client sees it."""
    return network.dialer(None).dial("echo:1")


async def numbers(count: int) -> AsyncIterator[Any]:
    for number in range(count):
        yield number


@pytest.mark.parametrize("seed", range(20))
def test_messages_arrive_in_order_and_the_stream_ends(seed: int) -> None:
    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        network.faults.slow_share = 0.3
        replies = echo(network).publish(numbers(50))
        assert [reply async for reply in replies] == list(range(50))

    play(story, seed)


def test_a_client_that_does_not_read_stops_the_server() -> None:
    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        replies = echo(network).publish(numbers(10_000))
        assert await anext(replies) == 0
        await asyncio.sleep(60)
        assert broker.taken < 100

    play(story)


def test_who_sends_a_large_message_holds_it_until_it_is_taken() -> None:
    large = PublishFrames(b"." * (SMALL_MESSAGE_BYTES + 1))
    sent = []

    async def large_ones() -> AsyncIterator[Any]:
        for number in range(3):
            yield large
            sent.append(number)

    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        replies = echo(network).publish(large_ones())
        await anext(replies)
        await asyncio.sleep(60)
        assert network.large_unannounced(owner), "the handler holds one, since its answer is not taken"
        assert sent == [0, 1], "the third is under way"
        assert [reply async for reply in replies] == [large] * 2
        assert sent == [0, 1, 2]
        assert not network.large_unannounced(owner)

    play(story)


@pytest.mark.parametrize("is_fresh", [True, False])
def test_an_error_that_comes_out_of_two_handlers_is_noted(is_fresh: bool) -> None:
    kept = InvalidArgument("for all of them")

    async def refused(request: Call[Any]) -> Any:
        raise fresh(kept) if is_fresh else kept

    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        broker.call = refused  # type: ignore[method-assign]
        for _ in range(2):
            with pytest.raises(InvalidArgument):
                await echo(network).call(ListTopics())
        assert bool(network.raised_again) is not is_fresh

    play(story)


def test_an_error_of_the_server_reaches_the_client_as_its_own_kind() -> None:
    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        with pytest.raises(InvalidArgument, match="nothing to subscribe"):
            await anext(echo(network).subscribe(numbers(1)))

    play(story)


def test_a_killed_server_is_unavailable_and_so_is_an_empty_address() -> None:
    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        replies = echo(network).publish(numbers(10_000))
        assert await anext(replies) == 0
        owner.state = OwnerState.DEAD
        network.break_owner(owner, silently=True)
        with pytest.raises(Unavailable):
            async for _ in replies:
                pass
        with pytest.raises(Unavailable, match="refused"):
            await echo(network).call(ListTopics())
        assert not broker.cancelled, "nothing of the dead runs"

    play(story)


def test_what_is_under_way_arrives_though_its_sender_is_dead_by_then() -> None:
    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        network.faults.latency_s_min = network.faults.latency_s_max = 1.0
        received = asyncio.ensure_future(anext(echo(network).publish(numbers(1))))
        await asyncio.sleep(2.5)
        assert broker.taken == 1
        owner.state = OwnerState.DEAD
        async with asyncio.timeout(10):
            assert await received == 0

    play(story)


def test_a_client_that_leaves_cancels_its_handler() -> None:
    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        replies = echo(network).publish(numbers(10_000))
        assert await anext(replies) == 0
        await replies.aclose()
        await asyncio.sleep(1)
        assert broker.cancelled

    play(story)


def test_a_lossy_network_breaks_streams_but_never_skips_a_message() -> None:
    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        network.faults.break_share = 0.02
        for _ in range(50):
            expected = 0
            with contextlib.suppress(Unavailable):
                async for reply in echo(network).publish(numbers(50)):
                    assert reply == expected
                    expected += 1
        assert network.breaks > 10

    play(story)


def test_a_unary_call_is_answered() -> None:
    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        assert await echo(network).call(ListTopics()) == ("one",)

    play(story)


@pytest.mark.parametrize("cut", [("client", "echo"), ("echo", "client")])
def test_a_cut_in_either_direction_ends_streams_and_allows_no_new_ones_until_it_is_joined(cut: tuple[str, str]) -> None:
    async def story(network: Network, broker: EchoBroker, owner: Owner) -> None:
        remote: Any = network.dialer(Owner("client.1")).dial("echo:1")
        replies = remote.publish(numbers(10_000))
        assert await anext(replies) == 0
        network.cut(*cut)
        with pytest.raises(Unavailable, match="lost"):
            async for _ in replies:
                pass
        with pytest.raises(Unavailable, match="no answer"):
            await remote.call(ListTopics())
        network.join(*cut)
        assert await remote.call(ListTopics()) == ("one",)

    play(story)
