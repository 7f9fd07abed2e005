"""Results of a run: samples of all rounds, systems that did not take part, and failures."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures of one system in one round."""

    turn: int
    """Number of the round, from 1 on."""
    system: str
    measure: str
    call: str
    """Call of the system's client, where a measure has several."""
    figures: Figures


@dataclass(frozen=True, slots=True)
class Failure:
    """A reason for missing figures."""

    turn: int
    system: str
    suite: str
    error: str


@dataclass(slots=True)
class Results:
    """One run, as in the JSON file."""

    date: str
    machine: str
    quick: bool
    versions: dict[str, str]
    """Versions of the systems that took part."""
    skipped: dict[str, str]
    """Systems that did not take part, with the reason."""
    samples: list[Sample] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def by_turn(self, system: str, measure: str, call: str, figure: str) -> dict[int, float]:
        """Return round -> figure, of the rounds that have it."""
        return {
            sample.turn: sample.figures[figure]
            for sample in self.samples
            if (sample.system, sample.measure, sample.call) == (system, measure, call) and figure in sample.figures
        }

    def write(self, path: Path) -> None:
        """Write one sample per line, so that runs can be compared by line."""
        members = ",\n".join(f"{json.dumps(name)}: {_json(value)}" for name, value in asdict(self).items())
        path.write_text(f"{{\n{members}\n}}\n")


def read(path: Path) -> Results:
    """Read a file of ``Results.write``."""
    found = json.loads(path.read_text())
    samples = [Sample(**sample) for sample in found.pop("samples")]
    failures = [Failure(**failure) for failure in found.pop("failures")]
    return Results(**found, samples=samples, failures=failures)


def _json(value: object) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value)
    return "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n]"
