"""Leader epochs along the lineage of a partition."""

from dataclasses import replace

import pytest

from seaweedmq.core.kafka.epochs import NO_EPOCH, NO_OFFSET, EpochEnd, end_of_epoch, epoch_of
from seaweedmq.model.segment import Segment
from tests.support.segments import make_segment


def segment(number: int, start: int, end: int | None) -> Segment:
    return replace(make_segment(end, start), id=number)


LINEAGE = [segment(3, 0, 100), segment(17, 100, 100), segment(21, 100, 250), segment(40, 250, None)]
HIGH_WATERMARK = 300


@pytest.mark.parametrize(
    ("asked", "epoch", "end"),
    [
        (3, 3, 100),
        (4, 3, 100),  # no epoch of this partition: the largest below it
        (16, 3, 100),
        (17, 17, 100),
        (21, 21, 250),
        (39, 21, 250),
        (40, 40, HIGH_WATERMARK),
        (41, NO_EPOCH, NO_OFFSET),
        (NO_EPOCH, NO_EPOCH, NO_OFFSET),
        (2, 2, 0),  # before all that are known: it ended where they begin
    ],
)
def test_where_an_epoch_ended(asked: int, epoch: int, end: int) -> None:
    assert end_of_epoch(LINEAGE, HIGH_WATERMARK, asked) == EpochEnd(epoch, end)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 3), (99, 3), (100, 21), (249, 21), (250, 40), (300, 40)])
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert epoch_of(LINEAGE, offset) == epoch
