"""Report of the differences: the unexpected ones with the versions that have them, then those that are meant."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from seaweedmq.kafka.wire.messages import API
from seaweedmq.kafka.wire.versions import name_of
from tests.kafka.differential.comparison import Difference, Rule, differences
from tests.kafka.differential.play import Answers
from tests.kafka.requests.meant import MEANT

Replies = Mapping[tuple[API, int], Answers]


def found(kafka: Replies, ours: Replies) -> dict[Difference, list[int]]:
    """Return each difference once, with its versions."""
    versions: dict[str, tuple[Difference, list[int]]] = {}
    for (api, version), answers in kafka.items():
        for difference in differences(name_of(api), answers, ours[api, version]):
            same = versions.setdefault(str(difference), (difference, []))
            same[1].append(version)
    return {replace(one, kafka=str(one.kafka), ours=str(one.ours)): spans for one, spans in versions.values()}


def lines(differences_found: Mapping[Difference, Sequence[int]]) -> Iterator[str]:
    strange = [one for one in differences_found if not any(rule.allows(one) for rule in MEANT)]
    yield f"{len(differences_found)} differences, of which {len(strange)} are not meant:"
    for one in strange:
        yield f"{_spans(differences_found[one])} {one}"
    yield ""
    yield "meant:"
    for rule in MEANT:
        count = sum(1 for one in differences_found if rule.allows(one))
        yield f"{count:5} {rule.scene}: {rule.where}: {rule.why}"


def is_as_meant(differences_found: Iterable[Difference], rules: Sequence[Rule] = MEANT) -> bool:
    return all(any(rule.allows(one) for rule in rules) for one in differences_found)


def _spans(versions: Sequence[int]) -> str:
    """``[0-3, 5]``."""
    parts: list[list[int]] = []
    for version in sorted(versions):
        if parts and parts[-1][-1] == version - 1:
            parts[-1].append(version)
        else:
            parts.append([version])
    return f"[{', '.join(str(p[0]) if len(p) == 1 else f'{p[0]}-{p[-1]}' for p in parts)}]"
