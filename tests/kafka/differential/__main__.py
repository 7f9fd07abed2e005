"""``python -m tests.kafka.differential record``: play the script to Apache Kafka, which Maven brings, and keep its
answers. Needs Java 17 and Maven.
"""

import sys

from tests.kafka.differential.recorder import record

if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", *titles]:
            record(titles)
        case _:
            sys.exit(__doc__)
