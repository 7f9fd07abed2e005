"""Recorder of Apache Kafka's answers: ``python -m tests.kafka.differential record`` plays the script to it.

Needs Java 17, and Maven, which downloads Apache Kafka.
"""

import sys

from tests.kafka.differential.recorder import record

if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", *titles]:
            record(titles)
        case _:
            sys.exit(__doc__)
