"""Hypothesis strategies of any value that the protocol carries, derived from the types of its fields."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from seaweedmq.model.description import SegmentSelection, TopicDescription
from seaweedmq.model.messages.calls import AwaitTopics
from seaweedmq.model.messages.frames import FrameHead, Frames
from seaweedmq.model.messages.replication import SealedLog
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.model.topic_settings import Configs, configs_of
from seaweedmq.rpc.messages.converter import ALIASES
from seaweedmq.rpc.v1 import admin_pb2, cluster_pb2, data_pb2, groups_pb2, types_pb2

U32, U64, I64 = (0, 2**32 - 1), (0, 2**64 - 1), (-(2**63), 2**63 - 1)
BOUNDS = {FieldDescriptor.TYPE_UINT32: U32, FieldDescriptor.TYPE_UINT64: U64, FieldDescriptor.TYPE_INT64: I64}
PAYLOADS = st.one_of(st.binary(max_size=300), st.sampled_from([127, 128, 16_383, 16_384, 2_097_152]).map(bytes))
"""Frames, also of lengths at which the length takes one more byte."""
MISSING_IN_PROTOCOL: Mapping[type, tuple[str, ...]] = {
    Topic: ("adopting", "pruned"),
    Segment: ("sequences", "sequences_complete"),
    SealedLog: ("sequences_complete",),
}
RANGES = st.lists(st.integers(0, 65_536), min_size=2, max_size=2, unique=True).map(sorted)
SPECIAL: Mapping[Any, SearchStrategy[Any]] = {
    TopicName: st.builds(TopicName, st.sampled_from(["a", "shop"]), st.sampled_from(["orders", "x.y-z_0"])),
    Configs: st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=3).map(configs_of),
    KeyRange: RANGES.map(lambda edges: KeyRange(*edges)),
    FrameHead: st.builds(FrameHead, st.binary(max_size=144)),
    Frames: PAYLOADS,
    bool: st.booleans(),
    bytes: st.binary(max_size=30),
    float: st.floats(0, 1e12),
    str: st.text(max_size=20),
    NoneType: st.none(),
}


def any_value(kind: Any, name: str = "") -> SearchStrategy[Any]:
    """Return a strategy of values of a type, in a field of this name."""
    if kind in SPECIAL:
        return SPECIAL[kind]
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return st.one_of(*(any_value(each, name) for each in arguments))
    if get_origin(kind) is tuple and arguments[-1] is Ellipsis:
        return st.lists(any_value(arguments[0], name), max_size=3).map(tuple)
    if get_origin(kind) is tuple:
        return st.tuples(*(any_value(each, name) for each in arguments))
    if get_origin(kind) is Mapping:
        key, value = (any_value(each, f"{name}.{part}") for each, part in zip(arguments, ("key", "value"), strict=True))
        return st.dictionaries(key, value, max_size=3)
    if kind is int:
        return st.integers(*BOUNDS_OF.get(ALIASES.get(name, name), BOUNDS_OF.get(name, U32)))
    if is_dataclass(kind):
        return _any_dataclass(kind)
    assert issubclass(kind, StrEnum), kind
    return st.sampled_from(kind)


@cache
def some_value(kind: Any, name: str = "") -> Any:
    """Return a value of a type, in a field of this name: the same in every run."""
    found = []

    @settings(max_examples=5, phases=[Phase.generate], deadline=None, derandomize=True, database=None)
    @given(any_value(kind, name))
    def take(value: Any) -> None:
        found.append(value)

    take()
    return found[-1]


def _any_dataclass(kind: Any) -> SearchStrategy[Any]:
    hints = get_type_hints(kind)
    given = {}
    for field in fields(kind):
        if field.name not in MISSING_IN_PROTOCOL.get(kind, ()):
            values = any_value(hints[field.name], field.name)
            is_zero_read_as_default = field.default is not MISSING and field.default and hints[field.name] in (int, str)
            given[field.name] = values.filter(bool) if is_zero_read_as_default else values
    if kind is AwaitTopics:
        given["patience_s"] = st.sampled_from([0.0, 0.25, 10.0])
    if kind is SegmentSelection:
        given["sealed_above"] = st.none() | st.just(-1) | st.integers(*U32)
    built = st.builds(kind, **given)
    return built.map(_with_one_topic) if kind is TopicDescription else built


def _with_one_topic(description: TopicDescription) -> TopicDescription:
    name = description.topic.name
    return replace(description, segments=tuple(replace(each, topic=name) for each in description.segments))


def _messages(found: Iterable[Descriptor]) -> Iterable[Descriptor]:
    for message in found:
        yield message
        yield from _messages(message.nested_types)


def _bounds_of_fields() -> dict[str, tuple[int, int]]:
    """Return the least and the greatest number of all fields with a name; those of a map are ``name.key`` and so on."""
    found: dict[str, tuple[int, int]] = {}
    for file in (admin_pb2, cluster_pb2, data_pb2, groups_pb2, types_pb2):
        for message in _messages(file.DESCRIPTOR.message_types_by_name.values()):
            for field in message.fields:
                parts = {field.name: field}
                if field.message_type is not None and field.message_type.GetOptions().map_entry:
                    parts = {f"{field.name}.{part.name}": part for part in field.message_type.fields}
                for name, part in parts.items():
                    if part.type in BOUNDS and not message.GetOptions().map_entry:
                        least, greatest = BOUNDS[part.type]
                        before = found.get(name, (least, greatest))
                        found[name] = (max(least, before[0]), min(greatest, before[1]))
    return found


BOUNDS_OF = _bounds_of_fields()
