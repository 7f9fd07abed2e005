"""Spark's own Parquet reader reads from the tables of a Delta version what SeaweedMQ reads."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from seaweedmq.storage.place import Place
from seaweedmq.storage.tables.delta.updater import DeltaLogs
from tests.support.open_tables import (
    by_seaweedmq,
    commits_of,
    content,
    folder_of,
    merge,
    tables_of_version,
    unlink_within,
)
from tests.support.topic_files import TopicFiles

pytestmark = pytest.mark.integration


def test_tables_of_each_version_and_the_folder_as_a_whole(
    spark: SparkSession, orders: TopicFiles, tmp_path_factory: pytest.TempPathFactory
) -> None:
    logs = DeltaLogs()
    for n in range(4):
        orders.table(50 * n, 50 * n + 50)
    assert logs.reconcile(Place(orders.root), orders.topic) == 0
    whole = content(by_seaweedmq(orders.root, orders.name))
    merge(orders, 0, 150, tmp_path_factory.mktemp("aside"))
    assert logs.reconcile(Place(orders.root), orders.topic) == 1
    unlink_within(orders, 0, 150)
    orders.table(200, 250)
    assert logs.reconcile(Place(orders.root), orders.topic) == 2
    for version, count in ((0, 200), (1, 200), (2, 250)):
        tables = tables_of_version(orders, version)
        rows = rows_of(spark, *(orders.root / t.path for t in tables))
        assert rows.num_rows == count
        assert (content(rows) == whole) == (count == 200)
    assert len(commits_of(orders)) == 3
    now = content(by_seaweedmq(orders.root, orders.name))
    assert content(rows_of(spark, folder_of(orders))) == now, "the log disturbs no reader of the folder"
    assert content(ds.dataset(folder_of(orders), format="parquet").to_table()) == now


def rows_of(spark: SparkSession, *paths: Path) -> pa.Table:
    return spark.read.parquet(*map(str, paths)).toArrow()
