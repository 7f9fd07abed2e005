"""Mutants of recovering etcd; see ``mutants``."""

from typing import Any

import pytest

from seaweedmq.broker.recovery import cluster
from seaweedmq.broker.recovery.groups import FoundGroups


def recover_without_journals(patch: pytest.MonkeyPatch) -> None:
    """A recovery restores groups from etcd's backup and ignores their journals."""

    async def find(_store: Any) -> FoundGroups:
        return FoundGroups(values={}, journal="")

    patch.setattr(cluster, "find_groups", find)


def believe_the_highest_revision(patch: pytest.MonkeyPatch) -> None:
    """Clients get plain etcd revisions, which restart at 1 in a recovered etcd."""
    patch.setattr("seaweedmq.coordination.view.REVISION_BITS", 0)
