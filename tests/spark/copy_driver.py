"""A separate driver that copies a topic into another one: ``python -m tests.spark.copy_driver JSON``."""

import json
import sys

from benchmarks.spark.session import spark_session


def main() -> None:
    """Run the query until it is killed or, on request, until it has copied all records."""
    given = json.loads(sys.argv[1])
    settings = {
        "spark__sql__shuffle__partitions": "2",
        "spark__driver__memory": "600m",
        "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # up in half the time
        "spark__local__dir": given["scratch"],
        "spark__sql__warehouse__dir": given["scratch"],
    }
    with spark_session("local[2]", **settings) as spark:
        source = spark.readStream.format("seaweedmq").options(**given["source"]).load()
        copying = source.select("key", "value", "timestamp").writeStream.format("seaweedmq").options(**given["copy"])
        copying = copying.option("checkpointLocation", given["checkpoint"])
        copying = copying.trigger(availableNow=True) if given["ends"] else copying.trigger(processingTime="0 seconds")
        copying.start().awaitTermination()


if __name__ == "__main__":
    main()
