"""Readiness of a broker: the reasons for which it does not serve at present, each with its cause."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from seaweedmq.coordination.session import Session
from seaweedmq.errors import Unavailable
from seaweedmq.runtime.signal import Signal

log = logging.getLogger(__name__)

START = "start"
"""Cause: the broker does not serve yet."""
STOP = "stop"
"""Cause: the broker is leaving the cluster."""
KAFKA = "kafka"
"""Cause: the listener for Kafka clients has not started yet."""
EXPECTED = (START, KAFKA, STOP)
LEASE = "lease"
"""Cause: the lease is over, or the broker is not registered."""
CHECKS_PER_TTL = 4
"""Checks of the lease per TTL. No timer of the event loop detects that a suspended machine lost its lease."""


class Readiness:
    """The reasons not to serve, set and withdrawn by cause. The broker is ready without any.

    The health service reports the sum. The parts of the broker decide what a cause forbids: a segment with followers
    continues without a lease.
    """

    def __init__(self) -> None:
        self.changed = Signal()
        """Signal of a new, changed or withdrawn reason."""
        self._reasons: dict[str, str] = {}

    @property
    def reasons(self) -> Mapping[str, str]:
        """Reason of each cause, with its remedy."""
        return self._reasons

    @property
    def is_ready(self) -> bool:
        """Whether the broker has no reason not to serve."""
        return not self._reasons

    def reject(self, cause: str, reason: str) -> None:
        """Set the reason of a cause, replacing an earlier one."""
        if self._reasons.get(cause) != reason:
            if cause not in self._reasons:
                is_unexpected = self.is_ready and cause not in EXPECTED
                log.log(logging.WARNING if is_unexpected else logging.INFO, "not serving: %s", reason)
            self._reasons[cause] = reason
            self.changed.fire()

    def allow(self, cause: str) -> None:
        """Withdraw the reason of a cause, if any."""
        if self._reasons.pop(cause, None) is not None:
            if self.is_ready:
                log.info("serving")
            self.changed.fire()

    def check(self, cause: str) -> None:
        """Raise Unavailable with the reason of a cause, if any."""
        if cause in self._reasons:
            raise Unavailable(self._reasons[cause])


async def follow_lease(
    readiness: Readiness, session: Callable[[], Session | None], changed: Signal, why: Callable[[], str]
) -> None:
    """Keep the cause ``lease`` current: the broker is ready while its lease surely lives by its own clock.

    ``changed`` fires when the session is replaced, and ``why`` returns the reason why etcd rejects calls at present.
    """
    while True:
        now = session()
        if now is not None and now.alive():
            readiness.allow(LEASE)
            pause_s = min(now.remaining_s, now.ttl_s / CHECKS_PER_TTL)
        else:
            state = "the broker is not registered" if now is None else "the lease of the broker is over"
            readiness.reject(LEASE, f"{state}: {why() or 'it registers again'}; retry")
            pause_s = None
        others = (changed,) if now is None else (changed, now.changed)
        try:
            async with asyncio.timeout(pause_s):
                await others[0].wait(*others[1:])
        except TimeoutError:
            continue
