"""The commands of the examples, word for word as in the modules and the README, one after another."""

import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.image import imread
from pyspark.sql import SparkSession

from benchmarks.demo.windows import check_hours
from seaweedmq.examples import backfill_then_live, flights_streaming, nyc, plot_delays, publish_flights
from seaweedmq.examples.declarative import __main__ as declarative
from tests.examples.conftest import Beside

pytestmark = pytest.mark.integration

PREFIX = "python -m seaweedmq.examples."
PUBLISH_JANUARY = f"{PREFIX}publish_flights --days 31"
STREAM = f"{PREFIX}flights_streaming --checkpoint delays-checkpoint --until-done"
PUBLISH_FEBRUARY = f"{PREFIX}publish_flights --first-day 32 --days 28"
COUNT = f"{PREFIX}backfill_then_live --flights 51955"
PLOT = f"{PREFIX}plot_delays --png delays.png"
WRITE_PIPELINE = f"{PREFIX}declarative pipeline"
RUN_PIPELINE = "cd pipeline && spark-pipelines run --conf spark.sql.catalogImplementation=hive"
COMMANDS = {PUBLISH_JANUARY, STREAM, PUBLISH_FEBRUARY, COUNT, PLOT, WRITE_PIPELINE, RUN_PIPELINE}
EXAMPLES = publish_flights, flights_streaming, backfill_then_live, plot_delays, declarative
PIPELINE_S = 280
"""Timeout in seconds: a run of the pipeline takes less than a minute alone, and begins with a JVM and a server."""
README = Path(__file__).parents[2] / "seaweedmq" / "spark" / "README.md"
TWO_MONTHS = 51_955
"""Flights of January and February."""


def shown(text: str) -> list[str]:
    """Return the commands in a text, without their comments."""
    lines = re.findall(r"^\s*((?:python -m seaweedmq\.examples\.|cd pipeline|spark-pipelines).*)$", text, re.MULTILINE)
    return [line.split("  #")[0].strip() for line in lines]


@pytest.fixture
def there(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which `seaweedmq up` was called."""
    monkeypatch.chdir(beside.folder)
    monkeypatch.setenv("SEAWEEDMQ_BOOTSTRAP", beside.bootstrap)
    return beside.folder


def run(command: str) -> None:
    """Run a command in this process: starting a Spark for each takes long."""
    module, *arguments = shlex.split(command.removeprefix(PREFIX))
    name = f"seaweedmq.examples.{module}"
    import_module(f"{name}.__main__" if module == "declarative" else name).main(arguments)


def test_no_other_command_is_shown() -> None:
    of_modules = {command for example in EXAMPLES for command in shown(example.__doc__ or "")}
    assert len(of_modules) >= len(COMMANDS)
    assert (
        not (of_modules | set(shown(README.read_text())))
        - set(COMMANDS)
        - {
            f"{PREFIX}backfill_then_live"  # the same without an end
        }
    )


@pytest.mark.deep
@pytest.mark.timeout(480)
def test_the_commands_do_what_is_said_of_them(
    spark: SparkSession, beside: Beside, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(PUBLISH_JANUARY)
    run(STREAM)
    assert "read 27,004 flights of demo/flights" in capsys.readouterr().out
    january = nyc.flights(1, 31)
    check_hours(beside.hours("demo/delays"), nyc.closed(nyc.delays_by_hour(january), january))

    run(PUBLISH_FEBRUARY)
    run(COUNT)
    printed = capsys.readouterr().out
    assert f"{TWO_MONTHS:,} flights\n" in printed
    assert "UA    8,983 flights  mean delay" in printed

    run(PLOT)
    picture = imread(there / "delays.png")
    assert picture.shape[:2] == (540, 1080)
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 20, "the picture is almost empty"


@pytest.mark.timeout(2 * PIPELINE_S + 60)
@pytest.mark.deep
def test_the_pipeline_writes_every_closed_hour_once_and_goes_on_in_its_next_run(beside: Beside, there: Path) -> None:
    run(f"{WRITE_PIPELINE} --source pipeline/flights --target pipeline/delays")
    publish_flights.publish(beside.bootstrap, "pipeline/flights", nyc.flights(1, 3))
    run_pipeline(there)
    check_both(beside, there, nyc.flights(1, 3))

    publish_flights.publish(beside.bootstrap, "pipeline/flights", nyc.flights(4, 2))
    run_pipeline(there)
    check_both(beside, there, nyc.flights(1, 5))


def test_the_plot_shows_the_means_of_the_csv(spark: SparkSession) -> None:
    flights = nyc.flights(1, 7)
    found = plot_delays.delays_of_day(spark.createDataFrame(flights)).to_pandas()
    means = flights.to_pandas().groupby("hour")["dep_delay"].mean().dropna()
    assert found["hour"].tolist() == means.index.tolist()
    np.testing.assert_allclose(found["mean_delay"], means, rtol=1e-12)


def run_pipeline(folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    asked = {"cwd": folder, "env": env, "timeout": PIPELINE_S}
    done = subprocess.run(["bash", "-c", RUN_PIPELINE], capture_output=True, text=True, check=False, **asked)
    assert done.returncode == 0, done.stdout + done.stderr


def check_both(beside: Beside, folder: Path, flights: pa.Table) -> None:
    """The hours are in the topic, and where Spark puts tables."""
    expected = nyc.closed(nyc.delays_by_hour(flights), flights)
    check_hours(beside.hours("pipeline/delays"), expected)
    table = pq.read_table(folder / "pipeline" / "spark-warehouse" / "delays_by_hour")
    hours = table.column("hour").cast(pa.timestamp("us")).cast(nyc.DELAYS.field("hour").type)  # Spark wrote no zone
    table = table.set_column(table.schema.get_field_index("hour"), "hour", hours)
    check_hours(table.append_column("_key", table.column("origin").cast(pa.binary())), expected)
