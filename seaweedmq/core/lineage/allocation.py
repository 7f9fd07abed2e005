"""Placement of new segments on the least loaded brokers, each replica on another broker.

The caller breaks ties.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument

SEGMENT_COST = 0.02
"""Cost of one idle segment, in shares of a core. It spreads segments that carry no traffic yet. It is a bias, not a
measurement, and only has to be above zero and below any real load."""

RATE_COST_BYTES = 500_000_000
"""Bytes per second that fill one core: the publish rate measured for one broker process (see benchmarks/)."""

ROOM_ENDLESS = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A live broker and its load: ``cpu_share`` in shares of a core, ``bytes_per_s`` over all its segments."""

    broker: str
    segments: int = 0
    leads: int = 0
    """Number of the segments that the broker is the primary of."""
    cpu_share: float = 0.0
    bytes_per_s: float = 0.0
    expected: float = 0.0
    """Cost of recently placed segments that no load report covers yet."""
    room: int = ROOM_ENDLESS
    """Number of segments below the broker's limit; 0 or less means that it is at its limit."""

    @property
    def cost(self) -> float:
        """Load as shares of a core: the larger of measured load and load implied by the rates, plus its segments.

        A primary costs more than a follower, so a segment that the broker leads counts twice.
        """
        measured = max(self.cpu_share, self.bytes_per_s / RATE_COST_BYTES)
        return measured + self.expected + SEGMENT_COST * (self.segments + self.leads)


def typical_cost(candidates: Sequence[Candidate]) -> float:
    """Return the expected cost of a segment without a load report: the average of the others."""
    segments = sum(c.segments for c in candidates)
    return max(SEGMENT_COST, sum(c.cost for c in candidates) / segments if segments else 0.0)


def place(
    candidates: Sequence[Candidate],
    *,
    segments: int,
    replicas: int,
    tie: Callable[[], float],
    preferred: Sequence[str] = (),
    cost: float = SEGMENT_COST,
) -> list[tuple[str, ...]]:
    """Choose the replicas (the primary first) of each of ``segments`` new segments.

    Each segment goes to the ``preferred`` brokers (the primary first) that are candidates, and to the cheapest others.
    Its expected cost is added before the next one is placed; ``tie`` returns a random number, which orders brokers of
    equal cost. Brokers without room come last, preferred or not, and get a segment only if the others do not suffice.
    Without preferred brokers, the primary is the chosen broker that leads the fewest of these segments. With as many
    replicas as brokers, each broker gets every segment, and the cheapest one would lead them all. Raises
    InvalidArgument if there are fewer brokers than replicas.
    """
    costs = {c.broker: c.cost for c in candidates}
    if not 1 <= replicas <= len(costs):
        raise InvalidArgument(
            f"{replicas} replicas requested, but {len(costs)} brokers are live: "
            f"request 1 to {max(1, len(costs))}, or add brokers"
        )
    room = {c.broker: c.room for c in candidates}
    led = dict.fromkeys(costs, 0)
    placed: list[tuple[str, ...]] = []
    for left in range(segments, 0, -1):
        # Brokers with much room come before cheap ones only if the end could run out of brokers with room.
        is_tight = sum(max(0, min(free, left)) for free in room.values()) < left * replicas + len(room)
        need = {broker: -min(free, left) if is_tight else 0 for broker, free in room.items()}
        granted = [broker for broker in preferred if room.get(broker, 0) > 0][:replicas]
        others = [broker for broker in costs if broker not in granted]  # a list: ties are drawn in this order
        others.sort(key=lambda broker: (room[broker] <= 0, need[broker], costs[broker], tie()))
        chosen = (*granted, *others[: replicas - len(granted)])
        if not granted:
            chosen = tuple(
                sorted(chosen, key=lambda broker: (room[broker] <= 0, led[broker]))
            )  # stable: the cheapest first among equals
        led[chosen[0]] += 1
        for broker in chosen:
            costs[broker] += cost
            room[broker] -= 1
        placed.append(chosen)
    return placed


def fits(room: Mapping[str, int], *, segments: int, replicas: int) -> bool:
    """Whether ``segments`` segments find room, each replica on another broker.

    A broker can hold one replica of each segment, so its room counts up to ``segments``. Under this condition, filling
    the brokers with the most room first always succeeds.
    """
    return sum(max(0, min(free, segments)) for free in room.values()) >= segments * replicas


def maintainer(primary: str, live: Sequence[str], weight: Callable[[str], int]) -> str:
    """Return the one broker that maintains a sealed segment's files: its live primary, else the one with most weight.

    ``weight`` hashes a broker id together with the segment (rendezvous hashing, Thaler and Ravishankar 1998). So every
    broker decides alike, and a change of brokers moves few segments.
    """
    if primary in live:
        return primary
    return max(live, key=lambda broker: (weight(broker), broker))
