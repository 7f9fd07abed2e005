"""Synchronous administration."""

from seaweedmq.client.admin import admin as aio
from seaweedmq.client.blocking.background import Background
from seaweedmq.client.blocking.derive import blocking


class Admin:
    """Administration of a cluster, through any broker.

    Every method raises ``Unavailable`` if no broker answers within ``admin_timeout_s``, and those for a topic, segment
    or group ``NotFound`` if it does not exist. Topics are named ``namespace/name``; their changes return all segments.
    """

    def __init__(self, core: aio.Admin, background: Background) -> None:
        self._core = core
        self._background = background

    create_topic = blocking(aio.Admin.create_topic)
    create_topics = blocking(aio.Admin.create_topics)
    alter_topic = blocking(aio.Admin.alter_topic)
    delete_topic = blocking(aio.Admin.delete_topic)
    delete_records = blocking(aio.Admin.delete_records)
    list_topics = blocking(aio.Admin.list_topics)
    describe_topic = blocking(aio.Admin.describe_topic)
    topic_stats = blocking(aio.Admin.topic_stats)
    cluster_status = blocking(aio.Admin.cluster_status)
    drain = blocking(aio.Admin.drain)
    split_segment = blocking(aio.Admin.split_segment)
    merge_segments = blocking(aio.Admin.merge_segments)
    seal_segment = blocking(aio.Admin.seal_segment)
    move_segment = blocking(aio.Admin.move_segment)
    rebalance = blocking(aio.Admin.rebalance)
    list_groups = blocking(aio.Admin.list_groups)
    describe_group = blocking(aio.Admin.describe_group)
    group_lag_seconds = blocking(aio.Admin.group_lag_seconds)
    reset_group = blocking(aio.Admin.reset_group)
    delete_group = blocking(aio.Admin.delete_group)
    list_kafka_groups = blocking(aio.Admin.list_kafka_groups)
    describe_kafka_group = blocking(aio.Admin.describe_kafka_group)
    reset_kafka_group = blocking(aio.Admin.reset_kafka_group)
    delete_kafka_group = blocking(aio.Admin.delete_kafka_group)
