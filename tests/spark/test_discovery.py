"""Spark finds the format by itself: by its name, in SQL and in its catalog."""

import pytest
from pyspark.sql import SparkSession

from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration


def test_a_session_that_nobody_set_up_finds_the_format(spark: SparkSession, orders: TopicFiles) -> None:
    orders.table(0, 20)
    orders.log(20, 25)
    other = spark.newSession()
    assert other.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
    frame = other.read.format("seaweedmq").options(storage=str(orders.root), topic="shop/orders").load()
    assert frame.where("offset >= 22").count() == 3


def test_views_of_sql(spark: SparkSession, orders: TopicFiles) -> None:
    orders.table(0, 20)
    orders.log(20, 25)
    options = f"OPTIONS (storage '{orders.root}', topic 'shop/orders')"
    spark.sql(f"CREATE TEMPORARY VIEW v USING seaweedmq {options}")
    assert spark.sql("SELECT max(offset) FROM v WHERE offset < 22").collect() == [(21,)]
    spark.sql("DROP VIEW v")
