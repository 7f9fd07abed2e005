"""Themes about etcd, clocks and the storage as a whole: what they answer, lose, and show."""

import random
from dataclasses import replace

from tests.sim.scenario import Scenario


def etcd_answers_with_errors(rng: random.Random, scenario: Scenario) -> Scenario:
    """Etcd answers any call with any kind of error, or is out of space, while brokers die and segments move."""
    return replace(
        scenario,
        brokers=max(2, scenario.brokers),
        pause_s=(0.1, 0.8),
        favoured={"answer_with_errors": 150, "run_out_of_space": 40, "reshape": 40},
    )
