"""Entry point of the command `seaweedmq`.

It imports the rest lazily, so that Ctrl-C is quiet during loading as well.
"""

import io
import os
import sys


def run() -> None:
    """Run the command; exit with 0 for success, 1 for one line of error, 2 for wrong usage, 130 for an interrupt."""
    _occupy_closed_streams()
    # gRPC logs every lost connection; the log of this process reports what it means.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Spark starts its JVM by fork, and gRPC's fork handlers may end the child.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        from seaweedmq.cli.app import app
        from seaweedmq.cli.output import one_line_errors

        with one_line_errors():
            app()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _occupy_closed_streams() -> None:
    """Occupy the descriptors of closed standard streams (``>&-``), which the next file or socket would otherwise get.

    Reading stdin and writing stdout then fail, as if they were closed: records that reached no reader are not
    acknowledged. What is written to stderr is dropped.
    """
    for descriptor, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, flags)  # the lowest free descriptor: this one
    if sys.stdout is None:
        sys.stdout = _unbuffered(1)
    if sys.stderr is None:
        sys.stderr = _unbuffered(2)


def _unbuffered(descriptor: int) -> io.TextIOWrapper:
    """Return an unbuffered text stream: a buffered rest would fail again when the interpreter closes it."""
    return io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), write_through=True)


if __name__ == "__main__":
    run()
