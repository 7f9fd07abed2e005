"""How far the open segments of a topic can be read: up to what is committed for good, and no further.

Of an open segment its log files may hold more than that. It is not acknowledged, may be taken back when the segment is
sealed, and others come in its place: who had read it could not repeat a batch. No file tells how far the commits are
but a table: logs of an open segment become tables once all that is fsynced of them is committed. So without a broker
the tables are the end; with one, the high watermark that it tells. Sealed segments end where their metadata says.
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
"""One question: a query that goes on with files waits no longer for brokers that are away."""
AWAY_S: Final = 15.0
"""And asks no sooner again."""
PATIENCE_S: Final = 30.0
"""Where brokers must answer. A segment that is being moved has no high watermark for a moment."""
PAUSE_S: Final = 0.5


class BrokerEnds:
    """Asks brokers how far segments are committed. Connects when it is asked first."""

    def __init__(
        self,
        bootstrap: str,
        topic: TopicName,
        clock: Callable[[], float] = time.monotonic,  # noqa: TID251 - of a process of Spark
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._clock = clock
        self._client: Client | None = None
        self._away_until_s: float | None = None

    def high_watermarks(self) -> Mapping[int, int]:
        """Segment -> the first offset that is not committed, of the open ones whose primary answers.

        Raises:
            Unavailable: no broker answers. NotFound: no such topic.
        """
        if self._client is None:
            import seaweedmq

            config = ClientConfig(admin_timeout_s=ANSWER_S)
            self._client = seaweedmq.connect(self._bootstrap, config=config)
        return {s.segment: s.high_watermark for s in self._client.admin.topic_stats(self._topic)}

    def high_watermarks_if_any(self) -> Mapping[int, int]:
        """The same; none while no broker answers, which is logged once: files tell less, and the query goes on."""
        if self._away_until_s is not None and self._clock() < self._away_until_s:
            return {}
        try:
            found = self.high_watermarks()
        except Unavailable as e:
            if self._away_until_s is None:
                log.warning("reading %s up to where tables reach, until brokers answer: %s", self._topic, e)
            self._away_until_s = self._clock() + AWAY_S
            return {}
        self._away_until_s = None
        return found

    def all_high_watermarks(self, open_segments: Callable[[], Collection[int]]) -> Mapping[int, int]:
        """Those of all segments that are open, once every one of them has answered.

        Raises:
            Unavailable: some have no primary for long, or no broker answers.
            Corrupt: If a segment cannot be recovered; names the file.
        """

        def ask() -> Mapping[int, int]:
            found = self.high_watermarks()
            if any(segment not in found for segment in open_segments()):
                self._check_recoverable()
                raise Unavailable(
                    f"nobody knows how far some segments of {self._topic} are committed: try again when they have a "
                    "primary"
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
