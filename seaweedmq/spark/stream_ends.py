"""How far the open segments of a topic can be read: up to what is committed for good, and no further.

Of an open segment its log files may hold more than that. It is not acknowledged, may be taken back when the segment is
sealed, and others come in its place: who had read it could not repeat a batch. No file tells how far the commits are
but a table: logs of an open segment become tables once all that is fsynced of them is committed. So without a broker
the tables are the end; with one, the high watermark that it tells. Sealed segments end where their metadata says.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt, wait_fixed

from seaweedmq.errors import Unavailable
from seaweedmq.model.topic import TopicName

if TYPE_CHECKING:
    from seaweedmq import Client

log = logging.getLogger(__name__)

ASKED_MAX: Final = 20
ASK_PAUSE_S: Final = 0.5
"""A segment that is being moved has no high watermark for a moment."""


class BrokerEnds:
    """Asks brokers how far segments are committed. Connects when it is asked first."""

    def __init__(self, bootstrap: str, topic: TopicName) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._client: Client | None = None
        self._is_away = False

    def high_watermarks(self) -> Mapping[int, int]:
        """Segment -> the first offset that is not committed, of the open ones whose primary answers.

        Raises:
            Unavailable: no broker answers. NotFound: no such topic.
        """
        if self._client is None:
            import seaweedmq

            self._client = seaweedmq.connect(self._bootstrap)
        return {s.segment: s.high_watermark for s in self._client.admin.topic_stats(self._topic)}

    def high_watermarks_if_any(self) -> Mapping[int, int]:
        """The same; none while no broker answers, which is logged once: files tell less, and the query goes on."""
        try:
            found = self.high_watermarks()
        except Unavailable as e:
            if not self._is_away:
                log.warning("reading %s up to where tables reach, until brokers answer: %s", self._topic, e)
            self._is_away = True
            return {}
        self._is_away = False
        return found

    def all_high_watermarks(self, open_segments: Callable[[], Collection[int]]) -> Mapping[int, int]:
        """Those of all segments that are open, once every one of them has answered.

        Raises:
            Unavailable: some have no primary for long.
        """

        def ask() -> Mapping[int, int] | None:
            found = self.high_watermarks()
            return found if all(segment in found for segment in open_segments()) else None

        def refuse(_: RetryCallState) -> Mapping[int, int]:
            raise Unavailable(
                f"nobody knows how far some segments of {self._topic} are committed: try again when they have a primary"
            )

        asking = Retrying(
            retry=retry_if_result(lambda found: found is None),
            stop=stop_after_attempt(ASKED_MAX),
            wait=wait_fixed(ASK_PAUSE_S),
            retry_error_callback=refuse,
        )
        found = asking(ask)
        assert found is not None
        return found

    def close(self) -> None:
        """Disconnect. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
