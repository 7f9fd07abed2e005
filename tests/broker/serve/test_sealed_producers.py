"""Publishers of a sealed segment that all return at once."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from seaweedmq.broker.serve import sealed_producers
from seaweedmq.broker.serve.sealed_producers import SealedProducers
from seaweedmq.errors import StorageFailed
from seaweedmq.model.segment import ProducerSequence, Segment
from tests.doubles.memory_store import MemorySegmentStore, StorageOp
from tests.support.segments import make_segment, make_topic

TOPIC = make_topic()


class Sequences(tuple[ProducerSequence, ...]):
    """The sequences in a segment's record; counts full iterations."""

    passes = 0

    def __iter__(self) -> Iterator[ProducerSequence]:
        Sequences.passes += 1
        return super().__iter__()


def sealed(number: int, next_sequence: int, producers: int = 10) -> Segment:
    sequences = Sequences(
        ProducerSequence(producer_id=n, producer_epoch=0, next_sequence=next_sequence) for n in range(producers)
    )
    return replace(make_segment(100), id=number, sequences=sequences, sequences_complete=True)


async def ask(answering: SealedProducers, segment: Segment) -> list[int]:
    return [(await answering.progress(TOPIC, segment, n, 0, 50))[0] for n in range(10)]


@pytest.fixture
def answering() -> SealedProducers:
    Sequences.passes = 0
    return SealedProducers(MemorySegmentStore(lambda: 0))


async def test_the_record_is_gone_through_once_and_anew_when_it_is_another(answering: SealedProducers) -> None:
    assert await ask(answering, sealed(1, 7)) == [7] * 10
    assert Sequences.passes == 1
    trimmed = replace(sealed(1, 7), sequences=())
    assert await ask(answering, trimmed) == [50] * 10
    assert await ask(answering, sealed(1, 8)) == [8] * 10
    assert Sequences.passes == 2


async def test_few_records_are_kept(answering: SealedProducers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_producers, "RECORDED_WEIGHT_MAX", 25)
    segments = [sealed(n, n) for n in range(40)]
    for segment in segments:
        assert await ask(answering, segment) == [segment.id] * 10
    empty = [sealed(n, 0, producers=0) for n in range(40, 140)]
    for segment in empty:
        await ask(answering, segment)
    Sequences.passes = 0
    for segment in empty[-25:]:
        await ask(answering, segment)
    assert Sequences.passes == 0, "the last are kept"
    await ask(answering, empty[-26])
    assert Sequences.passes == 1, "and nothing else"
    assert await ask(answering, segments[0]) == [0] * 10


async def test_each_of_those_who_wait_for_the_same_files_gets_an_error_of_its_own() -> None:
    async def broken(op: StorageOp, path: str) -> None:
        await asyncio.sleep(0)
        raise StorageFailed("input/output error")

    answering = SealedProducers(MemorySegmentStore(lambda: 0, broken))
    segment = replace(sealed(1, 7, producers=0), sequences_complete=False)
    waiting = (answering.progress(TOPIC, segment, n, 0, 50) for n in range(3))
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [StorageFailed] * 3
    assert len(set(map(id, errors))) == 3
