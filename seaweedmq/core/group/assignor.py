"""Assignment of segments to the members of a group: a pure function with ranked goals.

1. Balanced: the members own equal numbers of segments, within one.
2. Sticky: of all balanced assignments, it takes the fewest segments from their owners.
3. Deterministic: the same input gives the same output, in any order.

With ``n`` segments and ``m`` members, a balanced quota is ``n // m``, and one more for ``n % m`` members. An owner
keeps as many segments as its quota allows. The fewest move if the members with the most segments get the larger quotas.
"""

from collections import Counter
from collections.abc import Collection, Mapping


def assign(segments: Collection[int], members: Collection[str], owners: Mapping[int, str]) -> dict[int, str]:
    """Return segment -> member for every segment, keeping the present ``owners`` among them; empty without members."""
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
    # Serve the member with most room first, so that the segments of a new member spread over the topic.
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
