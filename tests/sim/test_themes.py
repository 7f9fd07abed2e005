"""Tests of themes: a seed has at most one theme, and the seeds of one theme can be played alone."""

import sys
from collections import Counter

import pytest

from tests.sim.__main__ import main
from tests.sim.scenario import Scenario
from tests.sim.themes.every import SHARE, THEMES, scenario_of, theme_of

SEEDS = range(2000)


def test_every_theme_has_its_seeds_and_most_others_have_none() -> None:
    shares = Counter(map(theme_of, SEEDS))
    assert shares.keys() == {None, *THEMES}
    assert shares[None] / len(SEEDS) == pytest.approx((1 - SHARE) ** len(THEMES), abs=0.05)


def test_a_seed_without_theme_plays_what_every_seed_begins_with() -> None:
    plain = next(seed for seed in SEEDS if theme_of(seed) is None)
    themed = next(seed for seed in SEEDS if theme_of(seed) is not None)
    assert scenario_of(plain) == Scenario.of(plain)
    assert scenario_of(themed) != Scenario.of(themed)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tests.sim", *arguments])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    return main()


def test_the_seeds_of_one_theme_are_played_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theme = theme_of(next(seed for seed in SEEDS if theme_of(seed) is not None))
    assert theme is not None
    theirs = [seed for seed in range(60) if theme_of(seed) == theme]
    assert 0 < len(theirs) < 10
    assert run(monkeypatch, "--seeds", "0-59", "--theme", theme) == 0
    assert f"{len(theirs)} seeds in" in capsys.readouterr().out


def test_a_theme_chooses_among_seeds_and_is_one_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (("--seed", "7", "--theme", "namesakes"), ("--seeds", "0-9", "--theme", "no_such_theme")):
        with pytest.raises(SystemExit):
            run(monkeypatch, *wrong)


def test_the_themes_are_listed_with_what_they_are_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--themes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(THEMES)
    assert all(line.endswith(".") for line in lines)
