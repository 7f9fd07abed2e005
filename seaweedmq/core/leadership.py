"""The campaign for the leader lock, as a pure state machine: events and time go in, the next action comes out.

The lock is one key under the broker's lease, created if absent. Exactly one action is in progress at any time:

| action | event | result |
|---|---|---|
| ask | held by this broker | lead with its revision; watch it |
| ask | held by another | do not lead; watch it |
| ask | free (deleted between creating and reading) | ask |
| ask, watch | etcd did not answer | pause; a leader continues as long as its session lives |
| watch | free | do not lead; ask |
| watch, pause | ``until`` has passed | ask |
| any | session over | do not lead; stop permanently |

A leader also watches its own lock, so it notices a deletion by another process. ``until`` of a watch is 2.5 x TTL away:
by then the campaign detects any change that a watch missed.
"""

from dataclasses import dataclass
from typing import TypeAlias

WATCH_TTLS = 2.5
"""Lease TTLs after which the lock is read again in any case."""


@dataclass(frozen=True, slots=True)
class LockHeld:
    """The lock is held by this broker since ``revision``, its creation revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class LockHeldByOther:
    """The lock is held by another broker; it was last changed at ``revision``."""

    revision: int


@dataclass(frozen=True, slots=True)
class LockFree:
    """The lock does not exist."""


@dataclass(frozen=True, slots=True)
class StoreUnavailable:
    """etcd did not answer, or the watch broke.

    ``pause_s`` is the length of the pause, drawn by the caller.
    """

    pause_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """The time ``until`` of the last action."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of the session."""


Event: TypeAlias = LockHeld | LockHeldByOther | LockFree | StoreUnavailable | Tick | Ended


@dataclass(frozen=True, slots=True)
class Ask:
    """Create the lock if it is absent, otherwise read its holder.

    It ends with LockHeld, LockHeldByOther, LockFree or StoreUnavailable.
    """


@dataclass(frozen=True, slots=True)
class Watch:
    """Wait for a change of the lock after ``revision``, up to ``until``.

    It ends with LockFree, StoreUnavailable or Tick.
    """

    revision: int
    until: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing up to ``until``; it ends with Tick."""

    until: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Do nothing permanently."""


Action: TypeAlias = Ask | Watch | Pause | Stop


class Campaign:
    """One broker's campaign during one session.

    ``action`` is in progress; its outcome goes into :meth:`handle`.
    """

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self.action: Action = Ask()
        self.revision: int | None = None
        """Creation revision of the lock that this broker holds; None: it holds none as far as it knows."""

    def handle(self, event: Event, now: float) -> Action:
        """Handle the outcome of the current action and return the next one.

        ``now`` is in seconds on any steady clock.

        Raises:
            AssertionError: If the event cannot end the current action: a fault in the caller.
        """
        match self.action, event:
            case _, Ended():
                self.revision = None
                self.action = Stop()
            case Ask(), LockHeld(revision):
                self.revision = revision
                self.action = self._watch(revision, now)
            case Ask(), LockHeldByOther(revision):
                self.revision = None
                self.action = self._watch(revision, now)
            case Ask() | Watch(), LockFree():
                self.revision = None
                self.action = Ask()
            case Ask() | Watch(), StoreUnavailable(pause_s):
                self.action = Pause(now + pause_s)
            case Watch() | Pause(), Tick():
                self.action = Ask()
            case action, _:
                raise AssertionError(f"{event} cannot end {action}")
        return self.action

    def _watch(self, revision: int, now: float) -> Watch:
        return Watch(revision, now + WATCH_TTLS * self._ttl_s)
