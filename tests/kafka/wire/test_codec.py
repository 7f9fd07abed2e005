"""Every API in every version, byte for byte as kio encodes it."""

import dataclasses
import random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seaweedmq.kafka.wire.decoding import decode
from seaweedmq.kafka.wire.message_cursor import Malformed
from seaweedmq.kafka.wire.messages import API, REPLIES, REQUESTS
from tests.kafka.wire import oracle

ALL = [pytest.param(api, version, id=f"{api.name}-{version}") for api, version in oracle.all_versions()]
ROUNDS = 12


def made(api: API, version: int, kind: str) -> list[tuple[Any, bytes]]:
    rng = random.Random(f"{api} {version} {kind}")
    entities = [oracle.make(oracle.entity_type(api, version, kind), rng) for _ in range(ROUNDS)]
    if api is API.API_VERSIONS and kind == "response":  # one with an error is decoded as version 0
        entities = [dataclasses.replace(entity, error_code=ErrorCode.none) for entity in entities]
    return [(entity, oracle.encode(entity)) for entity in entities]


@pytest.mark.parametrize(("api", "version"), ALL)
def test_a_request_of_another_implementation_is_read_whole_and_written_back(api: API, version: int) -> None:
    for entity, data in made(api, version, "request"):
        found = decode(REQUESTS[api], version, memoryview(data))
        assert bytes(found.encode()) == data, entity


@pytest.mark.parametrize(("api", "version"), ALL)
def test_a_request_is_read_as_kafka_python_reads_it(api: API, version: int) -> None:
    for entity, data in made(api, version, "request"):
        assert decode(REQUESTS[api], version, memoryview(data)) == REQUESTS[api].decode(data, version=version), entity


@pytest.mark.parametrize(("api", "version"), ALL)
def test_a_reply_is_written_as_another_implementation_writes_it(api: API, version: int) -> None:
    for entity, data in made(api, version, "response"):
        found = REPLIES[api].decode(data, version=version)
        assert bytes(found.encode()) == data, entity


@pytest.mark.parametrize(("api", "version"), ALL)
def test_a_request_that_is_cut_off_anywhere_is_refused(api: API, version: int) -> None:
    _, data = max(made(api, version, "request"), key=lambda one: len(one[1]))
    for end in range(min(len(data), 300)):
        with pytest.raises(Malformed):
            decode(REQUESTS[api], version, memoryview(data)[:end])
    decode(REQUESTS[api], version, memoryview(data + b"\0"))  # bytes behind a message are ignored


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("allow_creation", [0, 1])
def test_librdkafkas_request_for_all_topics_is_read(version: int, allow_creation: int) -> None:
    flags = [allow_creation, 0] if version > 10 else [allow_creation, 0, 0]
    sent = bytes([0, 0, 0, 0, *flags, 0])
    assert decode(REQUESTS[API.METADATA], version, memoryview(sent)).topics is None
