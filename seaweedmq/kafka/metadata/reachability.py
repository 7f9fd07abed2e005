"""Reachability probe of another broker, run before a client is sent there.

Kafka clients query the leader as soon as a connection breaks, before the metadata shows the failure, and then retry
the broker they get for a while: librdkafka for a second. The lease of a dead broker ends later still.
"""

import asyncio
import logging
from typing import Final

from seaweedmq.broker.ports import ClusterAccess
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.messages.calls import LogEnds
from seaweedmq.model.topic import Topic

log = logging.getLogger(__name__)

ALIVE_WAIT_S: Final = 0.2
"""Seconds to wait for an answer; a broker that is slower counts as reachable."""


async def is_reachable(cluster: ClusterAccess, broker: str, topic: Topic) -> bool:
    """Whether a broker answers a query about the topic, even with an error. A slow broker counts as reachable."""
    if broker == cluster.broker_id():
        return True
    try:
        async with asyncio.timeout(ALIVE_WAIT_S):
            await cluster.dial(broker).call(LogEnds(topic.name, topic.uid, revision=0))
    except TimeoutError:
        log.debug("slow probe: broker %s did not answer in time", broker)
    except Unavailable as error:
        log.debug("unreachable: broker %s: %s", broker, error)
        return False
    except SeaweedMQError as error:
        log.debug("reachable: broker %s answered with an error: %s", broker, error)
    return True
