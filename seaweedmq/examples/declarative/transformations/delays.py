"""What the pipeline makes. Spark finds the format ``seaweedmq`` by itself where the package is installed."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
TOPIC = {name: spark.conf.get(f"spark.seaweedmq.{name}") for name in ("bootstrap", "storage", "topic")}


@dp.table
def flights() -> DataFrame:
    """Every flight once, with where it lies in the topic: a run takes in what came since the one before."""
    stream = spark.readStream.format("seaweedmq").options(**TOPIC, startingOffsets="earliest").load()
    return stream.select("segment", "offset", "origin", "carrier", "time_hour", "dep_delay")


@dp.materialized_view
def delays_by_hour() -> DataFrame:
    """Mean departure delay by airport and hour, in minutes."""
    by_hour = spark.read.table("flights").groupBy("origin", f.col("time_hour").alias("hour"))
    return by_hour.agg(f.count("*").alias("flights"), f.avg("dep_delay").alias("mean_delay"))
