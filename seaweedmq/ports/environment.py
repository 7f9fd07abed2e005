"""The environment of a process: its clocks, randomness and size.

Sleeping and waiting use asyncio, whose clock the simulation replaces; wall time and randomness are passed in.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field


def loop_s() -> float:
    """Return the event loop's clock, which suffices where no machine is ever suspended."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class Environment:
    """The clocks, the randomness and the size of one process. Monotonic time is the event loop's ``time()``."""

    wall_us: Callable[[], int]
    """Wall clock, microseconds since 1970 UTC."""
    rng: random.Random = field(default_factory=random.Random)
    boot_s: Callable[[], float] = loop_s
    """Monotonic seconds that include suspensions of the machine, during which leases end and loops may stop."""
    resident_bytes: Callable[[], int] = lambda: 0
    """Resident memory of the process, bytes."""
    cpu_share: Callable[[], float] = lambda: 0.0
    """Share of one core that the process used since the last call."""
    loop_holds: Callable[[], int] = lambda: 0
    """Number of times that the event loop was held since the start."""
