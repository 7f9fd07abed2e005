"""Tests of whole clusters from seeds: every promise is kept, a seed replays exactly, and mutants are caught."""

import itertools
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import pytest

from tests.sim.catching import every_mutant, is_caught
from tests.sim.themes.every import THEMES, theme_of
from tests.sim.world import simulate

SEEDS = 300
SEEDS_OF_MAKE_TEST = 10
SEEDS_PER_TEST = 10
SEEDS_APART = 30
"""Distance of the tests' first seeds."""
SEEDS_UNTIL_CAUGHT = 150


def firsts() -> list[Any]:
    """Return the first seed of each test; ``make test`` runs the first few tests, and ``make sim-long`` all seeds."""
    seeds = range(0, SEEDS, SEEDS_APART)
    return [pytest.param(n, marks=() if n < SEEDS_OF_MAKE_TEST else pytest.mark.deep) for n in seeds]


@pytest.mark.parametrize("first", firsts())
def test_every_promise_is_kept(first: int) -> None:
    play(range(first, first + SEEDS_PER_TEST))


@pytest.mark.parametrize("theme", THEMES)
def test_every_promise_is_kept_in_a_seed_of_each_theme(theme: str) -> None:
    play([next(seed for seed in itertools.count(SEEDS) if theme_of(seed) == theme)])


def play(seeds: Iterable[int]) -> None:
    for seed in seeds:
        report = simulate(seed)
        told = "\n".join([*report.log[-40:], *map(str, report.violations[:20])])
        assert report.ok, f"make sim SEED={seed}\n{told}"


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.deep) for n in (4, 17, 155))])
def test_the_same_seed_is_the_same_run_in_another_process(seed: int) -> None:
    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.sim", "--seed", str(seed), "--digest"]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()

    digests = {digest(hash_seed) for hash_seed in ("0", "1")}
    assert digests == {simulate(seed).digest}


def test_different_seeds_are_different_runs() -> None:
    assert len({simulate(seed).digest for seed in range(3)}) == 3


CAUGHT_BY = {
    "acknowledge_before_the_follower": 1, "forget_sequences_at_the_seal": 1, "take_a_short_log": 7,
    "trust_a_lease_that_ran_out": 7, "commit_before_write": 1, "commit_before_fsync": 24,
    "believe_files_while_a_replica_lives": 0, "seal_from_files_without_fsync": 8, "do_not_look_for_the_fence": 7,
    "lead_at_once": 22, "forget_what_is_not_fsynced": 5, "forget_a_slot_at_a_split": 5,
    "merge_where_the_shorter_one_ends": 5, "drop_the_last_frame_of_a_table": 0, "convert_beyond_the_end": 15,
    "assign_successors_early": 43, "adopt_by_what_is_committed": 8, "expire_by_modification_time": 14,
    "admit_after_receiving": 8, "trimmed_means_nothing_was_stored": 1, "forget_producers_with_open_streams": 1,
    "take_a_short_record_for_a_whole_one": 1, "two_names_for_a_replica": 177, "register_without_a_lease": 174,
    "go_on_in_the_namesake": 4, "believe_every_preamble": 389, "begin_files_behind_one_that_may_vanish": 76,
    "take_a_lost_block_for_damage": 76, "believe_files_before_they_are_fsynced": 76,
    "trust_the_clock_of_the_broker": 67, "look_again_by_the_wall_clock": 112, "accept_old_epochs": 39,
    "ignore_the_end_offset": 38, "raise_kept_errors_again": 12, "read_files_without_a_turn": 8,
    "send_without_memory": 12, "take_in_any_message": 12, "let_small_takers_pass": 227,
    "take_plain_frames_while_a_schema_is_adopted": 238, "read_waiting_frames_by_the_new_schema": 93,
    "send_again_the_newest_first": 0, "forget_nothing": 19, "keep_what_groups_committed": 105,
    "forget_segments_that_have_records": 19, "forget_in_any_order": 98,
    "take_what_a_broker_does_not_know_yet_for_pruned": 51, "take_pages_of_any_moment": 139,
    "pass_calls_to_and_fro": 103, "give_an_address_up_too_soon": 52, "wait_for_what_was_never_told": 405,
    "leave_a_surplus_segment_unserved": 83, "forget_the_fence_with_its_segment": 64,
    "remember_fewer_frames_than_may_be_in_flight": 7, "let_older_streams_append": 44, "drop_replicas_when_stopped": 343,
    "trust_one_page_cache": 117, "know_replicas_by_name": 31, "publish_tables_into_the_namesake": 81,
    "seal_whoever_has_the_number": 123, "count_leases_by_a_clock_that_stops": 39, "deliver_after_standing_still": 27,
    "let_a_torso_stand_for_the_last_log": 18, "delete_whoever_has_the_name": 57,
    "free_the_name_before_primaries_have_heard": 515, "hold_back_what_comes_first": 956,
    "read_only_the_partitions_of_the_beginning": 16, "choose_partitions_by_the_ring": 4,
    "choose_again_among_more_partitions": 1390, "give_added_partitions_ids_twice": 4,
    "forget_kafka_producers_at_the_seal": 1, "ask_the_last_segment_alone": 983, "acknowledge_before_the_commit": 1255,
    "answer_whoever_is_ready_first": 1, "go_on_with_any_cursor": 155, "stamp_what_the_batch_says": 224,
    "answer_consumers_of_any_epoch": 1127, "answer_before_it_is_appended": 155, "answer_before_it_is_committed": 237,
    "coordinate_though_others_may": 897, "load_the_open_segment_alone": 155, "leave_offsets_out_of_snapshots": 264,
    "send_away_who_asks_where_to_begin": 155, "let_any_generation_commit": 980, "show_none_but_who_is_registered": 406,
    "give_what_was_deleted_while_it_is_there": 3429, "let_low_watermarks_fall": 941,
    "delete_files_that_begin_below": 132, "rewrite_tables_from_one_record_later": 132,
    "end_when_etcd_has_no_space_for_a_lease": 373, "hand_errors_of_etcd_on": 3637,
    "look_after_files_while_there_is_space": 682, "trust_any_folder": 41, "recover_without_journals": 214,
    "believe_the_highest_revision": 530, "let_a_stepped_clock_delete": 4292,
    "judge_times_by_a_clock_that_was_just_set": 430, "date_tables_of_a_new_segment_by_their_stamps": 1795,
    "delete_right_after_taking_a_topic_over": 231,
}  # fmt: skip
"""The seed that caught each mutant last. After a code change it may be another one: the test then searches the first
seeds and reports the new one. ``python -m tests.sim --find-mutants --processes 2`` finds them all again."""


def test_every_broken_variant_has_its_seed() -> None:
    assert CAUGHT_BY.keys() == every_mutant().keys()


@pytest.mark.deep
@pytest.mark.parametrize("name", CAUGHT_BY)
@pytest.mark.timeout(900)
def test_broken_code_is_caught(name: str) -> None:
    seeds = [CAUGHT_BY[name], *(seed for seed in range(SEEDS_UNTIL_CAUGHT) if seed != CAUGHT_BY[name])]
    caught = next((seed for seed in seeds if is_caught(name, seed)), None)
    assert caught is not None, f"{name} went unnoticed in {SEEDS_UNTIL_CAUGHT} seeds"
    if caught != CAUGHT_BY[name]:
        warnings.warn(f"{name} is now caught by seed {caught}: note that in CAUGHT_BY, it saves time", stacklevel=1)
