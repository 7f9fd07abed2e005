"""A day of synthetic traffic: a daily wave, a flood of one topic, the loss of a broker, a rolling restart of all."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.balancer_world import Traffic, World, even_profile, zipf_profile
from seaweedmq.core.balance.decide import Action, BalancerSettings, Hold
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.topic import TopicName

DAY_S = 86_400.0
FLOOD_AT_S, FLOOD_S = 9 * 3_600.0, 1_800.0
LOSS_AT_S = 14 * 3_600.0
RESTART_AT_S = 19 * 3_600.0
RESTART_EACH_S = 30.0
"""Seconds from the drain of one broker to that of the next."""
WAVE = 0.5
"""Amplitude: traffic is between 0.5 and 1.5 times the mean, lowest at 4 in the morning."""
NOISE = 0.1
BROKER_BYTES_PER_S = 150e6
"""Mean publish rate per broker."""
FLOOD_BYTES_PER_S = 2e9
TOPICS_PER_BROKER = 4
CLOSE_S = 240.0
"""Seconds after an event during which the model steps every second."""
RECOVERED = 1.2


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment of the day."""

    at_s: float
    imbalance: float
    segments: int
    bytes_per_s: float
    pressure: float
    """The most loaded segment that could be split, as a multiple of the target."""


@dataclass
class Day:
    """Events and samples of the day."""

    brokers: int
    samples: list[Sample] = field(default_factory=list)
    actions: list[tuple[float, Action]] = field(default_factory=list)
    flood_recovery_s: float = math.inf
    loss_recovery_s: float = math.inf
    repairs: int = 0

    @property
    def changes(self) -> dict[str, int]:
        """Number of changes of each kind; moves are those for balance."""
        counts = Counter(kind_of(action) for _, action in self.actions)
        return {kind: counts[kind] for kind in ("split", "merge", "move")} | {"repair": self.repairs}


class _Player:
    def __init__(self, brokers: int, step_s: float) -> None:
        self.day = Day(brokers)
        self.settings = BalancerSettings.of(BrokerConfig())
        self.world = World(self.settings, brokers, seed=1)
        self.step_s = step_s
        self.at_s = 0.0
        self.flooded: TopicName | None = None
        self.base = self._topics(brokers)
        self._wave()
        self.world.settle(steps_max=2_000)

    def _topics(self, brokers: int) -> dict[TopicName, float]:
        """Create the topics. Sizes are also Zipf-distributed; half of the topics have Zipf-distributed keys."""
        rng = random.Random(1)
        profiles = [even_profile(), *(zipf_profile(100_000, 0.8, rng) for _ in range(3))]
        count = TOPICS_PER_BROKER * brokers
        shares = [1 / (rank + 10) for rank in range(count)]
        base: dict[TopicName, float] = {}
        for number, share in enumerate(shares):
            rate = brokers * BROKER_BYTES_PER_S * share / sum(shares)
            profile = profiles[0] if number % 2 else profiles[1 + number // 2 % 3]
            base[self.world.add_topic(f"day/t-{number}", Traffic(rate, profile), replicas=2)] = rate
        return base

    def _wave(self) -> None:
        factor = 1 - WAVE * math.cos((self.at_s - 4 * 3_600) / DAY_S * 2 * math.pi)
        for name, rate in self.base.items():
            self.world.traffic[name].bytes_per_s = factor * rate
        if self.flooded is not None:
            self.world.traffic[self.flooded].bytes_per_s = FLOOD_BYTES_PER_S

    def step(self, seconds: float) -> None:
        """Let so much of the day pass."""
        self.at_s += seconds
        self._wave()
        done = self.world.step(seconds, noise=NOISE)
        self.day.actions += [(self.at_s, action) for action in done if not isinstance(action, Hold)]
        rates = self.world.rates()
        self.day.samples.append(
            Sample(
                self.at_s,
                self.world.imbalance(),
                len(rates),
                sum(rates),
                max(rates) / self.settings.segment_target_bytes_per_s,
            )
        )

    def until(self, at_s: float, step_s: float) -> None:
        """Advance to that time of the day."""
        while self.at_s < at_s:
            self.step(min(step_s, at_s - self.at_s))

    def recovery(self, recovered: Callable[[Sample], bool]) -> float:
        """Return the seconds until ``recovered`` holds, and holds for some minutes, second by second."""
        began, first = self.at_s, len(self.day.samples)
        self.until(began + CLOSE_S, 1.0)
        ill = [sample.at_s for sample in self.day.samples[first:] if not recovered(sample)]
        return max(ill, default=began) + 1.0 - began

    def restarts(self) -> Iterator[None]:
        """Drain one broker after another; each ends and comes back under another id."""
        for broker in sorted(self.world.brokers):
            self.world.drain_broker(broker)
            self.until(self.at_s + RESTART_EACH_S / 3, 2.0)
            self.world.lose_broker(broker)
            self.until(self.at_s + RESTART_EACH_S / 3, 5.0)
            self.world.add_broker(f"{broker}.2")
            self.until(self.at_s + RESTART_EACH_S / 3, 5.0)
            yield


def play_day(*, brokers: int, step_s: float) -> Day:
    """Play it.

    Args:
        step_s: Seconds from one step to the next while nothing happens; there are no decisions in between.
    """
    player = _Player(brokers, step_s)
    day = player.day
    player.until(FLOOD_AT_S, step_s)
    player.flooded = min(player.base, key=lambda name: player.base[name])
    day.flood_recovery_s = player.recovery(lambda s: s.imbalance <= RECOVERED and s.pressure <= 2.2)
    player.until(FLOOD_AT_S + FLOOD_S, step_s)
    player.flooded = None
    player.until(FLOOD_AT_S + FLOOD_S + CLOSE_S, 5.0)
    player.until(LOSS_AT_S, step_s)
    player.world.lose_broker(sorted(player.world.brokers)[brokers // 2])
    day.loss_recovery_s = player.recovery(lambda s: s.imbalance <= RECOVERED)
    player.until(RESTART_AT_S, step_s)
    for _ in player.restarts():
        player.world.check()
    player.until(DAY_S, step_s)
    day.repairs = len(player.world.repaired)
    return day


def kind_of(action: Action) -> str:
    """Return ``split``, ``merge`` or ``move``."""
    return type(action).__name__.lower()
