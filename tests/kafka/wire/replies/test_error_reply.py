"""Error replies that clients understand, for every API in every version."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from seaweedmq.codec.kafka.batch_errors import BatchErrorCode, InvalidBatch
from seaweedmq.errors import (
    AlreadyExists,
    Corrupt,
    DataLoss,
    DuplicateSequence,
    InvalidArgument,
    NotFound,
    OutOfOrderSequence,
    ResourceExhausted,
    SeaweedMQError,
    StaleMetadata,
    StorageFailed,
    Unavailable,
)
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import API, REQUESTS, Request
from seaweedmq.kafka.wire.replies.error_reply import error_reply, error_scope_of
from seaweedmq.kafka.wire.versions import PRODUCE_LOWEST
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from tests.kafka.wire import oracle
from tests.support.kafka_wire import decode


def request_of(api: API, version: int, body: Any) -> Request:
    return Request(
        api=api,
        version=version,
        correlation_id=1,
        body=body,
        context=CallContext(listener=ListenerKind.KAFKA, peer="127.0.0.1:1", client_id="test"),
        size_bytes=0,
        connection=1,
    )


def refused(api: API, version: int, rng: random.Random) -> tuple[Any, Any]:
    """Return a random request, and the reply that it failed."""
    asked = oracle.make(oracle.entity_type(api, version, "request"), rng)
    body = decode(REQUESTS[api], version, memoryview(oracle.encode(asked)))
    reply = error_reply(request_of(api, version, body), Code.KAFKA_STORAGE_ERROR, "the disk is full")
    return asked, oracle.decode(api, version, "response", bytes(reply.encode(version=version)))


def test_a_failure_is_said_at_every_level_that_the_api_has() -> None:
    for api, version in oracle.all_versions():
        rng = random.Random(f"{api} {version}")
        for _ in range(8):
            asked, found = refused(api, version, rng)
            codes = list(codes_in(found))
            assert all(code == Code.KAFKA_STORAGE_ERROR for code in codes), (api, version, found)
            assert codes or not elements_of(asked), f"nothing says that {api.name} {version} failed: {found}"


def test_of_a_produce_request_all_partitions_are_named() -> None:
    for version in range(PRODUCE_LOWEST, 14):
        rng, name = random.Random(version), "topic_id" if version >= 13 else "name"
        asked, said = refused(API.PRODUCE, version, rng)
        while not asked.topic_data or not asked.topic_data[0].partition_data:
            asked, said = refused(API.PRODUCE, version, rng)
        named = [(getattr(t, name), [one.index for one in t.partition_responses]) for t in said.responses]
        assert named == [(getattr(t, name), [one.index for one in t.partition_data]) for t in asked.topic_data], version
        assert all(one.base_offset == -1 for topic in said.responses for one in topic.partition_responses)


def codes_in(entity: Any) -> Iterator[int]:
    for name in entity.__dataclass_fields__:
        value = getattr(entity, name)
        if name == "error_code":
            yield int(value.value)
        elif isinstance(value, tuple):
            for one in value:
                if hasattr(one, "__dataclass_fields__"):
                    yield from codes_in(one)


def elements_of(entity: Any) -> bool:
    """Return whether the request has any element that can fail."""
    for name in entity.__dataclass_fields__:
        value = getattr(entity, name)
        if isinstance(value, tuple) and value:
            inner = [elements_of(one) for one in value if hasattr(one, "__dataclass_fields__")]
            nested = [one for one in value if hasattr(one, "__dataclass_fields__") and has_arrays(one)]
            if not nested or any(inner):
                return True
    return False


def has_arrays(entity: Any) -> bool:
    return any(isinstance(getattr(entity, name), tuple) for name in entity.__dataclass_fields__)


CODES = (
    (StaleMetadata("moved"), ErrorScope.DATA, Code.NOT_LEADER_OR_FOLLOWER),
    (StaleMetadata("moved"), ErrorScope.COORDINATOR, Code.NOT_COORDINATOR),
    (Unavailable("gone"), ErrorScope.DATA, Code.NOT_LEADER_OR_FOLLOWER),
    (Unavailable("gone"), ErrorScope.METADATA, Code.LEADER_NOT_AVAILABLE),
    (Unavailable("gone"), ErrorScope.COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE),
    (Unavailable("no leader"), ErrorScope.ADMIN, Code.NOT_CONTROLLER),
    (Unavailable("gone"), ErrorScope.PRODUCE, Code.NOT_LEADER_OR_FOLLOWER),
    (ResourceExhausted("full"), ErrorScope.PRODUCE, Code.POLICY_VIOLATION),
    (ResourceExhausted("full"), ErrorScope.FETCH, Code.REQUEST_TIMED_OUT),
    (OutOfOrderSequence("gap"), ErrorScope.PRODUCE, Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (DuplicateSequence("again"), ErrorScope.PRODUCE, Code.DUPLICATE_SEQUENCE_NUMBER),
    (InvalidBatch(BatchErrorCode.INVALID_RECORD, "no"), ErrorScope.PRODUCE, Code.INVALID_RECORD),
    (Corrupt("zeros"), ErrorScope.FETCH, Code.CORRUPT_MESSAGE),
    (Corrupt("zeros"), ErrorScope.DATA, Code.KAFKA_STORAGE_ERROR),
    (NotFound("none"), ErrorScope.DATA, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (StorageFailed("full"), ErrorScope.DATA, Code.KAFKA_STORAGE_ERROR),
    (DataLoss("no file has it", 3, 9), ErrorScope.DATA, Code.CORRUPT_MESSAGE),
    (AlreadyExists("there"), ErrorScope.ADMIN, Code.TOPIC_ALREADY_EXISTS),
    (InvalidArgument("no"), ErrorScope.ADMIN, Code.INVALID_REQUEST),
    (KafkaError(Code.INVALID_RECORD, "no"), ErrorScope.DATA, Code.INVALID_RECORD),
    (ValueError("a bug"), ErrorScope.DATA, Code.UNKNOWN_SERVER_ERROR),
)


@pytest.mark.parametrize(("error", "scope", "code"), CODES)
def test_a_failure_has_the_code_by_which_a_client_does_the_right_thing(
    error: SeaweedMQError, scope: ErrorScope, code: Code
) -> None:
    assert code_of(error, scope=scope) == code


def test_every_api_asks_somebody() -> None:
    assert {error_scope_of(api) for api in API} == set(ErrorScope)
