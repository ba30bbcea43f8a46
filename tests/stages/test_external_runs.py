"""From files that something else wrote to scores and coverage: what goes wrong in them, one test a kind."""

import json

import orjson
import pytest

from rollmake.core.chosen import Metrics
from rollmake.core.contract import aggregate_path, failures_path
from rollmake.core.errors import DataError, InputError
from rollmake.stages import aggregate, concatenate, coverage
from stages.shard_files import lines, quarantined, row
from stages.test_adopt import Run
from stages.test_aggregate import counted


class External(Run):
    """Shards that are repaired, adopted, merged and scored without a server."""

    def score(self, classes=(), missing=False, **fields):
        self.adopt()
        files = {"plan": self.folder / "plan.json", "repaired": self.folder / "repaired"}
        output = self.folder / "rollouts.jsonl"
        concatenate.run(concatenate.Files(**files, output=output), concatenate.Settings())
        aggregate.run(
            aggregate.Files(
                **files,
                environment_file=self.folder / "environment.json",
                environment=json.dumps({"topology": "none.yaml"}),
                output=aggregate_path(output),
            ),
            aggregate.Settings(metrics=Metrics(backend="local", **fields), **counted(classes, missing)),
        )
        coverage.run(
            coverage.Files(**files, output=self.folder / "coverage.json"),
            coverage.Settings(
                metrics=Metrics(backend="local", **fields),
                disable_aggregation=False,
                max_attempts=None,
                retry_terminal_timeouts=False,
                **counted(classes, missing),
            ),
        )
        entries = orjson.loads(aggregate_path(output).read_bytes())
        return (entries[0] if entries else None), self.coverage()

    def coverage(self):
        return orjson.loads((self.folder / "coverage.json").read_bytes())

    def merged(self):
        return [orjson.loads(line) for line in (self.folder / "rollouts.jsonl").read_bytes().splitlines()]


def agent(task, rollout=0, **fields):
    return row(task, rollout, agent_ref={"name": "solver"}, **fields)


def failed(task, rollout=0, name="agent_run_error", **fields):
    return agent(task, rollout, _ng_failure_class=name, **fields)


def owed(*tasks, **fields):
    return [agent(task, **fields) for task in tasks]


def test_failures_and_what_left_no_row_are_in_no_score(tmp_path):
    this = External(tmp_path, ([agent(0, reward=1)], [failed(1, reward=0)], owed(0, 1, 2)))
    entry, coverage = this.score()
    assert entry["agent_metrics"]["mean/reward"] == 1.0
    assert (coverage["scored"], coverage["failed_by_class"], coverage["missing"]) == (1, {"agent_run_error": 1}, 1)


def test_lines_that_nobody_can_read_are_in_the_coverage_beside_what_is_known_to_be_owed(tmp_path):
    good = [agent(task, reward=1) for task in range(4)]
    lost = b'{"_ng_task_index":3,"_ng_rollout_index":1,"agent_ref":{"name":"solver"},"reward":NaN}'
    this = External(tmp_path, ([*good, lost],))
    source = tmp_path / "raw/shard0.jsonl"
    source.write_bytes(source.read_bytes() + b'{"_ng_task_ind')
    this.repair(source)
    _, coverage = this.score()
    assert (coverage["expected"], coverage["scored"], coverage["missing_keys"]) == (5, 4, [[3, 1]])
    assert coverage["servers"]["one"]["missing"] == 1
    assert coverage["lost_lines"] == {"not_finite": 1, "torn": 1}
    assert coverage["unreadable_lines"] == {"0000-of-0001": 1}
    _, coverage = this.score(missing=True)
    assert (coverage["imputed"], coverage["missing"]) == (1, 0)


