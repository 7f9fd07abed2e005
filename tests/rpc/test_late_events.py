"""Late events of calls whose event loop is closed disturb no other loop of the process."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop

from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.subscribe import EARLIEST, SubscribeOpen, SubscribeRequest
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.server import serve
from tests.rpc.fake_broker import FakeBroker


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_closed_loop_ignores_what_grpc_passes_on_and_nothing_else(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    def _handle_callback_wrapper() -> None:
        called.append("gRPC")

    async def use() -> None:
        await GrpcDialer().close()
        loop.call_soon_threadsafe(_handle_callback_wrapper)
        loop.call_soon_threadsafe(called.append, "other")
        await asyncio.sleep(0.01)

    called: list[str] = []
    loop = new_loop()
    loop.run_until_complete(use())
    loop.close()
    assert called == ["gRPC", "other"]
    loop.call_soon_threadsafe(_handle_callback_wrapper)
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon_threadsafe(called.append, "late")


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_may_outlive_a_thousand_clients(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def use() -> None:
        for _ in range(1_200):
            await GrpcDialer().close()
        called = asyncio.Event()
        asyncio.get_running_loop().call_soon_threadsafe(called.set)
        await asyncio.wait_for(called.wait(), 10)

    loop = new_loop()
    loop.run_until_complete(use())
    loop.close()


def test_clients_with_a_loop_each_disturb_no_other_loop() -> None:
    """Spark workers, programs that call ``asyncio.run`` repeatedly, and tests have such clients."""
    disturbed: list[dict[str, Any]] = []
    address: list[str] = []
    started, ended = threading.Event(), threading.Event()

    async def server() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: disturbed.append(context))
        running = await serve(FakeBroker(), "127.0.0.1:0", BrokerConfig())
        address.append(running.address)
        started.set()
        await asyncio.to_thread(ended.wait)
        await running.stop(0)

    async def requests() -> AsyncIterator[SubscribeRequest]:
        yield SubscribeOpen(
            topic=TopicName("shop", "orders"), segment=0, start=EARLIEST, credit_bytes=1 << 20, topic_uid=1
        )
        await asyncio.Event().wait()

    async def client() -> None:
        dialer = GrpcDialer()
        streams = [dialer.dial(address[0]).subscribe(requests()) for _ in range(4)]
        for stream in streams:
            await anext(stream)
        await asyncio.gather(*(stream.aclose() for stream in streams))
        await dialer.close()

    serving = threading.Thread(target=asyncio.run, args=(server(),))
    serving.start()
    assert started.wait(10)
    try:
        for _ in range(20):
            asyncio.run(client())
    finally:
        ended.set()
        serving.join()
    assert not disturbed
