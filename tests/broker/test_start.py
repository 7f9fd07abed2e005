"""The first moments of a cluster."""

import asyncio

from tests.broker.bed import CONFIG, NAME, Bed, Host, story


@story
async def test_a_leader_that_has_not_heard_of_its_own_cluster_yet_makes_callers_wait(bed: Bed) -> None:
    host = Host(bed, CONFIG, "broker-0:7777", 0)
    bed.hosts.append(host)
    host.meta.hears.clear()
    await bed.network.spawn(host.owner, host.broker.start())
    await asyncio.sleep(1)
    assert not host.inspect.view.brokers, "the registration is still on its way to the view"
    creating = asyncio.ensure_future(bed.topic(host))
    await asyncio.sleep(1)
    assert not creating.done()
    host.meta.hears.set()
    assert (await creating).topic.name == NAME
