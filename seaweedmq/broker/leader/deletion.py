"""A topic's deletion is told once its primaries have heard of it: until then they may acknowledge records to it, also
to a publisher that was opened after the deletion and takes the topic for its namesake."""

import asyncio
import logging
from collections.abc import Callable, Collection

from tenacity import AsyncRetrying, RetryError, retry_if_exception_type, stop_after_delay, wait_random_exponential

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BrokerApi

log = logging.getLogger(__name__)

HEARD_TIMEOUT_S = 5.0
"""A primary that lives and can not be asked for so long is left to hear of it from etcd."""


async def until_heard(
    topic: Topic, primaries: Collection[str], revision: int, view: ClusterView, dial: Callable[[str], BrokerApi]
) -> None:
    """Wait until every primary that lives has dropped the segments of the topic, which was deleted at ``revision``."""

    async def ask(primary: str) -> None:
        if primary in view.brokers and await dial(primary).log_ends(topic.name, topic.uid, revision):
            raise Unavailable(f"{topic.name}: broker {primary} has not closed it yet")

    async def hear(primary: str) -> None:
        asking = AsyncRetrying(
            retry=retry_if_exception_type(SeaweedMQError),
            wait=wait_random_exponential(multiplier=0.005, max=0.2),
            stop=stop_after_delay(HEARD_TIMEOUT_S),
        )
        try:
            await asking(ask, primary)
        except RetryError as error:
            log.warning("%s is deleted, and broker %s may not know yet: %s", topic.name, primary, error)

    await asyncio.gather(*map(hear, sorted(primaries)))
