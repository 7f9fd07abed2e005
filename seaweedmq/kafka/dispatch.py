"""What of a connection's requests waits for what. The order of replies is that of the requests in any case."""

from enum import Enum

from seaweedmq.kafka.wire.messages import API


class Lane(Enum):
    """How the requests of an API are handled on one connection."""

    IN_ORDER = "in order"
    """Produce: a request's appends are done before the next one's begin, its wait for the commit is not waited for. The
    handler returns, once the appends are done, an awaitable of the reply:
    ``async def produce(request) -> Awaitable[Reply]``."""
    CONTROL = "control"
    """One after another."""
    ASIDE = "aside"
    """What may wait for long: begun at once, and no other request waits for it."""


_LANES = {
    API.PRODUCE: Lane.IN_ORDER,
    API.FETCH: Lane.ASIDE,
    API.JOIN_GROUP: Lane.ASIDE,
    API.SYNC_GROUP: Lane.ASIDE,
}


def lane_of(api: int) -> Lane:
    """The lane of an API, by its key."""
    return _LANES.get(API(api), Lane.CONTROL)
