"""The report names each difference once, with its versions, and keeps those that are meant apart."""

import pytest

from seaweedmq.kafka.wire.messages import API
from tests.kafka.differential.comparison import Rule
from tests.kafka.requests import report
from tests.kafka.requests.report import found, is_as_meant, lines

KAFKA = {
    (API.METADATA, version): {"good": {"code": 0}, "topics=[]": {"code": 3}, "topics=None": {"code": version}}
    for version in range(3)
}
OURS = {
    (API.METADATA, version): {"good": {"code": 0}, "topics=[]": {"code": 5}, "topics=None": {"code": min(version, 1)}}
    for version in range(3)
}


def test_differences_are_told_with_their_versions_and_what_is_meant_by_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = Rule("Metadata", "topics=None: *", "one says less")
    monkeypatch.setattr(report, "MEANT", (rule,))
    differences = found(KAFKA, OURS)
    assert list(lines(differences)) == [
        "2 differences, of which 1 are not meant:",
        "[0-2] Metadata: topics=[]: code: Kafka 3, SeaweedMQ 5",
        "",
        "meant:",
        "    1 Metadata: topics=None: *: one says less",
    ]
    assert not is_as_meant(differences, (rule,))
    assert is_as_meant(differences, (rule, Rule("*", "topics=[[]]: code", "another code")))
    assert is_as_meant(found(KAFKA, KAFKA), ())
