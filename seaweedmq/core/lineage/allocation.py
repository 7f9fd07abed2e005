"""Which brokers get a new segment: the least loaded ones, each replica on another broker, ties broken by the caller."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument

SEGMENT_COST = 0.02
"""What one idle segment counts, in shares of a core: it spreads segments that carry no traffic yet. A bias, not a
measurement; it only has to be above zero and below any real load."""

RATE_COST_BYTES = 500_000_000
"""Bytes a second that fill one core: the publish rate measured for one broker process (see benchmarks/)."""

ROOM_ENDLESS = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A live broker and what it carries. ``cpu_share`` of a core; ``bytes_per_s`` over all its segments."""

    broker: str
    segments: int = 0
    leads: int = 0
    """Number of the segments of which it is the primary."""
    cpu_share: float = 0.0
    bytes_per_s: float = 0.0
    expected: float = 0.0
    """Cost of what it was given so recently that no report shows it."""
    room: int = ROOM_ENDLESS
    """Segments it takes until it is at its limit; 0 or less: it is."""

    @property
    def cost(self) -> float:
        """Load as shares of a core: the larger of what is measured and what the rates imply, and its segments.

        A primary costs more than a follower, so a segment that the broker leads counts twice.
        """
        measured = max(self.cpu_share, self.bytes_per_s / RATE_COST_BYTES)
        return measured + self.expected + SEGMENT_COST * (self.segments + self.leads)


def typical_cost(candidates: Sequence[Candidate]) -> float:
    """What a segment costs that nothing is known about yet: as much as the others, on average."""
    segments = sum(c.segments for c in candidates)
    return max(SEGMENT_COST, sum(c.cost for c in candidates) / segments if segments else 0.0)


def place(
    candidates: Sequence[Candidate],
    *,
    segments: int,
    replicas: int,
    tie: Callable[[], float],
    wish: Sequence[str] = (),
    cost: float = SEGMENT_COST,
) -> list[tuple[str, ...]]:
    """Replicas (the primary first) for each of ``segments`` new segments.

    Each segment goes to the brokers of the ``wish``, as far as they are candidates, and to the cheapest others; what it
    is expected to ``cost`` is added before the next is placed. ``tie`` returns a random number; equal costs are ordered
    by it. Brokers without room come last, wished for or not, and get a segment only if the others do not suffice.
    Without a wish, of the brokers that get a segment the one becomes its primary that leads the fewest of these: with
    as many replicas as brokers, each gets every segment, and the cheapest would lead them all.

    Raises:
        InvalidArgument: more replicas than brokers.
    """
    costs = {c.broker: c.cost for c in candidates}
    if not 1 <= replicas <= len(costs):
        raise InvalidArgument(
            f"{replicas} replicas asked for, but {len(costs)} brokers are live: "
            f"ask for 1 to {max(1, len(costs))}, or add brokers"
        )
    room = {c.broker: c.room for c in candidates}
    led = dict.fromkeys(costs, 0)
    placed: list[tuple[str, ...]] = []
    for left in range(segments, 0, -1):
        # Only if roomy brokers could be missed at the end do they come before cheap ones.
        is_tight = sum(max(0, min(free, left)) for free in room.values()) < left * replicas + len(room)
        need = {broker: -min(free, left) if is_tight else 0 for broker, free in room.items()}
        wished = [broker for broker in wish if room.get(broker, 0) > 0][:replicas]
        others = [broker for broker in costs if broker not in wished]  # no set: ties are drawn in this order
        others.sort(key=lambda broker: (room[broker] <= 0, need[broker], costs[broker], tie()))
        chosen = (*wished, *others[: replicas - len(wished)])
        if not wished:
            chosen = tuple(
                sorted(chosen, key=lambda broker: (room[broker] <= 0, led[broker]))
            )  # stable: then the cheapest
        led[chosen[0]] += 1
        for broker in chosen:
            costs[broker] += cost
            room[broker] -= 1
        placed.append(chosen)
    return placed


def fits(room: Mapping[str, int], *, segments: int, replicas: int) -> bool:
    """Whether so many segments find room, each replica on another broker.

    A broker can hold one replica of each segment, so its room counts up to ``segments``; with that, filling up the
    roomiest brokers first always works out.
    """
    return sum(max(0, min(free, segments)) for free in room.values()) >= segments * replicas


def maintainer(primary: str, live: Sequence[str], weight: Callable[[str], int]) -> str:
    """The one broker that looks after a sealed segment's files: its primary while that lives, else by rendezvous.

    ``weight`` hashes a broker id together with the segment; the highest wins (rendezvous hashing, Thaler and
    Ravishankar 1998), so that every broker decides alike and a change of brokers moves few segments.
    """
    if primary in live:
        return primary
    return max(live, key=lambda broker: (weight(broker), broker))
