"""The input of the balancer: a cluster and its loads as columns, one row per segment.

With arrays, a decision about a million segments takes well under a second; objects would be far too slow. Rows are the
open segments in the order of (topic, lo), so that adjacent segments on the ring are adjacent rows. Names appear only in
the input and the output.
"""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from seaweedmq.model.broker import BrokerInfo, BrokerLoad
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Scaling, Topic, TopicName

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]


_IDS = 10**8
"""Exclusive upper bound of segment ids, so that (topic, id) fits into one number."""

NO_BROKER = -1
"""Value in ``ClusterColumns.replicas`` for no replica, or for a broker that is not registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerSettings:
    """The settings of ``BrokerConfig`` that the balancer uses."""

    segment_target_bytes_per_s: float
    segment_target_records_per_s: float
    split_after_s: float
    merge_after_s: float
    changes_at_once_max: int

    @classmethod
    def of(cls, config: BrokerConfig) -> "BalancerSettings":
        """Return the balancer's settings of a broker's configuration."""
        return cls(
            segment_target_bytes_per_s=config.segment_target_bytes_per_s,
            segment_target_records_per_s=config.segment_target_records_per_s,
            split_after_s=config.split_after_s,
            merge_after_s=config.merge_after_s,
            changes_at_once_max=config.changes_at_once_max,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterColumns:
    """The open segments of a cluster and its brokers. ``S`` segments, ``T`` topics, ``B`` brokers, ``R`` replicas."""

    topics: Sequence[TopicName]
    """T names, which ``topic`` indexes."""
    topic_replicas: Ints
    """(T,) requested replicas."""
    topic_auto: Bools
    """(T,) whether segments may be split and merged."""
    topic_target_bytes_per_s: Floats
    """(T,) target of one segment: the topic's own, or the cluster's."""
    topic_target_records_per_s: Floats
    topic_segments_min: Ints
    """(T,) number of segments below which segments are not merged."""
    brokers: Sequence[str]
    """Ids of the B brokers whose lease lives, in ascending order."""
    usable: Bools
    """(B,) whether the broker may get segments: it is neither draining nor suspected."""
    draining: Bools
    topic: Ints
    """(S,) index of the topic; rows are in the order of (topic, lo)."""
    id: Ints
    lo: Ints
    hi: Ints
    opened_us: Ints
    replicas: Ints
    """(S, R) indices into ``brokers``, the primary first; -1 for an unregistered broker, and after the last one."""
    replica_count: Ints
    """(S,) number of recorded replicas, including those on unregistered brokers."""
    changing: Bools
    """(S,) whether the segment is being split, merged or moved, which leaves it alone and counts against the pace."""

    @classmethod
    def of(
        cls,
        topics: Iterable[Topic],
        segments: Iterable[Segment],
        brokers: Iterable[BrokerInfo],
        settings: BalancerSettings,
        *,
        suspected: Container[str] = (),
        changing: Collection[SegmentId] = (),
    ) -> "ClusterColumns":
        """Build the columns from the metadata and the open segments, in any order; those of other topics are left out.

        ``brokers`` have a living lease, draining ones included. ``suspected`` ones get nothing new and lose their
        segments. ``changing`` are the segments that are being split, merged or moved now.
        """
        names = sorted(topics, key=attrgetter("name"))
        topic_of = _Index((_name_of(topic), at) for at, topic in enumerate(names))
        members = sorted(brokers, key=attrgetter("id"))
        broker_of = _Index((broker.id, at) for at, broker in enumerate(members))
        known = list(segments)
        topic = _ints(map(topic_of.__getitem__, map(_topic_of, known)))
        lo = _ints(map(attrgetter("slots.lo"), known))
        order = np.lexsort((lo, topic))
        order = order[topic[order] >= 0]
        replica_lists = list(map(attrgetter("replicas"), known))
        count = _ints(map(len, replica_lists))
        replicas = _ragged(_ints(map(broker_of.__getitem__, chain.from_iterable(replica_lists))), count)
        cluster = cls(
            topics=[t.name for t in names],
            topic_replicas=_ints(t.replicas for t in names),
            topic_auto=np.array([t.scaling is Scaling.AUTO for t in names], np.bool_),
            topic_target_bytes_per_s=np.array(
                [t.target_bytes_per_s or settings.segment_target_bytes_per_s for t in names], np.float64
            ),
            topic_target_records_per_s=np.array(
                [t.target_records_per_s or settings.segment_target_records_per_s for t in names], np.float64
            ),
            topic_segments_min=_ints(t.segments_min for t in names),
            brokers=[b.id for b in members],
            usable=np.array([not b.draining and b.id not in suspected for b in members], np.bool_),
            draining=np.array([b.draining for b in members], np.bool_),
            topic=topic[order],
            id=_ints(map(attrgetter("id"), known))[order],
            lo=lo[order],
            hi=_ints(map(attrgetter("slots.hi"), known))[order],
            opened_us=_ints(map(attrgetter("opened_us"), known))[order],
            replicas=replicas[order],
            replica_count=count[order],
            changing=np.zeros(len(order), np.bool_),
        )
        found = [(topic_of[name.namespace, name.name], number) for name, number in changing]
        rows = cluster.rows(_ints(at for at, _ in found), _ints(number for _, number in found))
        cluster.changing[rows[rows >= 0]] = True
        return cluster

    def rows(self, topic: Ints, segment: Ints) -> Ints:
        """Return the row of each (topic index, segment id), -1 for one that is not open; shapes ``(N,)``."""
        if not len(self.id) or not len(segment):
            return np.full(len(segment), -1, np.int64)
        keys = self.topic * _IDS + self.id
        order = np.argsort(keys)
        wanted = topic * _IDS + segment
        at = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
        rows: Ints = order[at]
        return np.where((keys[rows] == wanted) & (topic >= 0), rows, -1)

    @property
    def primary(self) -> Ints:
        """(S,) index of the primary's broker."""
        return self.replicas[:, 0]

    def ids(self, brokers: Iterable[int]) -> tuple[str, ...]:
        """Return the broker ids of indices."""
        return tuple(self.brokers[b] for b in brokers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loads:
    """The traffic of the open segments, in the rows of their ``ClusterColumns``. Unreported traffic counts as none."""

    bytes_per_s: Floats
    """(S,) short average."""
    records_per_s: Floats
    long_bytes_per_s: Floats
    long_records_per_s: Floats
    histograms: Sequence[Sequence[float]]
    """S histograms of 16 buckets, in records/s, or empty ones."""
    reported: Bools
    """(B,) whether the broker reported its load. Until all have, nothing is merged or moved for balance."""

    @classmethod
    def of(cls, cluster: ClusterColumns, reports: Iterable[BrokerLoad]) -> "Loads":
        """Build the columns from the last report of every broker. Only the report of a segment's primary counts.

        The last report of an unregistered broker shows how much of its load others will have to take.
        """
        broker_of = _Index((broker, at) for at, broker in enumerate(cluster.brokers))
        topic_of = _Index(((name.namespace, name.name), at) for at, name in enumerate(cluster.topics))
        known = list(reports)
        reported = np.zeros(len(cluster.brokers), np.bool_)
        reported[[broker_of[report.broker] for report in known if report.broker in broker_of]] = True
        loads = list(chain.from_iterable(report.segments for report in known))
        by = _ints(chain.from_iterable(repeat(broker_of[r.broker], len(r.segments)) for r in known))
        topic = _ints(map(topic_of.__getitem__, map(_topic_of, loads)))
        rows = cluster.rows(topic, _ints(map(attrgetter("segment"), loads)))
        kept = np.flatnonzero(rows >= 0)
        kept = kept[cluster.primary[rows[kept]] == by[kept]]
        rows = rows[kept]
        histograms: list[Sequence[float]] = [()] * len(cluster.id)
        for row, at in zip(rows.tolist(), kept.tolist(), strict=True):
            histograms[row] = loads[at].histogram

        def column(name: str) -> Floats:
            values = np.fromiter(map(attrgetter(name), loads), np.float64, len(loads))
            result = np.zeros(len(cluster.id), np.float64)
            result[rows] = values[kept]
            return result

        return cls(
            bytes_per_s=column("bytes_per_s"),
            records_per_s=column("records_per_s"),
            long_bytes_per_s=column("long_bytes_per_s"),
            long_records_per_s=column("long_records_per_s"),
            histograms=histograms,
            reported=reported,
        )


class _Index(dict[Any, int]):
    """A mapping that returns -1 for missing keys. Names are tuples, whose hash costs a tenth of a dataclass's."""

    def __missing__(self, key: object) -> int:
        return -1


_topic_of = attrgetter("topic.namespace", "topic.name")
_name_of = attrgetter("name.namespace", "name.name")


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _ragged(flat: Ints, counts: Ints) -> Ints:
    """Return ``counts[i]`` values per row, padded with -1 to the longest; at least one column."""
    table = np.full((len(counts), max(1, int(counts.max(initial=1)))), NO_BROKER, np.int64)
    rows = np.repeat(np.arange(len(counts)), counts)
    table[rows, np.arange(len(flat)) - np.repeat(np.cumsum(counts) - counts, counts)] = flat
    return table
