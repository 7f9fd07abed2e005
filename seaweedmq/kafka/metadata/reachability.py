"""Whether another broker answers, asked when a client is about to be sent there.

Kafka's clients ask who leads as soon as a connection breaks, before the metadata can say so, and whom they are told
then they try for a while: librdkafka for a second. The lease of who died ends later still.
"""

import asyncio
import logging
from typing import Final

from seaweedmq.broker.local import LocalBroker
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.calls import LogEnds
from seaweedmq.model.topic import Topic

log = logging.getLogger(__name__)

ALIVE_WAIT_S: Final = 0.2
"""How long a broker may take to show that it lives before clients are sent there anyway."""


async def is_reachable(here: LocalBroker, broker: str, topic: Topic) -> bool:
    """Whether a broker answers a question about the topic, whatever it says. One that is slow counts as if it did."""
    if broker == here.id:
        return True
    try:
        async with asyncio.timeout(ALIVE_WAIT_S):
            await here.dial(broker).call(LogEnds(topic.name, topic.uid, revision=0))
    except TimeoutError:
        log.debug("broker %s is slow to answer", broker)
    except Unavailable as error:
        log.debug("broker %s is lost: %s", broker, error)
        return False
    except SeaweedMQError as error:
        log.debug("broker %s answers: %s", broker, error)
    return True
