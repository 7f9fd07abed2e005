"""The list of differences that people read is that of the tests."""

from tests.kafka.differential.deliberate import DOCUMENT, document


def test_the_document_is_the_list() -> None:
    assert DOCUMENT.read_text() == document(), "run python -m tests.kafka.differential document"
