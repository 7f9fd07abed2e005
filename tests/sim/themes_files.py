"""Themes about what power failures and clocks do to files."""

import random
from collections.abc import Callable

from tests.sim.scenario import Scenario

THEMES: tuple[Callable[[random.Random, Scenario], Scenario], ...] = ()
