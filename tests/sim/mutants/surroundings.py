"""Mutants of handling etcd, clocks and the storage root; see ``mutants``."""

from collections.abc import Awaitable
from typing import Any

import pytest

from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.membership import Membership
from seaweedmq.broker.upkeep.retention import Retention
from seaweedmq.coordination.observed import ObservedMetaStore
from seaweedmq.core.clock_doubt import WallWatch
from seaweedmq.core.files.seen_tables import SeenTables
from seaweedmq.model.config import US_PER_S
from tests.doubles.memory_store import MemorySegmentStore


def end_when_etcd_has_no_space_for_a_lease(patch: pytest.MonkeyPatch) -> None:
    """A broker that lost its lease registers again only if etcd grants one at once."""

    async def join(membership: Any) -> Any:
        return await membership.join()

    patch.setattr(Membership, "join_when_possible", join)


def hand_errors_of_etcd_on(patch: pytest.MonkeyPatch) -> None:
    """Clients get etcd's errors as the broker's: OutOfRange then means deleted records."""

    async def noted(store: Any, what: str, answering: Awaitable[Any], **_: Any) -> Any:
        return await answering

    patch.setattr(ObservedMetaStore, "_noted", noted)


def trust_any_folder(patch: pytest.MonkeyPatch) -> None:
    """A broker accepts any folder as its cluster's storage."""
    patch.setattr(MemorySegmentStore, "verify", lambda store: None)


def look_after_files_while_there_is_space(patch: pytest.MonkeyPatch) -> None:
    """Retention stops while the storage rejects writes."""
    maintain = Retention._maintain

    async def check_first(keeper: Any, name: Any) -> None:
        await keeper._store.check()
        await maintain(keeper, name)

    patch.setattr(Retention, "_maintain", check_first)


def let_a_stepped_clock_delete(patch: pytest.MonkeyPatch) -> None:
    """Retention trusts wall clocks at once, without confirmation by a steady clock."""

    def newest(watch: Any, steady_s: float, doubt_s: float) -> int:
        return int(watch._since[-1][1] + steady_s * US_PER_S)

    patch.setattr(WallWatch, "confirmed_us", newest)


def judge_times_by_a_clock_that_was_just_set(patch: pytest.MonkeyPatch) -> None:
    """A broker checks the timestamps of Kafka batches by its current wall clock alone."""

    def now_us(clock: Any) -> tuple[int, int]:
        return clock._env.wall_us(), clock._env.wall_us()

    patch.setattr(ConfirmedClock, "span_us", now_us)


def date_tables_of_a_new_segment_by_their_stamps(patch: pytest.MonkeyPatch) -> None:
    """A broker forgets that a segment it sees for the first time did not exist at the last listing."""
    patch.setattr(SeenTables, "_evidence_before", lambda seen: [])


def delete_right_after_taking_a_topic_over(patch: pytest.MonkeyPatch) -> None:
    """A broker with a confirmed clock trusts the dates of tables that it has never seen before."""
    patch.setattr(SeenTables, "watched_s", lambda seen, steady_s: steady_s)
