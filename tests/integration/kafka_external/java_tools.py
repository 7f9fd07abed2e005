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
"""What makes a JVM start quickly that does little."""


class Tools:
    """Runs tools against one cluster."""

    def __init__(self, jars: Path, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        log = f"-Dlog4j2.configurationFile={KAFKA / 'log4j2.properties'}"
        self._java = ["java", *SMALL, log, "-cp", f"{jars}/*"]

    def command(self, tool: str, *arguments: str) -> list[str]:
        """How to start a tool. Names without a dot in front of their class are of the package of most tools."""
        name = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
        return [*self._java, name, "--bootstrap-server", self.bootstrap, *arguments]

    def ok(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """What a tool prints that must succeed."""
        return run(self.command(tool, *arguments), timeout_s=TIMEOUT_S, stdin=stdin)

    def refused(self, tool: str, *arguments: str) -> str:
        """What a tool prints that is refused, to both outputs; some end with 0 all the same."""
        done = subprocess.run(
            self.command(tool, *arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        return done.stdout + done.stderr

    def raw(self, tool: str, *arguments: str) -> str:
        """What a tool prints that takes its brokers in its own way."""
        return run([*self._java, f"{TOOLS}.{tool}", *arguments], timeout_s=TIMEOUT_S)


def events(printed: str) -> list[dict[str, Any]]:
    """What a verifiable producer or consumer says, a JSON object a line."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def table(printed: str, columns: Sequence[str]) -> list[list[str]]:
    """The columns of those names, of a table whose first line with all of them is its head."""
    lines = [line.split() for line in printed.splitlines()]
    head = next(n for n, words in enumerate(lines) if set(columns) <= set(words))
    places = [lines[head].index(column) for column in columns]
    return [[words[place] for place in places] for words in lines[head + 1 :] if len(words) > max(places)]
