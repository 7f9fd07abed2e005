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


def test_tables_of_the_catalog_have_columns_and_want_their_options(spark: SparkSession, orders: TopicFiles) -> None:
    """Spark passes a table's options, renamed, to the method that returns the schema, and none of them to a reader."""
    orders.table(0, 20)
    orders.log(20, 25)
    assert spark.conf.get("spark.sql.catalogImplementation") == "in-memory"  # there is no metastore
    spark.sql(f"CREATE TABLE t USING seaweedmq OPTIONS (storage '{orders.root}', topic 'shop/orders') COMMENT 'ours'")
    try:
        assert spark.table("t").columns == ["topic", "segment", "offset", "timestamp", "key", "value", "headers"]
        given = f"WITH (storage = '{orders.root}', topic = 'shop/orders', startingOffsets = '5')"
        assert spark.sql(f"SELECT min(offset), max(offset) FROM t {given} WHERE offset < 22").collect() == [(5, 21)]
        with pytest.raises(
            Exception, match=r"InvalidArgument: option 'storage' is missing: .* give them in the query, "
        ):
            spark.sql("SELECT max(offset) FROM t").collect()
    finally:
        spark.sql("DROP TABLE t")
    assert len(orders.files()) == 2  # only the name is dropped
