"""Themes about followers that are missing, stopped or lost, and publishers that repeat."""

import random
from collections.abc import Callable

from tests.sim.scenario import Scenario

THEMES: tuple[Callable[[random.Random, Scenario], Scenario], ...] = ()
