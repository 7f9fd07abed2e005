"""How much of everything a run does."""

from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of one run. The full ones keep it under 30 minutes, the quick ones under two."""

    quick: bool
    directory: Path
    """Where clusters keep their data: the disk that is measured."""
    pictures: Path
    """Where pictures go: beside the report."""
    rounds: int
    table_bytes: int
    """Values of one published table."""
    send_records: int
    latency_s: float
    catchup_bytes: int
    spark_bytes: int
    idle_s: float
    memory_s: float
    traffic_s: float
    """Of a record a second to each of many topics."""
    one_by_one_s: float
    small_sends: int
    """Records sent one after another, of each publisher."""
    parts: tuple[str, ...] = ()
    """Of ``kafka`` and ``spark``: only these."""
    tier: str = "quick"
    """Of ``kafka-load``: a name of ``kafka_load.tiers``."""
    duration_s: float | None = None
    """Of ``kafka-load``, where it is not the tier's own."""
    bootstrap: str | None = None
    """Of ``kafka-load``: a Kafka that runs already, instead of a cluster of the run's own."""

    def target(self, bound: float) -> float | None:
        """A target that is meant for the full sizes only: a quick run's are nothing like them."""
        return None if self.quick else bound


def full(directory: Path, pictures: Path) -> Scale:
    """The sizes that the targets are meant for."""
    return Scale(
        quick=False,
        directory=directory,
        pictures=pictures,
        rounds=7,
        table_bytes=256 * MIB,
        send_records=1_000_000,
        latency_s=15.0,
        catchup_bytes=1_500_000_000,
        spark_bytes=1_000_000_000,
        idle_s=20.0,
        memory_s=20.0,
        traffic_s=15.0,
        one_by_one_s=15.0,
        small_sends=1_000,
    )


def quick(directory: Path, pictures: Path) -> Scale:
    """Enough to see whether something broke."""
    return Scale(
        quick=True,
        directory=directory,
        pictures=pictures,
        rounds=1,
        table_bytes=24 * MIB,
        send_records=200_000,
        latency_s=1.0,
        catchup_bytes=60_000_000,
        spark_bytes=20_000_000,
        idle_s=2.0,
        memory_s=4.0,
        traffic_s=4.0,
        one_by_one_s=2.0,
        small_sends=150,
    )
