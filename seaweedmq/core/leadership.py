"""The campaign for the leader lock, as a pure state machine: events and time go in, the next thing to do comes out.

The lock is one key under the broker's lease, made if absent. At any time exactly one thing is under way:

| doing | event | then |
|---|---|---|
| ask | it is ours | lead with its revision; watch it |
| ask | another's | do not lead; watch it |
| ask | it is free (gone between asking and looking) | ask |
| ask, watch | etcd did not answer | pause; who led goes on, as long as the session lives |
| watch | it is free | do not lead; ask |
| watch, pause | ``until`` has passed | ask |
| any | session over | do not lead; stop for good |

A leader watches its own lock too, so it notices when someone else deletes it. ``until`` while watching is 2.5 x TTL
away: whatever a watch may miss is found out by then.
"""

from dataclasses import dataclass
from typing import TypeAlias

WATCH_TTLS = 2.5
"""Lease TTLs after which the lock is looked at again in any case."""


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
    """etcd did not answer, or the watch broke. ``pause_s`` is how long to wait, drawn by the caller."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """``until`` of the last action has come."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The session is over."""


Event: TypeAlias = LockHeld | LockHeldByOther | LockFree | StoreUnavailable | Tick | Ended


@dataclass(frozen=True, slots=True)
class Ask:
    """Make the lock if it is absent, else look whose it is. Ends with Ours, Anothers, Free or Unanswered."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Wait for the lock to change after ``revision``, up to ``until``. Ends with Free, Unanswered or TimePassed."""

    revision: int
    until: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing up to ``until``. Ends with TimePassed."""

    until: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is to be done, ever."""


Action: TypeAlias = Ask | Watch | Pause | Stop


class Campaign:
    """One broker's campaign during one session. ``action`` is under way; its outcome goes into :meth:`handle`."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self.action: Action = Ask()
        self.revision: int | None = None
        """Creation revision of our lock, while we hold it as far as we know."""

    def handle(self, event: Event, now: float) -> Action:
        """Take the outcome of the action under way; return the next. ``now`` is in seconds on any steady clock.

        Raises:
            AssertionError: the event can not end the action under way: a fault in the caller.
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
                raise AssertionError(f"{event} can not end {action}")
        return self.action

    def _watch(self, revision: int, now: float) -> Watch:
        return Watch(revision, now + WATCH_TTLS * self._ttl_s)
