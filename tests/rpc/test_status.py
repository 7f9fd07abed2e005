"""Every kind of error crosses the wire as itself, with its message."""

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq import errors
from seaweedmq.model.messages.calls import DescribeTopic
from seaweedmq.rpc import status
from tests.rpc.fake_broker import NAME, OPEN, stream_of


def cross(error: errors.SeaweedMQError) -> errors.SeaweedMQError:
    code, details, trailing = status.to_status(error)
    received = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)
    return status.from_status(received, method="Publish", address="127.0.0.1:1", timeout_s=None)


@pytest.mark.parametrize("kind", [*errors.ALL_KINDS, errors.SeaweedMQError])
async def test_every_kind_arrives_from_a_unary_call_and_from_a_stream(kind, fake, broker):
    fake.error = kind("topic shop/orders: Größe 17 \N{SNOWMAN}\nis over the limit: split it")
    with pytest.raises(errors.SeaweedMQError) as unary:
        await broker.call(DescribeTopic(NAME))
    with pytest.raises(errors.SeaweedMQError) as stream:
        async for _ in broker.publish(stream_of(OPEN)):
            pass
    for raised in (unary.value, stream.value):
        assert type(raised) is kind
        assert str(raised) == str(fake.error)


def test_a_more_special_error_arrives_as_its_kind_and_that_of_a_newer_broker_as_the_base_kind():
    class Truncated(errors.Corrupt):
        pass

    assert type(cross(Truncated("torn"))) is errors.Corrupt
    received = grpc.aio.AioRpcError(
        grpc.StatusCode.ABORTED, grpc.aio.Metadata(), grpc.aio.Metadata(("seaweedmq-error", "NEWER")), "text"
    )
    error = status.from_status(received, method="Publish", address="a:1", timeout_s=None)
    assert type(error) is errors.SeaweedMQError
    assert str(error) == "text"


@given(st.text(st.characters(), max_size=50), st.integers(1, 3000))
def test_any_message_is_cut_to_what_metadata_can_hold(text, times):
    """Lone surrogates come from file names that are not UTF-8."""
    message = text * times + "\udcff"
    arrived = str(cross(errors.StorageFailed(message)))
    arrived.encode()
    assert arrived.startswith(text[:10].encode("utf-8", "backslashreplace").decode())
    assert arrived.endswith(("...", "\\udcff"))
    assert len(arrived) <= status.MESSAGE_BYTES_MAX


async def test_a_bug_in_the_broker_is_logged_and_named_and_a_very_long_message_arrives_cut(fake, broker, caplog):
    fake.error = ZeroDivisionError("secret")
    with pytest.raises(errors.SeaweedMQError, match="DescribeTopic failed inside the broker") as raised:
        await broker.call(DescribeTopic(NAME))
    assert type(raised.value) is errors.SeaweedMQError
    assert "secret" not in str(raised.value)
    name = str(raised.value).partition("failure ")[2].split()[0]
    [record] = [record for record in caplog.records if name in record.getMessage()]
    assert record.exc_info
    assert record.exc_info[1] is fake.error
    fake.error = errors.InvalidArgument("\N{SNOWMAN}" * 100_000)
    with pytest.raises(errors.InvalidArgument, match=r"^\N{SNOWMAN}{300,}\.\.\.$"):
        await broker.call(DescribeTopic(NAME))
