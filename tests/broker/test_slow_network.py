"""A network that delays every message: brokers and clients take longer, and lose and reject nothing."""

from tests.broker.testbed import CONFIG, Testbed, story, values

LATE_S = (0.2, 0.5)
FRAMES = 30


@story
async def test_a_slow_network_delays_everything_and_loses_nothing(testbed: Testbed) -> None:
    hosts = await testbed.several(3, replicas=3)
    primary = await testbed.primary(hosts[0])
    publisher = await primary.publisher()
    testbed.network.faults.latency_s_min, testbed.network.faults.latency_s_max = LATE_S
    began = testbed.loop.time()
    for _ in range(FRAMES):
        await publisher.send()
    assert await publisher.acks(FRAMES) == [(n, n) for n in range(FRAMES)]
    assert testbed.loop.time() - began > CONFIG.replica_timeout_s, "so late that a silent replica would be replaced"
    reader = await primary.subscriber()
    assert await reader.until(FRAMES) == values(1, FRAMES)
    (segment,) = primary.inspect.view.open_of(next(iter(primary.inspect.view.topics))).values()
    assert (segment.id, len(segment.replicas)) == (0, 3), "no replica is given up for being far away"
