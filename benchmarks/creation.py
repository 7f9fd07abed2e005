"""Creating many topics: one call after another, or all by one call where the client has one."""

from collections.abc import Callable, Sequence
from typing import Any

import seaweedmq

Topics = Sequence[dict[str, Any]]
"""The arguments of ``create_topic`` for each."""


def can_create_in_bulk(client: "seaweedmq.Client") -> bool:
    """Whether there is a call that creates many topics."""
    return hasattr(client.admin, "create_topics")


def create_in_bulk(client: "seaweedmq.Client", topics: Topics) -> None:
    """All topics by one call. The only place that knows how it is called."""
    create_topics: Callable[[Topics], object] = getattr(client.admin, "create_topics")  # noqa: B009 - not there yet
    create_topics(topics)


def create_one_after_another(client: "seaweedmq.Client", topics: Topics) -> None:
    """Each topic by a call of its own."""
    for topic in topics:
        client.admin.create_topic(**topic)


def create_quickly(client: "seaweedmq.Client", topics: Topics) -> None:
    """For those who need the topics and do not measure how they come."""
    create = create_in_bulk if can_create_in_bulk(client) else create_one_after_another
    create(client, topics)
