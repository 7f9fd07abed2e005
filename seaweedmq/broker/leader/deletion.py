"""A topic's deletion is done once its primaries have heard of it: until then they may acknowledge records to it, also
to a publisher that was opened after the deletion and takes the topic for its namesake. Nor is the name free before."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.calls import LogEnds
from seaweedmq.model.topic import Deletion
from seaweedmq.ports import BrokerApi
from seaweedmq.runtime.retrying import backoff, retrying

log = logging.getLogger(__name__)

HEARD_TIMEOUT_EXTRA_S = 5.0
"""On top of a lease. A primary that lives by then and can not be asked is left to hear of it from etcd."""


async def until_heard(
    deletion: Deletion,
    view: ClusterView,
    dial: Callable[[str], BrokerApi],
    outlive_others: Callable[[], Awaitable[None]],
    *,
    rng: random.Random,
    lease_ttl_s: float,
) -> None:
    """Wait until every primary that lives has dropped the segments of the deleted topic. The view has the deletion.

    ``outlive_others`` returns once the leases that are gone from etcd have run out by their holders' clocks.
    """
    revision = view.revision

    async def ask(primary: str) -> None:
        if primary not in view.brokers:
            if primary not in view.left:
                await outlive_others()  # until then it may acknowledge, whatever became of its lease
            return
        ends = await dial(primary).call(LogEnds(deletion.name, deletion.uid, revision))
        if ends:
            raise Unavailable(f"{deletion.name}: broker {primary} has not closed it yet")

    async def hear(primary: str) -> None:
        last: list[BaseException] = []
        asking = retrying(backoff(rng, 0.005, 0.2), on=SeaweedMQError, told=lambda _, error: last.append(error))
        try:
            async with asyncio.timeout(lease_ttl_s + HEARD_TIMEOUT_EXTRA_S):
                await asking(ask, primary)
        except TimeoutError:
            reason = last[-1] if last else "no answer"
            log.warning("%s is deleted, and broker %s may not know yet: %s", deletion.name, primary, reason)

    await asyncio.gather(*map(hear, deletion.primaries))
