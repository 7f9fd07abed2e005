"""Entry of the command `seaweedmq`. It imports the rest late, so that Ctrl-C while loading is as quiet as any other."""

import io
import os
import sys


def run() -> None:
    """Exit status: 0 done, 1 refused or failed with one line on stderr, 2 wrong usage, 130 interrupted."""
    _occupy_closed_streams()
    # gRPC's own log speaks of every connection that is lost; ours says what it means.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Spark starts its JVM by fork: what gRPC does in the child then may end it.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        from seaweedmq.cli.app import app
        from seaweedmq.cli.output import one_line_errors

        with one_line_errors():
            app()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _occupy_closed_streams() -> None:
    """Keep the descriptors of standard streams that were closed (``>&-``) from the next file or socket, which would be
    taken for them.

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
    """Text without a buffer: a rest of it would fail again when the interpreter closes it."""
    return io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), write_through=True)


if __name__ == "__main__":
    run()
