"""Entry of the command `seaweedmq`. It imports the rest late, so that Ctrl-C while loading is as quiet as any other."""

import os


def run() -> None:
    """Exit status: 0 done, 1 refused or failed with one line on stderr, 2 wrong usage, 130 interrupted."""
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


if __name__ == "__main__":
    run()