def test_where_nothing_succeeded_there_is_no_score_unless_failures_count(tmp_path):
    this = External(tmp_path, ([], [failed(0)], owed(0)))
    with pytest.raises(DataError, match="1 failed as agent_run_error"):
        this.score()
    assert failures_path(tmp_path / "rollouts.jsonl").read_bytes() == lines(failed(0))
    assert not aggregate_path(tmp_path / "rollouts.jsonl").exists()
    entry, coverage = this.score(["agent_run_error"])
    assert (entry["agent_metrics"]["mean/reward"], coverage["imputed"], coverage["answered"]) == (0.0, 1, 0)


def test_counting_what_is_missing_does_not_count_what_failed(tmp_path):
    this = External(tmp_path, ([agent(0, reward=1)], [failed(1, name="agent_request_failed")], owed(0, 1, 2)))
    entry, coverage = this.score(missing=True)
    assert entry["agent_metrics"]["mean/reward"] == 0.5
    assert (coverage["imputed"], coverage["failed_by_class"]) == (1, {"agent_request_failed": 1})


def test_what_stands_for_a_missing_rollout_has_its_inputs_and_no_verdict(tmp_path):
    plan = [agent(task, level=task, score=9, subset="easy") for task in range(3)]
    this = External(tmp_path, ([agent(0, reward=1, level=0, subset="easy"), agent(1, reward=1, level=1)], [], plan))
    entry, _ = this.score(missing=True)
    imputed = entry["group_level_metrics"][2]["rollout_infos"]
    assert imputed == [{"rollout_id": "2:0", "_ng_task_index": 2, "_ng_rollout_index": 0, "reward": 0.0, "level": 2}]
    assert "mean/score" not in entry["agent_metrics"]


def test_what_is_imputed_stands_at_its_repeat(tmp_path):
    this = External(tmp_path, ([agent(0, 1, reward=1)], [], [agent(0, 0), agent(0, 1)]))
    entry, _ = this.score(missing=True, score="reward")
    assert [repeat["mean/reward"] for repeat in entry["repeat_level_metrics"]] == [0.0, 1.0]
    assert entry["agent_metrics"]["per_sample_aggregate"] == {"accuracy": [0.0, 100.0]}


def test_shards_that_each_count_from_0_are_refused(tmp_path):
    this = External(tmp_path, ([agent(0, reward=1)],), ([agent(0, reward=0)],))
    with pytest.raises(InputError, match=r"shard0.jsonl and in .*shard1.jsonl.*different indices"):
        this.score()
    assert not (tmp_path / "rollouts.jsonl").exists()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"_ng_ta', "torn"),
        (b'{"reward":1}\n', "no_identity"),
        (b"[1]\n", "not_object"),
        (b'{"_ng_task_index":1,"_ng_rollout_index":0,"reward":NaN}\n', "not_finite"),
        (b"\0\0\0\n", "nul"),
        (b"\n", "blank"),
    ],
)
def test_a_damaged_line_is_set_aside_and_the_others_are_scored(tmp_path, line, reason):
    this = External(tmp_path, ([agent(0, reward=1)],))
    source = tmp_path / "raw/shard0.jsonl"
    source.write_bytes(source.read_bytes() + line)
    this.repair(source)
    entry, coverage = this.score()
    assert (entry["agent_metrics"]["mean/reward"], coverage["scored"]) == (1.0, 1)
    assert [part[3] for part in quarantined(tmp_path / "repaired/0000-of-0001")] == [reason]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\n\n", b" \n"])
def test_line_ends_and_copies_of_a_line_change_nothing(tmp_path, ending):
    this = External(tmp_path, ([],))
    source = tmp_path / "raw/shard0.jsonl"
    source.write_bytes(b"\xef\xbb\xbf" + ending.join([agent(0, reward=1), agent(1, reward=0), agent(0, reward=1)]))
    this.repair(source)
    entry, coverage = this.score()
    assert (entry["agent_metrics"]["mean/reward"], coverage["scored"]) == (0.5, 2)
    assert (tmp_path / "rollouts.jsonl").read_bytes() == lines(agent(0, reward=1), agent(1, reward=0))


