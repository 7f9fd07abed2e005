"""SeaweedMQ beside Apache Kafka and Redis Streams: the same work, on one machine, in the same hour, in turns.

    python -m benchmarks.peers [--quick] [--systems NAME,...] [--suites NAME,...] [--rounds N]
                               [--json FILE] [--markdown FILE] [--render]

Kafka comes from Maven Central when it is first needed, and requires Java 17, Maven and confluent-kafka; Redis requires
``redis-server`` and redis-py. ``pip install -e '.[peers]'`` installs their clients. ``benchmarks/README.md`` lists the
measurements, and the choices with their reasons.
"""

import sys

if __name__ == "__main__":
    # Lazy: each client process imports this module again, and must not load what only servers and rounds need.
    from benchmarks.contest.main import main

    sys.exit(main())
