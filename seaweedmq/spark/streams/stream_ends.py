"""End offsets of the open segments of a topic, up to which a stream may read: only what is committed.

The log files of an open segment may hold more than that. It is not acknowledged, and may be replaced by other records
when the segment is sealed. A query that had read it could not repeat a batch. Only tables tell the commits of an open
segment: log files become tables once all that is flushed of them is committed. So without a broker the tables are the
end; with one, its high watermark is. Sealed segments end where their metadata says.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from tenacity import Retrying, retry_if_exception_type, wait_fixed

from seaweedmq.client.config import ClientConfig
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.errors import Unavailable
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import when

if TYPE_CHECKING:
    from seaweedmq import Client

log = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
"""Timeout of one query in seconds: a stream that can continue with files waits no longer for unreachable brokers."""
AWAY_S: Final = 15.0
"""Seconds until unreachable brokers are queried again."""
PATIENCE_S: Final = 30.0
"""Retry time in seconds where brokers must answer: a segment that is being moved briefly has no high watermark."""
PAUSE_S: Final = 0.5


class BrokerEnds:
    """The end offsets of open segments, as brokers report them. Connects at the first query."""

    def __init__(
        self,
        bootstrap: str,
        topic: TopicName,
        clock: Callable[[], float] = time.monotonic,  # noqa: TID251 - a Spark process, which nothing simulates
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._clock = clock
        self._client: Client | None = None
        self._away_until_s: float | None = None

    def high_watermarks(self) -> Mapping[int, int]:
        """Return the first uncommitted offset of each open segment whose primary answers."""
        if self._client is None:
            import seaweedmq

            config = ClientConfig(admin_timeout_s=ANSWER_S)
            self._client = seaweedmq.connect(self._bootstrap, config=config)
        return {s.segment: s.high_watermark for s in self._client.admin.topic_stats(self._topic)}

    def high_watermarks_if_any(self) -> Mapping[int, int]:
        """Return the same, or an empty mapping while no broker answers.

        Logs that once: the query continues with files, which show less.
        """
        if self._away_until_s is not None and self._clock() < self._away_until_s:
            return {}
        try:
            found = self.high_watermarks()
        except Unavailable as e:
            if self._away_until_s is None:
                log.warning("brokers unreachable: %s is read up to the end of its tables: %s; retrying", self._topic, e)
            self._away_until_s = self._clock() + AWAY_S
            return {}
        self._away_until_s = None
        return found

    def all_high_watermarks(self, open_segments: Callable[[], Collection[int]]) -> Mapping[int, int]:
        """Return the high watermarks of all open segments, once each of them has answered.

        Unavailable is raised if a segment has no primary for ``PATIENCE_S``, Corrupt if one cannot be recovered.
        """

        def ask() -> Mapping[int, int]:
            found = self.high_watermarks()
            if any(segment not in found for segment in open_segments()):
                self._check_recoverable()
                raise Unavailable(
                    f"end offsets of some segments of {self._topic} are unknown: retry when they have a primary"
                )
            return found

        end_s = self._clock() + PATIENCE_S
        asking = Retrying(
            retry=retry_if_exception_type(Unavailable),
            stop=when(lambda: self._clock() >= end_s),
            wait=wait_fixed(PAUSE_S),
            reraise=True,
        )
        return asking(ask)

    def _check_recoverable(self) -> None:
        """Raise Corrupt, with the file's name, if a segment cannot be recovered: waiting does not help."""
        if self._client is not None:
            for segment in self._client.admin.describe_topic(self._topic).segments:
                check_recoverable(segment)

    def close(self) -> None:
        """Disconnect. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
