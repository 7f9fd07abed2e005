"""A topic's deletion is told once its primaries have heard of it: until then they may acknowledge records to it, also
to a publisher that was opened after the deletion and takes the topic for its namesake."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.calls import LogEnds
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BrokerApi
from seaweedmq.runtime.retrying import backoff, retrying

log = logging.getLogger(__name__)

HEARD_TIMEOUT_S = 5.0
"""A primary that lives and can not be asked for so long is left to hear of it from etcd."""


async def until_heard(
    topic: Topic,
    primaries: Collection[str],
    revision: int,
    view: ClusterView,
    dial: Callable[[str], BrokerApi],
    rng: random.Random,
) -> None:
    """Wait until every primary that lives has dropped the segments of the topic, which was deleted at ``revision``."""

    async def ask(primary: str) -> None:
        if primary not in view.brokers:
            return
        ends = await dial(primary).call(LogEnds(topic.name, topic.uid, revision))
        if ends:
            raise Unavailable(f"{topic.name}: broker {primary} has not closed it yet")

    async def hear(primary: str) -> None:
        last: list[BaseException] = []
        asking = retrying(backoff(rng, 0.005, 0.2), on=SeaweedMQError, told=lambda _, error: last.append(error))
        try:
            async with asyncio.timeout(HEARD_TIMEOUT_S):
                await asking(ask, primary)
        except TimeoutError:
            reason = last[-1] if last else "no answer"
            log.warning("%s is deleted, and broker %s may not know yet: %s", topic.name, primary, reason)

    await asyncio.gather(*map(hear, sorted(primaries)))
