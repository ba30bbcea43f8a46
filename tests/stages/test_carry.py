"""A changed plan in the middle of a run: what still fits is kept, the rest is set aside, nothing that fits is asked again."""

import json
import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.chaos import reward, row
from helpers.runs import Run, json_lines
from helpers.servers import chaos_server
from rollmake.core.carry import SetAside, restamped, unwrapped, wrapped
from rollmake.core.shards import shard_names
from rollmake.edge import carry


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with chaos_server(tmp_path_factory.mktemp("server")) as running:
        yield running


class Half:
    """A run of 12 tasks with 4 repeats in 3 shards, of which the first shard is done and the second half."""

    def __init__(self, folder, server):
        self.server = server
        self.salt = str(folder)
        self.rows = [row(number=i, salt=self.salt) for i in range(12)]
        self.run = Run(folder, server.address, self.rows, repeats=4, shards=3)
        assert self.run.collect("0000-of-0003") == 0
        assert self.run.collect("0001-of-0003") == 0
        self.asked = self.requests()
        assert len(self.asked) == 32

    def requests(self):
        """Every request of this run, in order."""
        return [e for e in self.server.log() if e["event"] == "arrived" and e.get("salt") == self.salt]

    def collect_all(self, rows, repeats, shards):
        """Plan anew and collect every shard; returns the requests that this took."""
        self.run.plan(rows, repeats=repeats, shards=shards)
        before = len(self.requests())
        for shard in shard_names(shards):
            assert self.run.collect(shard) == 0
        stored = [r for shard in shard_names(shards) for r in self.run.rollouts(shard)]
        keys = [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in stored]
        assert sorted(keys) == [(task, rollout) for task in range(len(rows)) for rollout in range(repeats)]
        for r in stored:
            question = r["responses_create_params"]
            assert question == rows[r["_ng_task_index"]]["responses_create_params"], (
                "an answer to the row's own question"
            )
        return len(self.requests()) - before

    def aside(self):
        path = self.run.folder / "journal" / "superseded.jsonl"
        return json_lines(path) if path.exists() else []


@pytest.fixture
def half(tmp_path, server):
    return Half(tmp_path, server)


@pytest.mark.parametrize("shards", [1, 2, 5, 20])
def test_another_number_of_shards_asks_only_for_what_was_owed(half, shards):
    assert half.collect_all(half.rows, 4, shards) == 16
    assert half.aside() == []


def test_rows_appended_inserted_at_the_top_and_shuffled_keep_their_rollouts(half):
    rows = [row(number=100, salt=half.salt), *half.rows, row(number=101, salt=half.salt)]
    random.Random(3).shuffle(rows)
    assert half.collect_all(rows, 4, 3) == 16 + 8
    assert half.aside() == []


def test_an_edited_row_is_asked_again_and_its_old_rollouts_are_set_aside(half):
    rows = [*half.rows]
    rows[0] = row(number=500, salt=half.salt)
    assert half.collect_all(rows, 4, 3) == 16 + 4
    assert len(half.aside()) == 4
    assert {r["row"]["reward"] for r in half.aside()} == {reward(0, rollout) for rollout in range(4)}


def test_a_removed_row_is_set_aside_and_comes_back_with_the_row(half):
    assert half.collect_all(half.rows[1:], 4, 3) == 16
    assert len(half.aside()) == 4
    assert half.collect_all(half.rows, 4, 3) == 0
    assert half.aside() == []


def test_more_repeats_ask_for_the_new_ones_and_fewer_set_the_others_aside(half):
    assert half.collect_all(half.rows, 8, 3) == 16 + 48
    assert half.collect_all(half.rows, 2, 3) == 0
    assert len(half.aside()) == 12 * 6
    assert half.collect_all(half.rows, 8, 5) == 0


def test_failed_attempts_move_with_their_row(tmp_path, server):
    salt = str(tmp_path)
    rows = [row(["500"] * 9, i, salt=salt) for i in range(3)]
    run = Run(tmp_path, server.address, rows)
    assert run.collect(max_attempts=2) == 0
    run.plan([row(number=7, salt=salt), *rows], shards=2)
    assert run.collect("0001-of-0002", max_attempts=2) == 0
    kept = sorted((r["_ng_task_index"], r.get("_ng_attempt_index", 0)) for r in run.failures("0001-of-0002"))
    assert kept == [(1, 0), (1, 1), (3, 0), (3, 1)]


