"""SeaweedMQ beside Apache Kafka and Redis Streams: the same work, on this machine, in this hour, in turns.

    python -m benchmarks.peers [--quick] [--systems NAME,...] [--suites NAME,...] [--rounds N]
                               [--json FILE] [--markdown FILE] [--render]

Kafka comes from Maven Central when it is first needed, and takes part where Java 17, Maven and confluent-kafka are;
Redis does where ``redis-server`` and redis-py are. ``pip install -e '.[peers]'`` brings their clients.
``benchmarks/README.md`` says what is measured, and what was chosen and why.
"""

import sys

if __name__ == "__main__":
    # Here, since each client process imports this module again, and must not load what only servers and rounds need.
    from benchmarks.contest.main import main

    sys.exit(main())
