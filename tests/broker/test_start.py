"""A leader that does not know its own cluster yet makes callers wait."""

import asyncio

from tests.broker.testbed import CONFIG, NAME, Host, Testbed, story


@story
async def test_a_leader_that_has_not_heard_of_its_own_cluster_yet_makes_callers_wait(testbed: Testbed) -> None:
    host = Host(testbed, CONFIG, "broker-0:7777", 0)
    testbed.hosts.append(host)
    host.meta.hears.clear()
    await testbed.network.spawn(host.owner, host.broker.start())
    await asyncio.sleep(1)
    assert not host.inspect.view.brokers, "the registration is still on its way to the view"
    creating = asyncio.ensure_future(testbed.topic(host))
    await asyncio.sleep(1)
    assert not creating.done()
    host.meta.hears.set()
    assert (await creating).topic.name == NAME
