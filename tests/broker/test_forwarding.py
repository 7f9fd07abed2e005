"""A stream through another broker to the leader that its caller leaves in the middle."""

import asyncio
import gc
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

from seaweedmq.broker.forward import Forwarding
from seaweedmq.errors import Unavailable
from seaweedmq.model.broker import BrokerInfo


async def test_an_error_that_comes_when_the_caller_is_gone_is_no_failure_of_the_broker() -> None:
    leader = BrokerInfo(id="b-2", address="127.0.0.1:1", started_us=0, pid=1, version="1")
    view = SimpleNamespace(
        leader="b-2", brokers={"b-2": leader}, changes=0, wait_change=lambda _: asyncio.Event().wait()
    )
    dialer = SimpleNamespace(dial=lambda address: address)
    own = SimpleNamespace(leading=False, broker_id="b-1")
    forwarding = Forwarding(cast(Any, view), cast(Any, dialer), lambda: cast(Any, own), 1.0)
    opened = asyncio.Event()

    async def replies(_: object) -> AsyncIterator[int]:
        opened.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unavailable("the leader is gone, too") from None
        yield 0

    async def call() -> None:
        async for _ in forwarding.stream_by_leader(cast(Any, None), replies):
            pass

    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    caller = asyncio.create_task(call())
    await opened.wait()
    caller.cancel()
    await asyncio.wait({caller})
    del caller  # and with it whatever its traceback holds
    gc.collect()
    assert not complaints
