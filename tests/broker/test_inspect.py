"""A broker shows its figures as values of one moment, which no reader can change."""

from dataclasses import FrozenInstanceError

import pytest

from seaweedmq.core.segment.segment_lifecycle import SegmentStage
from tests.broker.testbed import NAME, Testbed, story


@story
async def test_figures_of_a_segment_at_its_primary_and_its_follower(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    await testbed.topic(hosts[0], replicas=2)
    primary = await testbed.primary(hosts[0])
    follower = next(host for host in hosts if host is not primary)
    publishing = await primary.publisher()
    await publishing.store(count=2)
    await testbed.until(lambda: follower.broker.inspect.replicas()[0].committed == 2)

    (segment,) = primary.broker.inspect.segments()
    assert (segment.segment, segment.stage) == (primary.inspect.view.segments[NAME][0], SegmentStage.SERVING)
    assert (segment.committed, segment.written, segment.replicated, segment.end, segment.trouble) == (2, 2, 2, 2, "")
    (replica,) = follower.broker.inspect.replicas()
    assert (replica.end, replica.is_fenced) == (2, False)
    assert not follower.broker.inspect.segments()
    logs = primary.broker.inspect.budgets()[0]
    assert 0 < segment.cached_bytes <= logs.used_bytes <= logs.peak_bytes <= logs.limit_bytes
    assert [host.broker.inspect.leads for host in hosts] == [host is testbed.leader() for host in hosts]

    await publishing.store()
    assert (segment.end, primary.broker.inspect.segments()[0].end) == (2, 3)
    with pytest.raises(FrozenInstanceError):
        segment.end = 0  # type: ignore[misc]
