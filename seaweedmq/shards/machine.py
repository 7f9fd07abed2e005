"""Interface of a state machine that a shard runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from seaweedmq.errors import SeaweedMQError

Pair: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record in the log; value None: the key is deleted."""


class Answer(Protocol):
    """A reply to a request."""

    @property
    def token(self) -> int:
        """The token of the request."""


class Outcome(Protocol):
    """The records to append after an event, and the replies to send."""

    @property
    def records(self) -> Sequence[Any]:
        """Records in the order in which they are appended; they may be cut into several frames."""

    @property
    def replies(self) -> Sequence[Answer]:
        """Replies to send once all earlier outcomes and these ``records`` are committed."""

    @property
    def prompt(self) -> Sequence[Answer]:
        """Replies to send at once: they report nothing that must be committed first."""


E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class StateMachine(Protocol[E_contra]):
    """A state that changes by events only. ``now`` is in seconds on a steady clock, ``at_ms`` the wall clock."""

    @property
    def wake_at(self) -> float | None:
        """The time of the next tick, in steady seconds; None: no timer is set."""

    def load(self, record: Any) -> None:
        """Apply a record of the partition."""

    def begin(self, now: float, at_ms: int) -> None:
        """Begin, after everything is loaded."""

    def handle(self, event: E_contra, now: float, at_ms: int) -> Outcome:
        """Handle one event."""

    def snapshot(self) -> Iterable[Any]:
        """Return the records that restore this state; it does not change while they are read."""

    def close(self) -> None:
        """Release the memory of the state."""


M = TypeVar("M", bound=StateMachine[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKind(Generic[M, E]):
    """A kind of state machine: its states, its tick, and the codec of its records."""

    name: str
    """Name of its records in the log of the process."""
    new: Callable[[], M]
    """Creates an empty state."""
    tick: E
    """Event of the time ``wake_at``."""
    encode: Callable[[Any], Pair]
    decode: Callable[[bytes, bytes], Any]
    """Returns the record of a key and a value, or None if the machine ignores it; raises Corrupt if unreadable."""
    nothing: Any
    """A record without effect: its commit proves that everything before it is committed."""
    loading_error: Callable[[str], SeaweedMQError]
    """Makes the error of a request that arrives while the shard loads."""
