"""Deliberately broken variants of what clients are promised, and of the schema's adoption."""

import sys

import pytest

from seaweedmq import errors
from tests.sim.mutants import Break


def raise_kept_errors_again(patch: pytest.MonkeyPatch) -> None:
    """A kept error is raised itself, every time: its traceback grows, and keeps what was refused in memory."""
    fresh = errors.fresh
    for module in [m for name, m in sys.modules.items() if name.startswith("seaweedmq.")]:
        if getattr(module, "fresh", None) is fresh:
            patch.setattr(module, "fresh", lambda error: error)


BROKEN: tuple[Break, ...] = (raise_kept_errors_again,)
