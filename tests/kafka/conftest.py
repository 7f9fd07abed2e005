"""Tests that take a ``testbed`` are played in virtual time, as those of ``tests/broker`` are."""

from tests.broker.conftest import pytest_collectstart

__all__ = ["pytest_collectstart"]