def test_another_policy_of_the_environment_is_another_result(half):
    path = half.run.folder / "environment.json"
    environment = json.loads(path.read_text())
    path.write_text(json.dumps({**environment, "identity": "another model"}))
    assert half.collect_all(half.rows, 4, 3) == 48
    assert len(half.aside()) == 32


def test_the_job_says_what_it_keeps_and_what_it_sets_aside(half, capfd):
    half.run.plan(half.rows[1:], repeats=4, shards=3)
    capfd.readouterr()
    assert half.run.collect("0000-of-0003") == 0
    said = capfd.readouterr().err
    assert "the plan changed: 28 rollouts and 0 failed attempts still fit and are kept, 4 rows no longer fit" in said
    assert "0000-of-0003: 16 of 16 rollouts are kept, 0 to be asked for" in said


def test_the_job_says_that_all_is_kept_if_a_plan_only_adds_to_the_one_before(half, capfd):
    half.run.plan(half.rows, repeats=5, shards=3)
    capfd.readouterr()
    assert half.run.collect("0000-of-0003") == 0
    said = capfd.readouterr().err
    assert "everything that was collected still fits and is kept where it is" in said
    assert "0000-of-0003: 16 of 20 rollouts are kept, 4 to be asked for" in said


def test_a_published_shard_is_not_touched_by_a_carry(half):
    published = half.run.output("0000-of-0003").read_bytes()
    half.run.plan(half.rows[1:], repeats=4, shards=2)
    assert half.run.collect("0000-of-0002") == 0
    assert half.run.output("0000-of-0003").read_bytes() == published


def test_folders_of_shards_that_are_gone_are_kept_aside_with_their_history(half):
    half.collect_all(half.rows, 4, 2)
    retired = half.run.folder / "journal" / "retired"
    assert sorted(path.name for path in retired.iterdir()) == ["0000-of-0003.0", "0001-of-0003.0"]
    assert (retired / "0000-of-0003.0" / "jobs.jsonl").exists()


class KilledError(Exception):
    pass


@pytest.mark.parametrize("moment", range(30))
def test_a_kill_at_any_rename_of_a_carry_loses_and_doubles_nothing(half, monkeypatch, moment):
    """Every rename is a moment at which the process may die; the next one must come to the same end."""
    half.run.plan(half.rows[2:], repeats=3, shards=5)
    journals, plan = half.run.folder / "journal", half.run.folder / "plan.json"
    renames = []

    def dying(rename):
        def renamed(*arguments, **named):
            renames.append(arguments)
            if len(renames) == moment + 1:
                raise KilledError
            return rename(*arguments, **named)

        return renamed

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dying(os.replace))
        patched.setattr(os, "link", dying(os.link))
        try:
            carry.carry_over(journals, plan)
        except KilledError:
            pass
        else:
            assert len(renames) <= moment, "fewer renames than this test tries"
    kept = sum(3 for task in range(2, 12) if task % 3 in (0, 1))
    assert half.collect_all(half.rows[2:], 3, 5) == 10 * 3 - kept
    assert len(half.aside()) == 32 - kept


@given(
    st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1), st.sampled_from(["rollouts", "rollouts_failures"])
)
@settings(suppress_health_check=[HealthCheck.differing_executors])
def test_what_is_set_aside_is_read_back_to_the_byte(digest, repeat, destination):
    aside = SetAside(digest, repeat, destination, b'{"a": 1.50,"_ng_task_index":3 }')
    assert unwrapped(wrapped(aside)) == aside


def test_a_row_under_a_new_key_changes_nothing_else():
    line = b'{"reward":1.0,"_ng_task_index":3,"x":{"_ng_task_index":3},"_ng_rollout_index":0}'
    assert restamped(line, 3, 0) is line
    assert restamped(line, 4, 1) == b'{"reward":1.0,"_ng_task_index":4,"x":{"_ng_task_index":3},"_ng_rollout_index":1}'
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    assert b'"_ng_task_index":9' in restamped(deep[:-1] + b',"_ng_task_index":3,"_ng_rollout_index":0}', 9, 0)
