"""Converters of messages follow the fields of values; test_methods has the values themselves."""

from dataclasses import dataclass

import pytest

from seaweedmq.rpc.messages.converter import converter_of
from seaweedmq.rpc.v1 import types_pb2


@dataclass(frozen=True)
class Range:
    lo: int
    hi: int = 7


@dataclass(frozen=True)
class Half:
    lo: int


@dataclass(frozen=True)
class Wide:
    lo: int
    hi: int
    step: int


@dataclass(frozen=True)
class Named:
    range: Range


def test_a_value_without_a_field_of_its_own_lies_in_the_message_itself() -> None:
    converter = converter_of(Named, types_pb2.KeyRange)
    message = types_pb2.KeyRange(lo=1, hi=2)
    assert converter.write(Named(Range(1, 2))) == message
    assert converter.read(message) == Named(Range(1, 2))


def test_a_zero_that_may_be_absent_is_read_as_the_default() -> None:
    assert converter_of(Range, types_pb2.KeyRange).read(types_pb2.KeyRange(lo=0)) == Range(0, 7)


def test_a_field_on_one_side_alone_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"KeyRange has fields without a value: \['hi'\]"):
        converter_of(Half, types_pb2.KeyRange)
    with pytest.raises(TypeError, match=r"KeyRange has no field for Wide\.step"):
        converter_of(Wide, types_pb2.KeyRange)
    assert converter_of(Wide, types_pb2.KeyRange, given=("step",)).read(types_pb2.KeyRange(hi=3), 1) == Wide(0, 3, 1)
