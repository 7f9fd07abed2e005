"""Fixtures: a proxy in front of a store of S3, and clients of both."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from seaweedmq.storage.objects.uri import ObjectsUri
from tests.sim.machines.loop import SimLoop
from tests.support.moto_server import MotoServer, point_to
from tests.support.object_proxy import ObjectProxy


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return a loop on virtual time for the rule of retries, whose tests need no server."""
    return {"virtual": SimLoop} if item.path.name == "test_requests.py" else {"real": asyncio.new_event_loop}


@pytest.fixture
async def proxy(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ObjectProxy]:
    """A proxy that clients of this process use."""
    async with ObjectProxy(moto.port) as running:
        point_to(moto, monkeypatch.setenv, monkeypatch.delenv, running.port)
        yield running


@pytest.fixture
def objects(moto: MotoServer, proxy: ObjectProxy) -> ObstoreObjects:
    """A store of this test's own, through the proxy."""
    return ObstoreObjects(ObjectsUri.parse(f"s3://{moto.new_bucket()}/prefix"), rng=random.Random(1))


@pytest.fixture
def direct(moto: MotoServer, objects: ObstoreObjects, monkeypatch: pytest.MonkeyPatch) -> ObstoreObjects:
    """The same store without the proxy."""
    point_to(moto, monkeypatch.setenv, monkeypatch.delenv)
    return ObstoreObjects(ObjectsUri.parse(objects.uri))
