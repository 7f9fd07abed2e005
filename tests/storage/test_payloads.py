"""Payloads read from the storage itself are the published ones, or one clear error."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seaweedmq.errors import NotFound, PayloadLost, StorageFailed
from seaweedmq.model.reference import PayloadReference
from seaweedmq.storage import blobs, payloads
from seaweedmq.storage.payloads import PlaceBlobs, fetch_payload
from seaweedmq.storage.place import Place
from tests.support.referenced_files import put_payload
from tests.support.topic_files import TopicFiles

PAYLOAD = bytes(range(256)) * 40


@pytest.fixture
def place(orders: TopicFiles) -> Place:
    return Place(orders.root)


def fetch(place: Place, orders: TopicFiles, reference: PayloadReference) -> bytes:
    return fetch_payload(place, reference, orders.name, orders.uid)


@pytest.mark.parametrize("part_bytes", [0, 1_000, 10_240, 100_000])
@pytest.mark.parametrize("read_bytes", [7_000, 8 << 20])
def test_a_payload_in_one_file_or_in_parts(
    place: Place, orders: TopicFiles, part_bytes: int, read_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "READ_BYTES", read_bytes)
    assert fetch(place, orders, put_payload(place, orders, 1, PAYLOAD, part_bytes=part_bytes)) == PAYLOAD


def test_an_empty_payload(place: Place, orders: TopicFiles) -> None:
    assert fetch(place, orders, put_payload(place, orders, 1, b"")) == b""


def missing(path: Path) -> None:
    path.unlink()


def changed(path: Path) -> None:
    path.write_bytes(b"?" + PAYLOAD[1:])


def short(path: Path) -> None:
    path.write_bytes(PAYLOAD[:-1])


@pytest.mark.parametrize(
    ("lose", "says"),
    [(missing, "cannot be read"), (changed, "has SHA-256"), (short, "ends after 10239 of 10240 bytes")],
)
def test_a_lost_payload_is_one_error(place: Place, orders: TopicFiles, lose: Callable[[Path], None], says: str) -> None:
    reference = put_payload(place, orders, 1, PAYLOAD)
    lose(place.path(reference.uri))
    with pytest.raises(PayloadLost, match=says):
        fetch(place, orders, reference)


def test_a_missing_part_is_the_same_error(place: Place, orders: TopicFiles) -> None:
    reference = put_payload(place, orders, 1, PAYLOAD, part_bytes=1_000)
    place.path(f"{reference.uri}/00004").unlink()
    with pytest.raises(PayloadLost, match="ends after 4000 of 10240 bytes"):
        fetch(place, orders, reference)


def test_a_payload_of_another_topic_is_not_read(
    place: Place, orders: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = put_payload(place, orders, 1, PAYLOAD, uid=orders.uid - 1)
    own = put_payload(place, orders, 2, PAYLOAD)
    monkeypatch.setattr(blobs, "read_blob", lambda *_: pytest.fail("nothing may be read"))
    for reference in (earlier, replace(own, uri=own.uri.replace("/orders/", "/../orders/")), replace(own, uri="x")):
        with pytest.raises(PayloadLost, match="is not one of topic shop/orders"):
            fetch(place, orders, reference)


def test_a_failing_storage_is_no_lost_payload(
    place: Place, orders: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    reference = put_payload(place, orders, 1, PAYLOAD)
    monkeypatch.setattr(blobs, "read_blob", fail)
    with pytest.raises(StorageFailed, match="Input/output error"):
        fetch(place, orders, reference)


async def test_clients_read_ranges(place: Place, orders: TopicFiles) -> None:
    reference = put_payload(place, orders, 1, PAYLOAD, part_bytes=1_000)
    reader = PlaceBlobs(place)
    assert await reader.read(reference.uri, 990, 20) == PAYLOAD[990:1_010]
    assert await reader.read(reference.uri, len(PAYLOAD) - 5, 20) == PAYLOAD[-5:]
    assert await reader.read(reference.uri, len(PAYLOAD), 20) == b""
    with pytest.raises(NotFound):
        await reader.read(reference.uri[:-1] + "f", 0, 1)
