"""Broken variants about the recovery of etcd, as ``mutants`` has them."""

from typing import Any

import pytest

from seaweedmq.broker.recovery import cluster
from seaweedmq.broker.recovery.groups import FoundGroups
from tests.sim.mutants.mutants import Break


def recover_without_journals(patch: pytest.MonkeyPatch) -> None:
    """A recovery leaves groups as the restored etcd has them."""

    async def find(_store: Any) -> FoundGroups:
        return FoundGroups(values={}, journal="")

    patch.setattr(cluster, "find_groups", find)


def believe_the_highest_revision(patch: pytest.MonkeyPatch) -> None:
    """Clients get the plain revisions of etcd, which a recovered one counts from 1."""
    patch.setattr("seaweedmq.coordination.view.REVISION_BITS", 0)


BROKEN: tuple[Break, ...] = (recover_without_journals, believe_the_highest_revision)
