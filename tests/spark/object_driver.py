"""A separate driver that reads and compacts a topic in a bucket: ``python -m tests.spark.object_driver JSON``."""

import json
import os
import sys

import seaweedmq.spark
from benchmarks.spark.session import spark_session
from seaweedmq.spark import jobs


def main() -> None:
    """Print what the source, the function ``read``, a stream and the jobs find, as JSON."""
    storage, topic, folder = json.loads(sys.argv[1])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    path = os.environ.get("PYTHONPATH", "")
    with spark_session("local[2]", spark__executorEnv__PYTHONPATH=path) as spark:
        options = {"storage": storage, "topic": topic}
        before = spark.read.format("seaweedmq").options(**options).load()
        found: dict[str, object] = {"before": sorted(row.offset for row in before.select("offset").collect())}
        found["verified"] = jobs.verify(spark, **options).is_sound
        made = jobs.compact(spark, **options)
        found["compacted"] = [made.merged, [str(problem) for problem in made.problems]]
        found["records"] = jobs.history(**options)[-1].records
        after = seaweedmq.spark.read(spark, **options)
        found["after"] = sorted(row.offset for row in after.select("offset").collect())
        query = (
            spark.readStream.format("seaweedmq")
            .options(**options, startingOffsets="earliest")
            .load()
            .writeStream.format("memory")
            .queryName("rows")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found["streamed"] = sorted(row.offset for row in spark.sql("select offset from rows").collect())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
