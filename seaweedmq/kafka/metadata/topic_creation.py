"""Creation of the topics that Kafka clients request before they exist."""

import asyncio
import logging
from collections.abc import Iterable

from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.kafka.creation_quota import MINUTE_S, CreationQuota
from seaweedmq.errors import AlreadyExists, InvalidArgument, SeaweedMQError, unraised
from seaweedmq.kafka.admin.changes import TopicChanges
from seaweedmq.kafka.metadata.topic_directory import TopicDirectory
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.messages import Request
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.group_admin import INTERNAL_TOPICS
from seaweedmq.model.topic import TopicName, TopicSpec

log = logging.getLogger(__name__)

CREATED_WITHIN_S = 15.0
REPLICAS_DEFAULT_MAX = 3
REPORTED_MAX = 1_000
"""Maximum number of logged failures to remember, so that each is logged once."""


def staying_brokers(view: ClusterView) -> int:
    """Return the number of brokers that may get segments: all that are not draining."""
    return sum(not broker.draining for broker in view.brokers.values())


def default_replicas(view: ClusterView) -> int:
    """Return the number of replicas of a topic whose creator names none."""
    return max(1, min(REPLICAS_DEFAULT_MAX, staying_brokers(view)))


class TopicCreator:
    """The creator of missing topics, within a quota for each host of clients."""

    def __init__(self, directory: TopicDirectory, changes: TopicChanges, config: BrokerConfig) -> None:
        self._directory = directory
        self._changes = changes
        self._config = config
        self._quota = CreationQuota(config.kafka_auto_create_per_minute_max)
        self._throttled: dict[str, float] = {}
        """Hosts of clients whose quota is used up, and the time at which that was logged."""
        self._reported: dict[TopicName, str] = {}
        """Topics that could not be created, with the logged reason."""

    async def create_missing(self, names: Iterable[str], request: Request) -> dict[str, SeaweedMQError]:
        """Create the missing topics; return the errors of those that could not be created."""
        if not self._config.kafka_auto_create:
            return {}
        failures: dict[str, SeaweedMQError] = {}
        specs = []
        for name in names:
            spec = self._missing(name, failures)
            if spec is not None:
                specs.append(spec)
            await request.turn.pause()
        specs = self._within_quota(specs, request)
        if not specs:
            return failures
        outcomes = await self._changes.create(specs, CREATED_WITHIN_S, request.context)
        failed = sum(isinstance(outcome, SeaweedMQError) for outcome in outcomes)
        if failed:  # else retries during an outage would use up the quota
            self._quota.give_back(request.client_host, failed)
        for spec, outcome in zip(specs, outcomes, strict=True):
            if isinstance(outcome, AlreadyExists):  # another broker created it first
                try:
                    await self._changes.known(spec.name, CREATED_WITHIN_S)
                except SeaweedMQError as error:
                    failures[spec.name.name] = unraised(error)
            elif isinstance(outcome, InvalidArgument):
                # Clients raise this code at once, and retry for a minute after any other code of a violated rule. The
                # reply has no field for the reason.
                self._report(spec.name, outcome)
                failures[spec.name.name] = KafkaError(Code.INVALID_TOPIC_EXCEPTION, str(outcome))
            elif isinstance(outcome, SeaweedMQError):
                failures[spec.name.name] = outcome
        return failures

    def _within_quota(self, specs: list[TopicSpec], request: Request) -> list[TopicSpec]:
        """Return the topics that the quota of the client's host lets it create now.

        The reply shows the others as unknown, as Apache Kafka does while it creates a topic: clients retry.
        """
        now = asyncio.get_running_loop().time()
        granted = self._quota.take(request.client_host, len(specs), now)
        if granted < len(specs) and now - self._throttled.get(request.client_host, -MINUTE_S) >= MINUTE_S:
            if len(self._throttled) >= REPORTED_MAX:
                self._throttled.clear()
            self._throttled[request.client_host] = now
            log.warning(
                "topics not created yet for the Kafka client %s (%s): %d of %d, the first %s: "
                "kafka_auto_create_per_minute_max is %d: create them with CreateTopics, or raise it",
                request.context.peer,
                request.context.client_id,
                len(specs) - granted,
                len(specs),
                specs[granted].name,
                self._config.kafka_auto_create_per_minute_max,
            )
        return specs[:granted]

    def _report(self, name: TopicName, reason: InvalidArgument) -> None:
        """Log once why a topic cannot be created: clients retry without end."""
        if len(self._reported) >= REPORTED_MAX:
            self._reported.clear()
        if self._reported.get(name) != str(reason):
            self._reported[name] = str(reason)
            log.warning("topic not created for a Kafka client: %s: %s", name, reason)

    def _missing(self, name: str, failures: dict[str, SeaweedMQError]) -> TopicSpec | None:
        """Return the topic to create for a name; None if it is taken, an internal topic's, or impossible.

        The error of the last is added to ``failures``.
        """
        if name in INTERNAL_TOPICS:
            return None
        try:
            topic = self._directory.new_name(name)
        except KafkaError as refusal:
            failures[name] = unraised(refusal)
            return None
        if topic in self._directory.view.topics:
            return None
        replicas = default_replicas(self._directory.view)
        return TopicSpec(name=topic, partitions=self._config.kafka_partitions_default, replicas=replicas)
