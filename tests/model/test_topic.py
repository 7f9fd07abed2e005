"""Names that topics may have."""

import pytest

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName, check_name


@pytest.mark.parametrize("name", ["a", "0", "_schemas", "__consumer_offsets", "-x", "A.b_c-9", "x" * 249])
def test_a_topic_may_have_any_name_that_kafka_allows(name: str) -> None:
    assert str(TopicName.parse(f"kafka/{name}")) == f"kafka/{name}"


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a b", "ä", "a\n", "x" * 250])
def test_other_names_are_refused_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"use 1 to 249 of A-Z a-z 0-9 \. _ - and do not begin with a dot"):
        TopicName("kafka", name)


@pytest.mark.parametrize("name", ["", "_x", "-x", ".x", "x" * 101])
def test_namespaces_and_groups_begin_with_a_letter_or_digit(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"use 1 to 100 of A-Z a-z 0-9 \. _ - and begin with a letter or digit"):
        TopicName(name, "orders")
    with pytest.raises(InvalidArgument, match="begin with a letter or digit"):
        check_name("group", name)
