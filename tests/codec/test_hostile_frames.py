"""Thousands of mutated frames and schemas with valid checksums, in a separate process: a crash is a failure here."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", [1, 2])
def test_no_mutated_frame_harms_the_process_or_what_comes_after(seed: int):
    command = [sys.executable, "-m", "tests.codec.hostile", "--seed", str(seed), "--rounds", "15000"]
    attack = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert attack.returncode == 0, f"exit status {attack.returncode}\n{attack.stdout}\n{attack.stderr}"
    assert attack.stdout.endswith("survived\n")
