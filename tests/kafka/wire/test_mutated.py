"""Malformed requests: for any bytes, the listener stays alive, serves others, and uses little memory."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seaweedmq.kafka.wire.frames import NotAdvertised
from seaweedmq.kafka.wire.message_cursor import ELEMENTS_MAX, Malformed
from seaweedmq.kafka.wire.messages import API, Line, Request
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from tests.kafka.wire import oracle
from tests.support.kafka_wire import read_request

CONTEXT = CallContext(listener=ListenerKind.KAFKA, peer="127.0.0.1:1")
PEAK_BYTES_MAX = 8 << 20
"""Limit of the memory to decode one small request, for any claim in it."""
EXTREMES = (
    b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x01",
)  # fmt: skip


def corpus() -> list[bytes]:
    """Return good requests of every API and version, without their lengths."""
    rng = random.Random(7)
    found = []
    for api, version in oracle.all_versions():
        body = oracle.encode(oracle.make(oracle.entity_type(api, version, "request"), rng))
        head = struct.pack(">hhih", api, version, 1, 4) + b"fuzz"
        tags = b"\0" if oracle.entity_type(api, version, "request").__flexible__ else b""
        found.append(head + tags + body)
    return found


CORPUS = corpus()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(CORPUS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case 1:
                extreme = draw(st.sampled_from(EXTREMES))
                data[at : at + len(extreme)] = extreme
            case 2:
                del data[at:]
            case 3:
                data[at:at] = draw(st.binary(max_size=40))
            case _:
                data[at:at] = data[: draw(st.integers(0, 60))]
    return bytes(data)


def read(data: bytes) -> Request | None:
    try:
        return read_request(memoryview(data), context=CONTEXT, connection=1, line=Line())
    except (Malformed, NotAdvertised):
        return None


def test_the_corpus_is_good() -> None:
    assert all(read(data) is not None for data in CORPUS)


@settings(max_examples=3_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    read(data)


def test_what_a_request_claims_costs_nothing() -> None:
    rng = random.Random(11)
    for data in CORPUS:
        read(data)  # creates what is cached once for each version
    tracemalloc.start()
    try:
        for _ in range(2_000):
            data = bytearray(rng.choice(CORPUS))
            extreme = rng.choice(EXTREMES)
            at = rng.randrange(8, len(data))
            data[at : at + len(extreme)] = extreme
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            read(bytes(data))
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < PEAK_BYTES_MAX, bytes(data)
    finally:
        tracemalloc.stop()


def test_a_request_of_nothing_but_elements_is_refused() -> None:
    count = ELEMENTS_MAX + 1
    head = struct.pack(">hhihi", API.METADATA, 0, 1, -1, count)
    with pytest.raises(Malformed, match="more than 100,000 elements"):
        read_request(memoryview(head + bytes(2 * count)), context=CONTEXT, connection=1, line=Line())


def test_a_request_of_nothing_but_tagged_fields_is_refused() -> None:
    count = ELEMENTS_MAX + 1
    many = bytes((count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14))
    head = struct.pack(">hhih", API.METADATA, 9, 1, -1)
    for data in (head + many + bytes(2 * count), head + b"\0" + b"\x01\0\0\0" + many + b"\x07\0" * count):
        with pytest.raises(Malformed, match="100,001 tagged fields of one object, above 1,000"):
            read_request(memoryview(data), context=CONTEXT, connection=1, line=Line())
