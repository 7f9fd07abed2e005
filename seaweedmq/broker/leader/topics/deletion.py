"""Wait until the primaries of a deleted topic have closed its segments.

A deletion is complete once the primaries have closed its segments. Until then they may acknowledge records to it, even
to a publisher opened after the deletion that mistakes the topic for a recreated one. The name is not free before
either.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.messages.calls import LogEnds
from seaweedmq.model.topic import Deletion
from seaweedmq.ports import BrokerApi
from seaweedmq.runtime.retrying import backoff, retrying

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_EXTRA_S = 5.0
"""Time on top of a lease. A live primary that stays unreachable for longer learns of the deletion from etcd."""


async def wait_closed(
    deletion: Deletion,
    view: ClusterView,
    dial: Callable[[str], BrokerApi],
    await_expired_leases: Callable[[], Awaitable[None]],
    *,
    rng: random.Random,
    lease_ttl_s: float,
) -> None:
    """Wait until every live primary has dropped the segments of a deletion that the view already contains.

    ``await_expired_leases`` returns once the leases that are gone from etcd have run out by their holders' clocks.
    """
    revision = view.revision

    async def check_closed(primary: str) -> None:
        if primary not in view.brokers:
            if primary not in view.left:
                await await_expired_leases()  # it may acknowledge until its own clock ends the lease
            return
        ends = await dial(primary).call(LogEnds(deletion.name, deletion.uid, revision))
        if ends:
            raise Unavailable(f"{deletion.name}: broker {primary} has not closed it yet: retry")

    async def wait_for(primary: str) -> None:
        errors: list[BaseException] = []
        attempts = retrying(backoff(rng, 0.005, 0.2), on=SeaweedMQError, on_retry=lambda _, error: errors.append(error))
        try:
            async with asyncio.timeout(lease_ttl_s + CLOSE_TIMEOUT_EXTRA_S):
                await attempts(check_closed, primary)
        except TimeoutError:
            reason = errors[-1] if errors else "no answer"
            log.warning("topic deletion unconfirmed: %s: broker %s: %s", deletion.name, primary, reason)

    await asyncio.gather(*map(wait_for, deletion.primaries))
