"""Slots of columns of keys. The oracle is xxhash."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.slots import histogram_of, slots_of
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.ring import WHOLE_RING, KeyRange, slot_of


def oracle(keys: list[bytes]) -> list[int]:
    return [slot_of(key) for key in keys]


def test_every_length_agrees_with_xxhash():
    rng = random.Random(7)
    for length in range(300):
        keys = [bytes(length), b"\xff" * length, *(rng.randbytes(length) for _ in range(200))]
        assert slots_of(pa.array(keys, pa.binary())).tolist() == oracle(keys), length


def test_a_long_column_is_worked_on_in_blocks():
    rng = random.Random(7)
    keys = [rng.randbytes(rng.choice((0, 1, 3, 4, 8, 9, 16, 17, 100))) for _ in range(70_000)]
    slots = slots_of(pa.array(keys, pa.binary()))
    assert (slots.dtype, slots.tolist()) == (np.uint16, oracle(keys))


@given(st.lists(st.binary(max_size=40), max_size=50), st.data())
def test_slots_are_those_of_xxhash_and_slices_see_their_own_keys(keys: list[bytes], data: st.DataObject):
    first = data.draw(st.integers(0, len(keys)))
    last = data.draw(st.integers(first, len(keys)))
    assert slots_of(pa.array(keys, pa.binary())[first:last]).tolist() == oracle(keys[first:last])


def test_strings_are_their_utf8_a_null_is_the_empty_key_and_other_types_are_refused():
    assert slots_of(pa.array(["é", "N14228"])).tolist() == oracle(["é".encode(), b"N14228"])
    assert slots_of(pa.array([None, b"a"], pa.binary())).tolist() == oracle([b"", b"a"])
    with pytest.raises(InvalidArgument, match="keys of type int64"):
        slots_of(pa.array([1, 2]))


@given(st.integers(0, 65_535), st.integers(1, 65_536), st.lists(st.floats(0, 1, exclude_max=True), max_size=50))
def test_a_histogram_counts_every_record_in_its_sixteenth(lo: int, width: int, places: list[float]):
    slots_range = KeyRange(lo, min(lo + width, 65_536))
    slots = [lo + int(place * slots_range.width) for place in places]
    expected = [0] * 16
    for slot in slots:
        expected[(slot - lo) * 16 // slots_range.width] += 1
    assert histogram_of(np.array(slots, np.uint16), slots_range) == tuple(expected)


def test_a_histogram_of_the_whole_ring():
    assert histogram_of(np.array([0, 4_095, 4_096, 65_535], np.uint16), WHOLE_RING) == (2, 1, *[0] * 13, 1)


def test_slots_outside_the_range_are_refused():
    for slot in (9, 20):
        with pytest.raises(InvalidArgument, match="are not in"):
            histogram_of(np.array([15, slot], np.uint16), KeyRange(10, 20))
