"""Tests that take a ``testbed`` are played in virtual time, see :func:`tests.broker.testbed.story`."""

import inspect
from typing import NoReturn

import pytest

from tests.broker.testbed import story


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Make stories of a module's coroutine functions that take a test bed, before they are collected."""
    if not isinstance(collector, pytest.Module):
        return
    try:
        module = collector.obj
    except (pytest.Collector.CollectError, pytest.skip.Exception) as error:
        _end_collection_with(error, collector)
        return
    for name, test in vars(module).copy().items():
        if name.startswith("test_") and inspect.iscoroutinefunction(test) and "testbed" in _parameters(test):
            setattr(module, name, story(test))


def _end_collection_with(error: BaseException, collector: pytest.Module) -> None:
    """Let the collection report an error of an import: importing again would find a half-made module without tests."""

    def collect() -> NoReturn:
        raise error

    collector.collect = collect  # type: ignore[method-assign]


def _parameters(test: object) -> set[str]:
    assert callable(test)
    return set(inspect.signature(test).parameters)
