"""The methods of a client that open publishers and subscribers: one signature and one docstring for both APIs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar, overload

from seaweedmq.client.group.options import MAX_UNACKED
from seaweedmq.client.start import StartAt
from seaweedmq.client.subscribe.options import OnMissing
from seaweedmq.model.topic import TopicName

P = TypeVar("P")
S = TypeVar("S")
G = TypeVar("G")


class Opener(ABC, Generic[P, S, G]):
    """A client that opens publishers ``P``, subscribers ``S``, and members of groups ``G``."""

    @abstractmethod
    def _publisher(self, topic: str | TopicName, options: dict[str, Any]) -> P: ...

    @abstractmethod
    def _subscriber(self, topic: str | TopicName, group: str | None, options: dict[str, Any]) -> S | G: ...

    def publisher(
        self,
        topic: str | TopicName,
        *,
        linger_s: float | None = None,
        batch_bytes: int | None = None,
        buffer_bytes_max: int | None = None,
        delivery_timeout_s: float | None = None,
        reference_threshold: int | None = None,
    ) -> P:
        """Open a publisher to one topic. In asyncio, ``await`` or ``async with`` opens it.

        The options are those of :class:`ClientConfig`. Default: the client's values.

        Raises:
            NotFound: If the topic does not exist.
            InvalidArgument: If the name or an option is invalid.
        """
        given = {
            "linger_s": linger_s,
            "batch_bytes": batch_bytes,
            "buffer_bytes_max": buffer_bytes_max,
            "delivery_timeout_s": delivery_timeout_s,
            "reference_threshold": reference_threshold,
        }
        return self._publisher(topic, {name: value for name, value in given.items() if value is not None})

    @overload
    def subscriber(
        self,
        topic: str | TopicName,
        *,
        group: None = None,
        start: StartAt = "latest",
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> S: ...

    @overload
    def subscriber(
        self,
        topic: str | TopicName,
        *,
        group: str,
        start: StartAt = "latest",
        member: str | None = None,
        auto_ack: bool = False,
        max_deliveries: int | None = None,
        dead_letter: str | TopicName | None = None,
        max_unacked: int = MAX_UNACKED,
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> G: ...

    @overload
    def subscriber(
        self,
        topic: str | TopicName,
        *,
        group: str | None,
        start: StartAt = "latest",
        limit: int | None = None,
        stop_at: Literal["latest"] | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
        on_missing: OnMissing = "fail",
    ) -> S | G: ...

    def subscriber(self, topic: str | TopicName, *, group: str | None = None, **options: Any) -> S | G:
        """Open a subscriber to one topic. In asyncio, ``await`` or ``async with`` opens it.

        Args:
            topic: The topic, ``namespace/name``.
            group: The group to join, 1 to 100 of ``A-Z a-z 0-9 . _ -``, beginning with a letter or digit. It divides
                the segments among its members and stores acknowledged offsets. A new group begins at ``start``, a
                known one at its committed offsets. Without a group the subscriber reads the whole topic itself.
            **options: The options below.

        Options of every subscriber:

        - ``start``: ``"earliest"`` reads all records that retention has not removed, ``"latest"`` (the default) those
          committed from now on. An int reads every record at or above that offset, in every segment. A datetime with a
          time zone reads, in every segment, the first record with at least that timestamp and all that follow it.
        - ``limit``: The number of records after which iteration ends. Default: unlimited.
        - ``stop_at``: ``"latest"`` ends iteration when all records committed at the time of opening were delivered;
          with a group, when its members have acknowledged them.
        - ``timeout``: The time without records after which iteration ends, in seconds. Default: unlimited.
        - ``columns``: The columns of the batches. Default: all.
        - ``on_missing``: ``"fail"`` (the default) raises ``DataLoss`` where records are lost, which neither retention
          nor a low watermark removed. ``"skip"`` continues after them, with a warning and an entry in ``skipped``.

        Options with a group:

        - ``member``: The member's name, with the rule for ``group``. Default: a random name. A later member of the same
          name fences the earlier one.
        - ``auto_ack``: Whether the request for the next records acknowledges the previous ones. Default: False.
        - ``max_deliveries``: The number of deliveries after which a record goes to ``dead_letter``. Default: unlimited.
        - ``dead_letter``: The dead-letter topic, which is created if it does not exist. Default:
          ``<topic>.<group>.dead-letter``. Headers ``dead-letter-...`` name the source.
        - ``max_unacked``: The limit of unacknowledged records, above which delivery waits. Default: 100,000.

        Raises:
            NotFound: If the topic does not exist.
            InvalidArgument: If a name or an option is invalid, or an option needs a group.
            TypeError: If an option does not exist.
            Unavailable: If no broker answers within ``admin_timeout_s``.
            ResourceExhausted: If ``groups_max``, ``group_members_max`` or the leader's memory for groups is reached.
        """
        return self._subscriber(topic, group, options)


for _method in (Opener.publisher, Opener.subscriber):
    _method.__qualname__ = f"Client.{_method.__name__}"  # Python's own errors name it.
