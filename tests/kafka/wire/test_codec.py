"""Every API in every version, byte for byte as kio encodes it."""

import dataclasses
import itertools
import random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seaweedmq.kafka.wire.message_cursor import Malformed
from seaweedmq.kafka.wire.messages import API, REPLIES, REQUESTS
from tests.kafka.wire import oracle
from tests.support.kafka_wire import decode

ROUNDS = 12


def made(api: API, version: int, kind: str) -> list[tuple[Any, bytes]]:
    rng = random.Random(f"{api} {version} {kind}")
    entities = [oracle.make(oracle.entity_type(api, version, kind), rng) for _ in range(ROUNDS)]
    if api is API.API_VERSIONS and kind == "response":  # one with an error is decoded as version 0
        entities = [dataclasses.replace(entity, error_code=ErrorCode.none) for entity in entities]
    return [(entity, oracle.encode(entity)) for entity in entities]


def test_a_request_of_another_implementation_is_read_as_by_kafka_python_and_written_back() -> None:
    for api, version in oracle.all_versions():
        for entity, data in made(api, version, "request"):
            found = decode(REQUESTS[api], version, memoryview(data))
            assert found == REQUESTS[api].decode(data, version=version), (api, version, entity)
            assert bytes(found.encode()) == data, (api, version, entity)


def test_a_reply_is_written_as_another_implementation_writes_it() -> None:
    for api, version in oracle.all_versions():
        for entity, data in made(api, version, "response"):
            found = REPLIES[api].decode(data, version=version)
            assert bytes(found.encode()) == data, (api, version, entity)


def test_a_request_that_is_cut_off_anywhere_is_refused() -> None:
    for api, version in oracle.all_versions():
        _, data = max(made(api, version, "request"), key=lambda one: len(one[1]))
        for end in range(min(len(data), 300)):
            try:
                decode(REQUESTS[api], version, memoryview(data)[:end])
            except Malformed:
                continue
            pytest.fail(f"{api.name} {version} is read without its bytes from {end} on")
        decode(REQUESTS[api], version, memoryview(data + b"\0"))  # bytes behind a message are ignored


def test_librdkafkas_request_for_all_topics_is_read() -> None:
    for version, allow_creation in itertools.product((9, 12, 13), (0, 1)):
        flags = [allow_creation, 0] if version > 10 else [allow_creation, 0, 0]
        sent = bytes([0, 0, 0, 0, *flags, 0])
        assert decode(REQUESTS[API.METADATA], version, memoryview(sent)).topics is None, version
