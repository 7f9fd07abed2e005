"""Test of a flood on a topic of one segment: it grows, it shrinks, and a group that loses two members reads it in
order.

The benchmark measures the speed (``python -m benchmarks --suite flood``).
"""

from pathlib import Path

import pytest

from tests.faults.episode import stage
from tests.faults.users.flood import SEGMENTS_MIN, SETTINGS, flood

pytestmark = [pytest.mark.integration, pytest.mark.timeout(480)]


@pytest.mark.deep
async def test_a_flood_is_spread_over_all_brokers_and_one_segment_is_left_in_the_end(tmp_path: Path) -> None:
    async with stage(tmp_path, settings=SETTINGS) as cluster:
        outcome = await flood(cluster, flood_s=0.0, say=print)
    assert not outcome.violations, outcome.violations[:5]
    assert outcome.segments_max >= SEGMENTS_MIN
    assert outcome.acked >= outcome.flooded > 0
