"""Sizes of a run."""

from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of one run. The full ones keep it under 30 minutes, the quick ones under two."""

    quick: bool
    directory: Path
    """Folder for the data of clusters: its disk is measured."""
    pictures: Path
    """Folder for pictures: beside the report."""
    rounds: int
    table_bytes: int
    """Bytes of values of one published table."""
    send_records: int
    latency_s: float
    catchup_bytes: int
    spark_bytes: int
    idle_s: float
    memory_s: float
    traffic_s: float
    """Seconds of a record per second to each of many topics."""
    one_by_one_s: float
    small_sends: int
    """Records sent one after another, by each publisher."""
    parts: tuple[str, ...] = ()
    """Parts of ``kafka`` and ``spark`` to run: only these."""
    tier: str = "quick"
    """Tier of ``kafka-load``: a name of ``kafka_load.tiers``."""
    duration_s: float | None = None
    """Duration of ``kafka-load``, if not the tier's own."""
    bootstrap: str | None = None
    """Servers for ``kafka-load``: a running Kafka, instead of a new cluster."""

    def target(self, bound: float) -> float | None:
        """Return a target that is meant for the full sizes only: a quick run has very different ones."""
        return None if self.quick else bound


def full(directory: Path, pictures: Path) -> Scale:
    """Return the sizes that the targets are meant for."""
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
    """Return sizes that suffice to find defects."""
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
