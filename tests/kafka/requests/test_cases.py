"""Every API has requests to compare, and brokers can read all of them."""

from collections import Counter

from seaweedmq.kafka.wire.messages import API, REQUESTS
from seaweedmq.kafka.wire.versions import ADVERTISED
from tests.kafka.differential.messages import built
from tests.kafka.requests.cases import Case, cases
from tests.kafka.requests.document import README, document
from tests.kafka.requests.good import Place, good
from tests.support.kafka_wire import decode


def requests(api: API, version: int) -> list[Case]:
    return list(cases(api, version, Place("p-", 1_700_000_000_000, 1)))


def test_every_api_has_a_good_request() -> None:
    assert good(Place("p-", 1_700_000_000_000, 1)).keys() == ADVERTISED.keys()


def test_every_request_is_read_as_it_was_made() -> None:
    for api, versions in ADVERTISED.items():
        for version in {versions.lowest, versions.highest}:
            made = requests(api, version)
            assert any(case.title == "good" for case in made), (api, version)
            titles = Counter(case.title for case in made)
            assert set(titles.values()) == {1}, [title for title, count in titles.items() if count > 1]
            for case in made:
                message = built(api, version, case.fields)
                sent = bytes(message.encode(version=version))
                assert bytes(decode(REQUESTS[api], version, memoryview(sent)).encode(version=version)) == sent, case


def test_the_readme_lists_what_is_meant() -> None:
    text = README.read_text()
    assert text == document(text), "run python -m tests.kafka.requests.document"
