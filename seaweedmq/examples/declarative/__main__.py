"""Write a Spark Declarative Pipeline over a topic of flights into a folder.

::

    python -m seaweedmq.examples.declarative pipeline
    cd pipeline && spark-pipelines run --conf spark.sql.catalogImplementation=hive

Another run takes in what was published meanwhile, which needs a catalog that outlives the run: hence Hive's, in the
folder itself. ``spark-pipelines`` comes with ``pip install "pyspark[pipelines]"``.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template

from seaweedmq.examples.running import FLIGHTS, parser, run

HERE = Path(__file__).parent
SPEC = "spark-pipeline.yml"


def write(folder: Path, bootstrap: str, storage: str, topic: str) -> Path:
    """Write the pipeline over a topic below ``storage``; what is in the folder already is kept, but for our files.

    Returns:
        Its spec, which ``spark-pipelines run --spec`` takes.
    """
    folder = folder.resolve()
    shutil.copytree(HERE / "transformations", folder / "transformations", dirs_exist_ok=True)
    spec = folder / SPEC
    values = {"folder": folder.as_uri(), "bootstrap": bootstrap, "storage": storage, "topic": topic}
    spec.write_text(Template((HERE / SPEC).read_text()).substitute(values))
    return spec


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--topic", default=FLIGHTS, help="(%(default)s)")
    given = options.parse_args(arguments)
    print(f"wrote {write(given.folder, given.bootstrap, given.storage, given.topic)}")


if __name__ == "__main__":
    run(main)
