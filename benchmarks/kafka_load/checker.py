"""Comparison of a group's records with the producers' acknowledgements: lost, twice, out of order.

A record is identified by its producer and its sequence, wherever it is stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.kafka_load.journal import Rows

NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Acknowledgements of a producer, whose records have the sequences from 0 on."""

    sent: int
    refused: Sequence[int] = ()
    """Sequences without an acknowledgement, which may or may not be stored."""

    @property
    def acknowledged(self) -> int:
        """Number of records that must exist."""
        return self.sent - len(self.refused)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Numbers of records, of one group or of all of them."""

    delivered: int = 0
    lost: int = 0
    """Acknowledged and never delivered."""
    stored_twice: int = 0
    """Delivered at more than one offset, each time but the first."""
    delivered_again: int = 0
    """Delivered again at the same offset, each time but the first."""
    reordered: int = 0
    """After a later one of the same producer and key, by offset; or before one with a lower offset, by delivery."""
    strange: int = 0
    """Never sent by a producer."""

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(*(ours + theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True)))


def judge(promises: Mapping[int, Promise], journals: Sequence[Rows]) -> Verdict:
    """Judge one group by the journals of its members.

    Args:
        promises: Acknowledgements by producer.
        journals: Rows in the order of delivery, one journal per member.
    """
    times = {producer: np.zeros(promise.sent, np.uint8) for producer, promise in promises.items()}
    verdict = Verdict()
    for partition in sorted({int(number) for rows in journals for number in np.unique(rows["partition"])}):
        given = [rows[rows["partition"] == partition] for rows in journals]
        stored = _by_offset(given)
        verdict += Verdict(
            delivered=sum(map(len, given)),
            delivered_again=sum(map(len, given)) - len(stored),
            reordered=_falls_by_key(stored) + sum(map(_falls_by_delivery, given)),
            strange=_count(times, stored),
        )
    lost = twice = 0
    for producer, promise in promises.items():
        twice += int(np.maximum(times[producer].astype(np.int64) - 1, 0).sum())
        times[producer][list(promise.refused)] = 1
        lost += int((times[producer] == 0).sum())
    return verdict + Verdict(lost=lost, stored_twice=twice)


def delivery_ms(producers: Iterable[int], journals: Sequence[Rows], skip: int) -> list[float]:
    """Return ms from due to delivered, rising, of all records of these producers but the first ``skip`` of each."""
    wanted = list(producers)
    found = [rows["took_ns"][np.isin(rows["producer"], wanted) & (rows["sequence"] >= skip)] for rows in journals]
    ascending = np.sort(np.concatenate([*found, np.empty(0, np.int64)]))
    return [float(took_ns) / NS_PER_MS for took_ns in ascending]


def _by_offset(given: Sequence[Rows]) -> Rows:
    everything = np.concatenate(given)
    _, first = np.unique(everything["offset"], return_index=True)
    return everything[first]


def _falls_by_key(stored: Rows) -> int:
    """Count the rows, in the order of offsets, whose sequence is below that of the one before of the same producer and
    key."""
    order = np.lexsort((stored["offset"], stored["key"], stored["producer"]))
    rows = stored[order]
    same = (rows["producer"][1:] == rows["producer"][:-1]) & (rows["key"][1:] == rows["key"][:-1])
    return int((same & (rows["sequence"][1:] < rows["sequence"][:-1])).sum())


def _falls_by_delivery(given: Rows) -> int:
    """Count the rows of one member's partition that came first after a higher offset."""
    _, first = np.unique(given["offset"], return_index=True)
    offsets = given["offset"][np.sort(first)]
    return int((offsets[1:] < offsets[:-1]).sum())


def _count(times: Mapping[int, npt.NDArray[np.uint8]], stored: Rows) -> int:
    """Count each record where it belongs; return how many belong nowhere."""
    strange = len(stored)
    for producer, counts in times.items():
        sequences = stored["sequence"][stored["producer"] == producer]
        known = sequences[(sequences >= 0) & (sequences < len(counts))]
        found, again = np.unique(known, return_counts=True)
        counts[found] = np.minimum(counts[found].astype(np.int64) + again, 255)
        strange -= len(known)
    return strange
