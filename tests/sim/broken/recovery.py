"""Broken variants about the recovery of etcd, as ``mutants`` has them."""

from collections.abc import Mapping
from typing import Any

import pytest

from seaweedmq.broker.recovery import cluster, topics
from seaweedmq.broker.recovery.groups import FoundGroups
from tests.sim.broken.mutants import Break


def recover_without_end_offsets(patch: pytest.MonkeyPatch) -> None:
    """A recovery takes a segment whose seal no record has to end where its records begin."""

    async def ends(_store: Any, topic: Any, records: Mapping[int, Any], *, apply: bool) -> dict[int, int]:
        del apply
        return {number: records[number].start_offset for number in topics.unsealed(topic, records)}

    patch.setattr(topics, "_ends", ends)


def recover_without_producers(patch: pytest.MonkeyPatch) -> None:
    """A recovery takes the producers of sealed segments for gone with the log files."""

    async def forget(_store: Any, _topic: Any, segment: Any, _documents: Any) -> Any:
        return segment

    patch.setattr(topics, "_with_producers", forget)


def recover_without_journals(patch: pytest.MonkeyPatch) -> None:
    """A recovery leaves groups as the restored etcd has them."""

    async def find(_store: Any) -> FoundGroups:
        return FoundGroups(values={}, journal="")

    patch.setattr(cluster, "find_groups", find)


def recover_while_leases_live(patch: pytest.MonkeyPatch) -> None:
    """A recovery seals segments while brokers that have not heard that etcd is lost acknowledge records."""
    recover = cluster.recover_cluster

    async def at_once(*args: Any, lease_ttl_s: float, **more: Any) -> Any:
        del lease_ttl_s
        return await recover(*args, lease_ttl_s=0.0, **more)

    patch.setattr("tests.sim.trouble.etcd_lost.recover_cluster", at_once)


def believe_the_highest_revision(patch: pytest.MonkeyPatch) -> None:
    """Clients get the plain revisions of etcd, which a recovered one counts anew."""
    patch.setattr("seaweedmq.coordination.view.REVISION_BITS", 0)


BROKEN: tuple[Break, ...] = (recover_without_journals, believe_the_highest_revision)
