"""The campaign for the leader lock, as a pure state machine: events and time go in, the next action comes out.

The lock is one key under the broker's lease, created if absent. At any time exactly one action is running:

| action | event | then |
|---|---|---|
| ask | this broker holds the lock | lead with its revision; watch it |
| ask | another broker holds the lock | do not lead; watch it |
| ask | the lock is free (deleted between the two requests) | ask |
| ask, watch | etcd did not answer | pause; a leader continues to lead while the session lives |
| watch | the lock is free | do not lead; ask |
| watch, pause | ``until`` has passed | ask |
| any | the session ended | do not lead; stop |

A leader also watches its own lock, so that it notices if another process deletes it. ``until`` of a watch is 2.5 x TTL
away, which bounds the delay of an event that the watch misses.
"""

from dataclasses import dataclass
from typing import TypeAlias

WATCH_TTLS = 2.5
"""Lease TTLs after which the lock is read again in any case."""


@dataclass(frozen=True, slots=True)
class LockHeld:
    """An event: this broker holds the lock since ``revision``, its creation revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class LockHeldByOther:
    """An event: another broker holds the lock, which was last changed at ``revision``."""

    revision: int


@dataclass(frozen=True, slots=True)
class LockFree:
    """An event: the lock does not exist."""


@dataclass(frozen=True, slots=True)
class StoreUnavailable:
    """An event: etcd did not answer, or the watch broke. The caller drew the pause ``pause_s``."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """An event: ``until`` of the last action has passed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An event: the session ended."""


Event: TypeAlias = LockHeld | LockHeldByOther | LockFree | StoreUnavailable | Tick | Ended


@dataclass(frozen=True, slots=True)
class Ask:
    """An action: create the lock if it is absent, else read its owner.

    Ends with LockHeld, LockHeldByOther, LockFree or StoreUnavailable.
    """


@dataclass(frozen=True, slots=True)
class Watch:
    """An action: wait for a change of the lock after ``revision``: LockFree, StoreUnavailable, or Tick at ``until``."""

    revision: int
    until: float


@dataclass(frozen=True, slots=True)
class Pause:
    """An action: do nothing up to ``until``. Ends with Tick."""

    until: float


@dataclass(frozen=True, slots=True)
class Stop:
    """An action: end the campaign."""


Action: TypeAlias = Ask | Watch | Pause | Stop


class Campaign:
    """The campaign of one broker during one session. ``action`` is running; its outcome goes into :meth:`handle`."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self.action: Action = Ask()
        self.revision: int | None = None
        """Creation revision of this broker's lock, None unless the broker holds it as far as it knows."""

    def handle(self, event: Event, now: float) -> Action:
        """Process the outcome of the running action and return the next one; ``now`` is in seconds on any steady clock.

        An event that cannot end the running action is a fault of the caller (AssertionError).
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
