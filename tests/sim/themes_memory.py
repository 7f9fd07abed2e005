"""Themes about readers that pause, and large messages."""

import random
from collections.abc import Callable

from tests.sim.scenario import Scenario

THEMES: tuple[Callable[[random.Random, Scenario], Scenario], ...] = ()
