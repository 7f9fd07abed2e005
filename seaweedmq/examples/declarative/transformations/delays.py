"""Outputs of the pipeline: the hours of ``flights_streaming``, as a table and in a topic.

Spark finds the format ``seaweedmq`` by itself where the package is installed.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from seaweedmq.examples import flights_streaming, nyc

spark = SparkSession.active()
PLACE = {name: spark.conf.get(f"spark.seaweedmq.{name}") for name in ("bootstrap", "storage")}
SOURCE, TARGET = (spark.conf.get(f"spark.seaweedmq.{name}") for name in ("source", "target"))


@dp.table
def delays_by_hour() -> DataFrame:
    """Return a row for every airport and hour that no further flight can change; the stream keeps the other hours."""
    # The topic is read here and not by a view of its own: Spark analyzes the operand of ``withColumn`` as soon as the
    # flow is defined, when it knows no view of the pipeline yet.
    flights = spark.readStream.format("seaweedmq").options(**PLACE, topic=SOURCE, startingOffsets="earliest").load()
    return flights_streaming.delays_by_hour(flights, spark.createDataFrame(nyc.weather()))


dp.create_sink("delays", "seaweedmq", {**PLACE, "topic": TARGET, "key": "origin"})


@dp.append_flow(target="delays")
def publish_delays() -> DataFrame:
    """Return every row of the table, for the topic, exactly once: the flow's checkpoint is the sink's identity."""
    return spark.readStream.table("delays_by_hour")
