"""Tests that take a ``testbed`` are played in virtual time, see :func:`tests.broker.testbed.story`."""

import contextlib
import inspect

import pytest

from tests.broker.testbed import story


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Make stories of a module's coroutine functions that take a test bed, before they are collected."""
    if not isinstance(collector, pytest.Module):
        return
    with contextlib.suppress(pytest.Collector.CollectError, pytest.skip.Exception):  # the collection reports it
        for name, test in vars(collector.obj).copy().items():
            if name.startswith("test_") and inspect.iscoroutinefunction(test) and "testbed" in _parameters(test):
                setattr(collector.obj, name, story(test))


def _parameters(test: object) -> set[str]:
    assert callable(test)
    return set(inspect.signature(test).parameters)
