"""Readable texts for rates."""

from seaweedmq.core.balance.input import ClusterColumns, Loads


def load_beside_target(cluster: ClusterColumns, loads: Loads, row: int) -> str:
    """Return a text like ``carries 130 MB/s, 2.0 times its target of 64 MB/s``, for bytes or records.

    The unit with the larger load relative to its target is chosen.
    """
    topic = cluster.topic[row]
    bytes_per_s, bytes_target = float(loads.bytes_per_s[row]), float(cluster.topic_target_bytes_per_s[topic])
    records_per_s, records_target = float(loads.records_per_s[row]), float(cluster.topic_target_records_per_s[topic])
    if bytes_per_s / bytes_target >= records_per_s / records_target:
        rate, target, words = bytes_per_s, bytes_target, bytes_per_s_in_words
    else:
        rate, target, words = records_per_s, records_target, records_per_s_in_words
    return f"carries {words(rate)}, {rate / target:.1f} times its target of {words(target)}"


def bytes_per_s_in_words(rate: float) -> str:
    """Return a text like ``130 MB/s``: at most three digits, except for very large rates."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if rate >= 0.9995 * size:
            return f"{rate / size:,.3g} {unit}" if rate < 999.5 * size else f"{rate / size:,.0f} {unit}"
    return f"{rate:.0f} B/s"


def records_per_s_in_words(rate: float) -> str:
    """Return a text like ``620,000 records/s``."""
    return f"{rate:,.0f} records/s"
