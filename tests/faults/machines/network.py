"""Networks of brokers: behind proxies on 127.0.0.1, or each in a network namespace.

``Loopback`` works on every machine and can cut a broker off from all peers. ``Namespaces`` needs root and can also drop
packets from one broker to another, in one direction, without an error at the sender: it replaces the neighbor's
hardware address by an unused one, so that packets vanish as on a cable broken in one direction.
"""

import asyncio
import os
import secrets
from typing import Protocol

from tests.faults.machines.proxy import Proxy
from tests.support.free_ports import free_ports

NOBODY = "02:00:00:00:00:01"
"""A hardware address that no interface has."""
BROKER_PORT = 17777
KAFKA_PORT = 19092


class Unsupported(Exception):
    """This machine does not support it; the message has the reason."""


class Network(Protocol):
    """The interface that ``Cluster`` needs. Broker numbers begin at 0."""

    host: str
    """Address of the test process, its clients and proxies."""
    can_cut_pairs: bool

    async def start(self, brokers: int) -> None: ...

    async def close(self) -> None: ...

    def command(self, broker: int) -> list[str]:
        """Return the prefix of a broker's command line."""

    def listen(self, broker: int) -> str: ...

    def advertise(self, broker: int) -> str: ...

    def kafka(self, broker: int) -> tuple[str, int]:
        """Return the broker's listen address for Kafka clients."""

    async def cut_off(self, broker: int) -> None:
        """Make the broker unreachable; it may still connect to others and etcd."""

    async def cut_pair(self, source: int, target: int) -> None:
        """Drop packets from ``source`` to ``target``, in this direction only. Needs ``can_cut_pairs``."""

    async def heal(self) -> None: ...


class Loopback:
    """All brokers on 127.0.0.1, each behind a proxy at its advertised address."""

    host = "127.0.0.1"
    can_cut_pairs = False

    def __init__(self) -> None:
        self._ports: list[int] = []
        self._kafka_ports: list[int] = []
        self._fronts: list[Proxy] = []

    async def start(self, brokers: int) -> None:
        first = free_ports(2 * brokers)
        self._kafka_ports = [first + brokers + broker for broker in range(brokers)]
        for port in range(first, first + brokers):
            front = Proxy((self.host, port))
            await front.start()
            self._ports.append(port)
            self._fronts.append(front)

    async def close(self) -> None:
        for front in self._fronts:
            await front.close()

    def command(self, broker: int) -> list[str]:
        return []

    def listen(self, broker: int) -> str:
        return f"{self.host}:{self._ports[broker]}"

    def advertise(self, broker: int) -> str:
        return self._fronts[broker].address

    def kafka(self, broker: int) -> tuple[str, int]:
        return self.host, self._kafka_ports[broker]

    async def cut_off(self, broker: int) -> None:
        self._fronts[broker].cut()

    def hang_up(self, broker: int) -> int:
        """End every connection to the broker; new ones open at once. Return the number of ended ones."""
        return self._fronts[broker].hang_up()

    async def cut_pair(self, source: int, target: int) -> None:
        raise Unsupported("one process sees no difference between packets of two others on 127.0.0.1")

    async def heal(self) -> None:
        for front in self._fronts:
            front.heal()


class Namespaces:
    """A network namespace for each broker, joined by a bridge to the test process."""

    can_cut_pairs = True

    def __init__(self) -> None:
        self._tag = f"{os.getpid() % 0xFFFF:04x}{secrets.token_hex(1)}"
        self._subnet = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(254) + 1}"
        self.host = f"{self._subnet}.1"
        self._brokers = 0
        self._cuts: list[tuple[int, str]] = []

    async def start(self, brokers: int) -> None:
        """Start the network.

        Raises:
            Unsupported: If the process is not root, or the machine has no network namespaces."""
        if os.geteuid() != 0:
            raise Unsupported("network namespaces need root")
        bridge = f"smqb{self._tag}"
        try:
            await _ip("link", "add", bridge, "type", "bridge")
            await _ip("addr", "add", f"{self.host}/24", "dev", bridge)
            await _ip("link", "set", bridge, "up")
            for broker in range(brokers):
                self._brokers = broker + 1
                name, link = self._name(broker), f"smqv{self._tag}{broker}"
                await _ip("netns", "add", name)
                await _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
                await _ip("link", "set", link, "master", bridge, "up")
                await _ip("-n", name, "addr", "add", f"{self._address(broker)}/24", "dev", "eth0")
                await _ip("-n", name, "link", "set", "eth0", "up")
                await _ip("-n", name, "link", "set", "lo", "up")
        except Unsupported:
            await self.close()
            raise

    async def close(self) -> None:
        for broker in range(self._brokers):
            await _ip("netns", "del", self._name(broker), check=False)
        await _ip("link", "del", f"smqb{self._tag}", check=False)

    def command(self, broker: int) -> list[str]:
        return ["ip", "netns", "exec", self._name(broker)]

    def listen(self, broker: int) -> str:
        return f"{self._address(broker)}:{BROKER_PORT}"

    def advertise(self, broker: int) -> str:
        return self.listen(broker)

    def kafka(self, broker: int) -> tuple[str, int]:
        return self._address(broker), KAFKA_PORT

    async def cut_off(self, broker: int) -> None:
        for other in range(self._brokers):
            if other != broker:
                await self.cut_pair(broker, other)
                await self.cut_pair(other, broker)

    async def cut_pair(self, source: int, target: int) -> None:
        place = self._address(target)
        await _ip(
            *("-n", self._name(source), "neigh", "replace", place, "lladdr", NOBODY),
            *("dev", "eth0", "nud", "permanent"),
        )
        self._cuts.append((source, place))

    async def heal(self) -> None:
        cuts, self._cuts = self._cuts, []
        for source, place in cuts:
            await _ip("-n", self._name(source), "neigh", "del", place, "dev", "eth0", check=False)

    def _name(self, broker: int) -> str:
        return f"smqn{self._tag}{broker}"

    def _address(self, broker: int) -> str:
        return f"{self._subnet}.{broker + 10}"


async def _ip(*arguments: str, check: bool = True) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            "ip", *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
    except FileNotFoundError:
        raise Unsupported("there is no `ip` command: install iproute2") from None
    _, complaint = await process.communicate()
    if check and process.returncode != 0:
        raise Unsupported(f"`ip {' '.join(arguments)}` is refused: {complaint.decode().strip()}")


async def best_network(brokers: int) -> tuple[Network, str]:
    """Start a network, with namespaces if possible; return it and the reason if not."""
    namespaces = Namespaces()
    try:
        await namespaces.start(brokers)
    except Unsupported as why:
        loopback = Loopback()
        await loopback.start(brokers)
        return loopback, str(why)
    return namespaces, ""
