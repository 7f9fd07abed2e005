"""Imports of the command line: a command loads what it needs, since imports take most of its time."""

import json
import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

import pytest

from seaweedmq.cli import commands
from seaweedmq.cli.app import SUBCOMMANDS

COMMANDS = "seaweedmq.cli.commands"
HEAVY = {"pyarrow", "numpy", "grpc", "asyncio", "pyspark", "pandas", "uvloop"}
RECORD = "import atexit, json, sys; atexit.register(lambda: sys.__stderr__.write(chr(10) + json.dumps([*sys.modules])))"


def imported(*arguments: str) -> set[str]:
    """Return the modules that a command has imported when it ends."""
    code = f"{RECORD}; from seaweedmq.cli.main import run; sys.argv[1:] = {list(arguments)!r}; run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return set(json.loads(done.stderr.splitlines()[-1]))


def own(modules: set[str]) -> set[str]:
    return {name.removeprefix(f"{COMMANDS}.") for name in modules if name.startswith(f"{COMMANDS}.")}


def test_every_module_of_commands_is_a_subcommand() -> None:
    assert sorted(SUBCOMMANDS.values()) == sorted(module.name for module in iter_modules(commands.__path__))


@pytest.mark.parametrize(("name", "module"), SUBCOMMANDS.items())
def test_a_module_has_an_application_or_a_function_of_its_name(name: str, module: str) -> None:
    loaded = import_module(f"{COMMANDS}.{module}")
    assert hasattr(loaded, "app") != callable(getattr(loaded, name, None))


def test_help_of_a_command_loads_no_client_and_no_other_command() -> None:
    modules = imported("topic", "list", "--help")
    assert own(modules) == {"topics"}
    assert not modules & HEAVY
    assert not any(name.startswith(("seaweedmq.client", "seaweedmq.broker", "seaweedmq.spark")) for name in modules)


def test_wrong_usage_loads_no_client() -> None:
    modules = imported("group", "describe")
    assert own(modules) == {"groups"}
    assert not modules & HEAVY


def test_a_command_draws_nothing_that_it_does_not_print() -> None:
    modules = imported("--bootstrap", "nowhere", "topic", "list")
    assert own(modules) == {"topics"}
    assert not modules & {"rich.markdown", "rich.progress", "rich.live", "markdown_it", "pyspark"}
    assert not any(name.startswith(("seaweedmq.broker", "seaweedmq.spark", "seaweedmq.storage")) for name in modules)
