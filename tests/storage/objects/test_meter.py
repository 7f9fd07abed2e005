"""Requests, bytes and prices."""

import json
from pathlib import Path

import pytest

from seaweedmq.errors import InvalidArgument
from seaweedmq.storage.objects.meter import S3_PRICES, Prices, RequestKind, RequestMeter

PRICES = Path(__file__).parents[3] / "deploy" / "prices.json"


def test_the_price_of_requests() -> None:
    meter = RequestMeter()
    meter.add(RequestKind.PUT, 200_000, written_bytes=7)
    meter.add(RequestKind.LIST, 200_000)
    meter.add(RequestKind.GET, 1_000_000, read_bytes=5)
    meter.add(RequestKind.HEAD, 1_000_000)
    meter.add(RequestKind.DELETE, 5_000_000)
    counts = meter.counts()
    assert counts.dollars() == pytest.approx(1.0 + 1.0 + 0.4 + 0.4)
    assert (counts.written_bytes, counts.read_bytes) == (7, 5)


def test_counts_do_not_change_afterwards() -> None:
    meter = RequestMeter()
    before = meter.counts()
    meter.add(RequestKind.COPY)
    assert (before.requests[RequestKind.COPY], meter.counts().requests[RequestKind.COPY]) == (0, 1)


def test_the_prices_of_the_deployment_are_those_of_the_product() -> None:
    assert Prices.load(PRICES) == S3_PRICES


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"dollars_per_million_requests": {"put": 5}}', "not json"])
def test_prices_that_lack_a_kind_are_rejected(tmp_path: Path, content: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(content)
    with pytest.raises(InvalidArgument, match="has no price for each kind of request"):
        Prices.load(path)


def test_other_prices_are_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"dollars_per_million_requests": {kind.value: 2 for kind in RequestKind}}))
    assert Prices.load(path).per_million == dict.fromkeys(RequestKind, 2.0)
