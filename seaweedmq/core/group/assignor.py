"""Which member of a group should own which segment: a pure function with ranked goals.

1. Balanced: members own equally many segments, within one.
2. Sticky: of all balanced assignments, one that takes the fewest segments from their owners.
3. Deterministic: the same input gives the same output, in whatever order it comes.

To be balanced, ``n`` segments over ``m`` members means a quota of ``n // m``, and one more for ``n % m`` of them. An
owner keeps as many as its quota allows, so the fewest move if those who own most get the larger quotas.
"""

from collections import Counter
from collections.abc import Collection, Mapping


def assign(segments: Collection[int], members: Collection[str], owners: Mapping[int, str]) -> dict[int, str]:
    """Segment -> member, for every segment; empty without members.

    ``owners``: who owns what now. Owners that are no members, and segments that are not asked for, count for nothing.
    """
    if not members:
        return {}
    ordered = sorted(set(segments))
    valid = set(members)
    owned = {s: owners[s] for s in ordered if owners.get(s) in valid}
    quotas = _quotas(len(ordered), valid, Counter(owned.values()))
    target: dict[int, str] = {}
    room = dict(quotas)
    for segment, owner in owned.items():
        if room[owner]:
            room[owner] -= 1
            target[segment] = owner
    # Whoever has most room is served first, so that the segments a new member gets are spread over the topic.
    free = iter([s for s in ordered if s not in target])
    while rest := sorted((m for m in room if room[m]), key=lambda m: (-room[m], m)):
        for member in rest:
            target[next(free)] = member
            room[member] -= 1
    return dict(sorted(target.items()))


def _quotas(segments: int, members: Collection[str], counts: Counter[str]) -> dict[str, int]:
    share, larger = divmod(segments, len(members))
    by_count = sorted(members, key=lambda m: (-counts[m], m))
    return {member: share + (position < larger) for position, member in enumerate(by_count)}