def test_empty_files_owe_nothing(tmp_path):
    entry, coverage = External(tmp_path, ([],), ([], [], [])).score()
    assert entry is None
    assert (coverage["expected"], aggregate_path(tmp_path / "rollouts.jsonl").read_bytes()) == (0, b"[]")


@pytest.mark.parametrize("number", [2**47, 1_700_000_000_123_456_789, 2**63 - 1, 2**64 - 1, 1e308, -(2**63)])
def test_large_numbers_are_numbers(tmp_path, number):
    this = External(tmp_path, ([agent(0, reward=1, t=number), agent(1, reward=0, t=number)],))
    entry, _ = this.score()
    assert entry["agent_metrics"]["max/t"] == pytest.approx(number, rel=1e-15)
    assert entry["group_level_metrics"][0]["rollout_infos"][0]["t"] == number


@pytest.mark.parametrize("reward", [{"reward": None}, {}, {"reward": "high"}, {"reward": [1]}])
def test_what_is_no_number_is_stored_unscored_and_not_zero(tmp_path, reward):
    this = External(tmp_path, ([agent(0, **reward), agent(1, reward=1)],))
    entry, coverage = this.score(score="reward")
    assert (entry["agent_metrics"]["mean/reward"], entry["agent_metrics"]["pass@1/accuracy"]) == (1.0, 100.0)
    assert (coverage["scored"], coverage["unscored"], len(this.merged())) == (1, 1, 2)


def test_masked_rollouts_are_kept_counted_and_in_no_score(tmp_path):
    rows = [agent(0, reward=0, mask_sample=True), agent(1, 0, reward=1), agent(1, 1, reward=0.5)]
    this = External(tmp_path, (rows,))
    entry, coverage = this.score()
    metrics = entry["agent_metrics"]
    assert (metrics["mean/reward"], metrics["num_repeats"]) == (0.75, 2)
    names = ("measured_rollouts", "masked_rollouts", "measured_tasks", "fully_masked_tasks")
    assert [metrics[f"coverage/{name}"] for name in names] == [2, 1, 1, 1]
    assert (coverage["masked"], coverage["scored"], len(this.merged())) == (1, 2, 3)


def test_pass_at_k_counts_the_tasks_that_have_k(tmp_path):
    tasks = [[1, 0, 1], [0, 0, 1], [0]]
    rows = [agent(t, r, reward=reward) for t, some in enumerate(tasks) for r, reward in enumerate(some)]
    entry, _ = External(tmp_path, (rows,)).score(score="reward")
    found = [entry["agent_metrics"][f"pass@{k}/accuracy"] for k in (1, 2, 3)]
    assert found == pytest.approx([100 / 3, 250 / 3, 100])


@pytest.mark.parametrize("response", [{"response": None}, {}, {"response": {}}, {"response": "text"}])
def test_without_usage_there_are_no_token_metrics(tmp_path, response):
    entry, _ = External(tmp_path, ([agent(0, reward=1, **response)],)).score()
    assert entry["key_metrics"] == {"mean/reward": 1.0}


def test_rows_come_out_sorted_whatever_the_order_of_shards(tmp_path):
    this = External(tmp_path, ([agent(5, reward=1), agent(1, 1, reward=1)],), ([agent(1, 0, reward=0), agent(3)],))
    this.score()
    assert [(one["_ng_task_index"], one["_ng_rollout_index"]) for one in this.merged()] == [
        (1, 0),
        (1, 1),
        (3, 0),
        (5, 0),
    ]


def test_of_two_answers_to_one_rollout_the_last_success_counts_and_the_other_is_set_aside(tmp_path):
    this = External(tmp_path, ([agent(0, reward=0), agent(0, reward=1)], [failed(0)]))
    entry, coverage = this.score(["agent_run_error"])
    assert (entry["agent_metrics"]["mean/reward"], coverage["scored"], coverage["imputed"]) == (1.0, 1, 0)
    assert [part[3] for part in quarantined(tmp_path / "repaired/0000-of-0001")] == ["superseded"]
