"""A TCP proxy whose two directions can be cut as in a broken network: silently, and without loss after repair."""

import asyncio
import contextlib

CHUNK_BYTES = 256 * 1024


class Gate:
    """A gate that passes bytes of one direction, or holds them."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def set(self, *, is_open: bool) -> None:
        """Open or shut it. Held bytes pass once it opens, as TCP retransmits unacknowledged data."""
        if is_open:
            self._open.set()
        else:
            self._open.clear()

    async def wait(self) -> None:
        await self._open.wait()


class Proxy:
    """A proxy from ``listen`` to ``target``; ``there`` and ``back`` are its directions."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.there = Gate()
        self.back = Gate()
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._address = ("", 0)

    @property
    def address(self) -> str:
        """The ``host:port`` to connect to. Requires that it was started."""
        return f"{self._address[0]}:{self._address[1]}"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = await asyncio.start_server(self._on_link, host, port)
        self._address = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        """Hold all later bytes in these directions; connections stay open, and new ones get no answer."""
        self.there.set(is_open=not there)
        self.back.set(is_open=not back)

    def heal(self) -> None:
        self.cut(there=False, back=False)

    def hang_up(self) -> int:
        """End every current connection, which loses bytes in transit; accept new ones. Return the number ended."""
        for link in self._links:
            link.cancel()
        return len(self._links)

    def _on_link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.create_task(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            async with contextlib.AsyncExitStack() as stack:
                stack.callback(writer.close)
                await self.there.wait()
                far_reader, far_writer = await asyncio.open_connection(*self.target)
                stack.callback(far_writer.close)
                pumps = {
                    asyncio.create_task(_pump(reader, far_writer, self.there)),
                    asyncio.create_task(_pump(far_reader, writer, self.back)),
                }
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: Gate) -> None:
    """Copy bytes and the end of the stream, which a shut gate also holds."""
    while True:
        data = await reader.read(CHUNK_BYTES)
        await gate.wait()
        if not data:
            return
        writer.write(data)
        await writer.drain()
