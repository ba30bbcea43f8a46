"""The stage coverage on repaired shards; what its numbers mean is tested in core."""

import pytest

from rollmake.core.chosen import Metrics
from rollmake.core.errors import DataError
from stages.shard_files import row
from stages.test_aggregate import Run, answered, failed


@pytest.fixture
def tried(tmp_path):
    """Of six rollouts one is answered, one missing; the others failed once, twice, terminally, and before a success."""
    this = Run(tmp_path, [(task, 0, task % 2, "s" if task else "t", "a") for task in range(6)], {})
    ended = row(3, _ng_failure_class="timeout_exceeded", _ng_failure_terminal=True, agent_ref={"name": "a"})
    this.shard(0, [answered(0, subset="x"), answered(4, reward=None)], [failed(2), failed(2), failed(4), failed(4)])
    this.shard(1, [], [failed(1), ended])
    return this


def test_what_a_run_rests_on_is_written_without_a_server(tried):
    found = tried.coverage()
    assert (found["expected"], found["scored"], found["unscored"], found["missing"]) == (6, 1, 1, 1)
    assert found["failed_by_class"] == {"agent_run_error": 2, "timeout_exceeded": 1}
    assert (found["gated"], found["servers"]["s"]["gated"], found["servers"]["t"]["gated"]) == (2, 2, 0)
    assert (found["agents"]["a"]["gated"], found["missing_keys"]) == (2, [[5, 0]])


@pytest.mark.parametrize(
    ("options", "gated"),
    [
        ({"max_attempts": 1}, 3),
        ({"max_attempts": 3}, 1),
        ({"max_attempts": 3, "retry_terminal_timeouts": True}, 0),
        ({"max_attempts": 1, "classes": ["agent_run_error", "timeout_exceeded"], "missing": True}, 3),
    ],
)
def test_what_is_gated_depends_on_the_options_that_collect_has(tried, options, gated):
    assert tried.coverage(**options)["gated"] == gated


def test_attempts_are_taken_from_the_environment_if_the_config_names_none(tried, monkeypatch):
    monkeypatch.delenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", raising=False)
    assert tried.coverage(max_attempts=None)["gated"] == 1
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "1")
    assert tried.coverage(max_attempts=None)["gated"] == 3


def test_subsets_have_numbers_of_their_own(tried):
    tried.repair(["subset"])
    found = tried.coverage(metrics=Metrics(backend="local", subset_key="subset"))
    assert {name: (part["expected"], part["gated"]) for name, part in found["subsets"].items()} == {
        "": (5, 2),
        "x": (1, 0),
    }


def test_another_reward_is_seen_in_the_digest_though_no_number_changes(tmp_path):
    def found(name, reward):
        (tmp_path / name).mkdir()
        run = Run(tmp_path / name, [(0, 0, 0, "s", "a"), (1, 0, 0, "s", "a")], {})
        run.shard(0, [answered(0, reward=reward)], [failed(1)])
        return run.coverage()

    first, same, other = found("first", 1.0), found("same", 1.0), found("other", 0.25)
    assert first == same
    assert first.pop("repaired") != other.pop("repaired")
    assert first == other


def test_only_without_aggregation_an_old_score_beside_it_is_removed(tried):
    old = tried.folder / "rollouts_aggregate_metrics.json"
    old.write_text("[]")
    plain = tried.coverage()
    assert old.exists()
    assert tried.coverage(disable_aggregation=True) == plain
    assert not old.exists()


def test_lost_lines_are_counted_although_the_plan_says_what_is_owed(tried):
    tried.shard(0, [answered(0), b'{"torn'], [])
    found = tried.coverage()
    assert (found["expected"], found["lost_lines"], found["unreadable_lines"]) == (6, {"not_json": 1}, {})


def test_shards_without_scores_or_sidecar_are_named(tried):
    tried.repair()
    folder = tried.folder / "repaired/0001-of-0002"
    (folder / "rollouts_failures.jsonl").unlink()
    with pytest.raises(DataError, match=r"0001-of-0002/rollouts_failures.jsonl: there is no such file. Repair that"):
        tried.coverage()
    (folder / "scores.parquet").unlink()
    with pytest.raises(DataError, match=r"0001-of-0002/scores.parquet: cannot be read"):
        tried.coverage()
    assert not (tried.folder / "coverage.json").exists()


def test_the_stage_reads_no_rollouts(tried):
    tried.repair()
    plain = tried.coverage()
    for path in tried.folder.glob("repaired/*/rollouts.jsonl"):
        path.unlink()
    assert tried.coverage() == plain
