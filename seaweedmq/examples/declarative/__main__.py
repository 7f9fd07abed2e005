"""Write a Spark Declarative Pipeline into a folder, from the topic of flights to one of delays, which is created.

::

    python -m seaweedmq.examples.declarative pipeline
    cd pipeline && spark-pipelines run --conf spark.sql.catalogImplementation=hive

Another run adds what was published meanwhile, which needs a catalog that outlives the run: hence Hive's, in the folder
itself. ``spark-pipelines`` comes with ``pip install "pyspark[pipelines]"``.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template

from seaweedmq.examples import nyc
from seaweedmq.examples.running import FLIGHTS, make_topic, parser, run

HERE = Path(__file__).parent
SPEC = "spark-pipeline.yml"
DELAYS = "demo/pipeline-delays"
"""Topic other than that of ``flights_streaming``: two queries into one topic would write every hour twice."""


def write(folder: Path, bootstrap: str, storage: str, source: str, target: str) -> Path:
    """Write the pipeline between two topics, and return the path of its spec; other files in the folder stay."""
    folder = folder.resolve()
    shutil.copytree(HERE / "transformations", folder / "transformations", dirs_exist_ok=True)
    spec = folder / SPEC
    values = {"folder": folder.as_uri(), "bootstrap": bootstrap, "storage": storage}
    values |= {"source": source, "target": target}
    spec.write_text(Template((HERE / SPEC).read_text()).substitute(values))
    return spec


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the example."""
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--source", default=FLIGHTS, help="topic of the flights (%(default)s)")
    options.add_argument("--target", default=DELAYS, help="topic of the delays (%(default)s)")
    given = options.parse_args(arguments)
    make_topic(given.bootstrap, given.target, nyc.DELAYS)
    print(f"wrote {write(given.folder, given.bootstrap, given.storage, given.source, given.target)}")


if __name__ == "__main__":
    run(main)
