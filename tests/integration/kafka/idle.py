"""Silent connections, in separate processes: the limit of open files is per process.

As a program (``python -m tests.integration.kafka.idle PORT COUNT``): opens them, reports that, and keeps them until
stdin ends.
"""

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

EACH = 2_500
"""Number of connections of one process."""


@contextmanager
def idle(port: int, count: int) -> Iterator[None]:
    """Keep so many connections to a port of this machine while the block runs."""
    with ExitStack() as stack:
        processes = []
        for begun in range(0, count, EACH):
            command = [sys.executable, "-m", __name__, str(port), str(min(EACH, count - begun))]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)  # closes its stdin and waits for it
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
        yield


def main() -> None:
    port, count = map(int, sys.argv[1:])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    print("open", flush=True)
    sys.stdin.read()
    del connections


if __name__ == "__main__":
    main()
