"""Apache Kafka's command line tools, each by the class that its script starts."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest.kafka.server import HERE as KAFKA
from tests.integration.kafka_external.brought import run

TIMEOUT_S = 60.0
TOOLS = "org.apache.kafka.tools"
SMALL = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""JVM options for a quick start of small programs."""


class Tools:
    def __init__(self, jars: Path, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        log = f"-Dlog4j2.configurationFile={KAFKA / 'log4j2.properties'}"
        self._java = ["java", *SMALL, log, "-cp", f"{jars}/*"]

    def command(self, tool: str, *arguments: str) -> list[str]:
        """Return the command of a tool. Names without the prefix ``kafka.`` are of the package of most tools."""
        name = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
        return [*self._java, name, "--bootstrap-server", self.bootstrap, *arguments]

    def ok(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """Run a tool that must succeed; return its output."""
        return run(self.command(tool, *arguments), timeout_s=TIMEOUT_S, stdin=stdin)

    def refused(self, tool: str, *arguments: str) -> str:
        """Run a tool that is rejected; return both of its outputs. Some such tools end with status 0."""
        done = subprocess.run(
            self.command(tool, *arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        return done.stdout + done.stderr

    def raw(self, tool: str, *arguments: str) -> str:
        """Run a tool that names its brokers in its own way; return its output."""
        return run([*self._java, f"{TOOLS}.{tool}", *arguments], timeout_s=TIMEOUT_S)


def events(printed: str) -> list[dict[str, Any]]:
    """Return the output of a verifiable producer or consumer, a JSON object per line."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def table(printed: str, columns: Sequence[str]) -> list[list[str]]:
    """Return the columns of those names from a table; its head is the first line with all of them."""
    lines = [line.split() for line in printed.splitlines()]
    head = next(n for n, words in enumerate(lines) if set(columns) <= set(words))
    places = [lines[head].index(column) for column in columns]
    return [[words[place] for place in places] for words in lines[head + 1 :] if len(words) > max(places)]
