"""Yardstick of everything on the network: a plain gRPC stream of byte messages between two processes.

It has no serializers, no protobuf: bytes in, bytes out, every message acknowledged. Its server has the same process
settings as a broker (``cli.servers.process.tune``), its client is in the process that is also SeaweedMQ's client.

Every message is a new bytes object, copied from a template, as in real senders. Sending the same object a thousand
times, with its pages warm in the cache, measures gRPC for a sender without data; it is reported as ``raw stream, one
object``, and nothing is compared with it.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
import uvloop

from seaweedmq.cli.servers.process import tune

SERVICE = "bench.Raw"
MESSAGE_BYTES = 1024 * 1024
ACK = b"acknowledged"
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
PACED_MESSAGES_PER_S = 500
UNTUNED = "--untuned"


async def _sink(messages: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
    """Acknowledge every message."""
    async for _ in messages:
        await context.write(ACK)


async def _source(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
    """Send the number of messages in the request."""
    template = memoryview(bytes(MESSAGE_BYTES))
    for _ in range(int(request)):
        await context.write(bytes(template))


async def _serve() -> None:
    server = grpc.aio.server(options=OPTIONS)
    handlers = {
        "Sink": grpc.stream_stream_rpc_method_handler(_sink),
        "Source": grpc.unary_stream_rpc_method_handler(_source),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the parent closes it or ends
    await server.stop(0)


class RawStream:
    """Client of the stream. It opens one connection per measurement, as a SeaweedMQ publisher does."""

    def __init__(self, address: str, pid: int, runner: asyncio.Runner) -> None:
        self.pid = pid
        """Id of the server's process."""
        self._address = address
        self._runner = runner
        """One loop for all measurements: gRPC's poller reports errors about loops that come and go."""

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:  # Any: the stubs lack calls without serializers
        async with grpc.aio.insecure_channel(self._address, options=OPTIONS) as channel:
            await channel.channel_ready()
            yield channel

    def push(self, total_bytes: int, *, one_object: bool = False) -> float:
        """Send that much and receive every acknowledgement; return bytes per second."""
        return self._runner.run(self._push(total_bytes // MESSAGE_BYTES, one_object))

    async def _push(self, count: int, one_object: bool) -> float:
        async with self._connected() as channel:
            call = channel.stream_stream(f"/{SERVICE}/Sink")()
            template = memoryview(bytes(MESSAGE_BYTES))
            same = bytes(template)

            async def send() -> None:
                for _ in range(count):
                    await call.write(same if one_object else bytes(template))
                await call.done_writing()

            began = time.perf_counter()
            sending = asyncio.create_task(send())
            acknowledged = 0
            async for _ in call:
                acknowledged += 1
            took = time.perf_counter() - began
            await sending
            if acknowledged != count:
                raise AssertionError(f"{acknowledged} of {count} messages were acknowledged")
            return count * MESSAGE_BYTES / took

    def pull(self, total_bytes: int) -> float:
        """Let the server send that much; return bytes per second."""
        return self._runner.run(self._pull(total_bytes // MESSAGE_BYTES))

    async def _pull(self, count: int) -> float:
        async with self._connected() as channel:
            began = time.perf_counter()
            received = 0
            async for message in channel.unary_stream(f"/{SERVICE}/Source")(str(count).encode()):
                received += len(message)
            return received / (time.perf_counter() - began)

    def round_trips_ms(self, seconds: float, message_bytes: int) -> list[float]:
        """Return milliseconds from message to acknowledgement, at a calm pace; ascending."""
        return self._runner.run(self._round_trips_ms(seconds, message_bytes))

    async def _round_trips_ms(self, seconds: float, message_bytes: int) -> list[float]:
        async with self._connected() as channel:
            call = channel.stream_stream(f"/{SERVICE}/Sink")()
            template = memoryview(bytes(message_bytes))
            took: list[float] = []
            for _ in range(int(seconds * PACED_MESSAGES_PER_S)):
                began = time.perf_counter()
                await call.write(bytes(template))
                await call.read()
                took.append((time.perf_counter() - began) * 1e3)
                await asyncio.sleep(1 / PACED_MESSAGES_PER_S)
            call.cancel()
            return sorted(took)

    def converse(self, streams: int, messages: int, message_bytes: int) -> None:
        """Send so many messages on each of so many streams at once, the next once the last is acknowledged."""
        self._runner.run(self._converse(streams, messages, message_bytes))

    async def _converse(self, streams: int, messages: int, message_bytes: int) -> None:
        async with self._connected() as channel:
            template = memoryview(bytes(message_bytes))

            async def talk() -> None:
                call = channel.stream_stream(f"/{SERVICE}/Sink")()
                for _ in range(messages):
                    await call.write(bytes(template))
                    await call.read()
                call.cancel()

            await asyncio.gather(*(talk() for _ in range(streams)))


@contextlib.contextmanager
def raw_stream(*, tuned: bool = True) -> Iterator[RawStream]:
    """Run the server as a separate process, with a client. Untuned, it is grpc.aio with Python's defaults."""
    command = [sys.executable, "-m", "benchmarks.raw_stream", *([] if tuned else [UNTUNED])]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield RawStream(f"127.0.0.1:{int(process.stdout.readline())}", process.pid, runner)
        finally:
            process.stdin.close()


if __name__ == "__main__":
    if UNTUNED not in sys.argv:
        tune()
    uvloop.run(_serve())
