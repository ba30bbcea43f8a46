"""The stage aggregate against real servers on the loopback device."""

import json
from pathlib import Path

import msgspec
import orjson
import polars as pl
import pytest
import yaml
from jsonschema import Draft202012Validator
from polars.testing import assert_frame_equal

from helpers.metrics_server import serving
from rollmake.core.chosen import Metrics
from rollmake.core.errors import DataError, InputError, ServerError
from rollmake.core.metrics import aggregate_metrics
from rollmake.core.plan import Plan
from rollmake.core.topology import Environment, parse_topology
from rollmake.stages import coverage, repair
from rollmake.stages.aggregate import Files, LocalMetrics, Settings, run, server_metrics
from stages.shard_files import lines, row, write_shard

SCHEMAS = Path(__file__).parents[2] / "schemas"
HEAVY = {"responses_create_params": {"input": "x" * 1000}, "ng_trajectory": {"turns": []}}


def valid(name, content):
    schema = yaml.safe_load((SCHEMAS / f"{name}.schema.yaml").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(content)
    return content


class Run:
    """A run in `folder`: `owed` are (task, rollout, shard, server, agent)."""

    def __init__(self, folder, owed, servers):
        """`servers` is name -> (agent that it fronts, port)."""
        self.folder, self.owed = folder, owed
        config = {
            name: {
                "environment_servers": {"legacy": {"host": "127.0.0.1", "port": port, "agent_server": {"name": agent}}}
            }
            for name, (agent, port) in servers.items()
        }
        (folder / "topology.yaml").write_text(yaml.safe_dump(config))
        topology = parse_topology(config, where="test")
        environment = Environment(version=1, kind="topology", identity="", servers=topology.servers)
        (folder / "environment.json").write_bytes(msgspec.json.encode(environment))
        self.shards = max((shard for _, _, shard, _, _ in owed), default=0) + 1
        self.plan(len(owed))
        schema = {"task": pl.Int64, "rollout": pl.Int64, "shard": pl.Int32, "server": pl.String, "agent": pl.String}
        pl.DataFrame(owed, schema=schema, orient="row").write_parquet(folder / "plan.parquet")
        for shard in range(self.shards):
            self.shard(shard)

    def plan(self, rollouts):
        counts = {"shards": self.shards, "tasks": 0, "rollouts": rollouts, "materialized_bytes": 0}
        plan = Plan(version=1, **counts, digest="", environment="")
        (self.folder / "plan.json").write_bytes(msgspec.json.encode(plan))

    def shard(self, index, rollouts=(), failures=(), **fields):
        mine = [(t, r, agent) for t, r, shard, _, agent in self.owed if shard == index]
        rows = [row(t, r, agent_ref={"name": agent}, level=t, **fields) for t, r, agent in mine]
        folder = self.folder / "repaired" / f"{index:04d}-of-{self.shards:04d}"
        write_shard(folder, lines(*rollouts), lines(*failures), lines(*rows))

    def repair(self, texts=()):
        """Have the shards repaired by the stage, so that they have scores.parquet."""
        for shard in (self.folder / "repaired").iterdir():
            source = shard.rename(self.folder / f"raw-{shard.name}") / "rollouts.jsonl"
            files = repair.Files(rollouts=source, output=shard / "rollouts.jsonl", texts=list(texts))
            repair.run(files, repair.Settings(retry_invalid_judge_responses=False))

    def files(self):
        return Files(
            plan=self.folder / "plan.json",
            environment_file=self.folder / "environment.json",
            repaired=self.folder / "repaired",
            environment=json.dumps({"topology": str(self.folder / "topology.yaml")}),
            output=self.folder / "rollouts_aggregate_metrics.json",
        )

    def run(self, classes=(), missing=False, metrics=None):
        settings = Settings(metrics=metrics or Metrics(backend="server"), **counted(classes, missing))
        run(self.files(), settings)
        content = self.files().output.read_bytes()
        entries = valid("aggregate_metrics", orjson.loads(content))
        assert content == orjson.dumps(entries, option=orjson.OPT_INDENT_2)
        return entries, self.coverage(classes, missing, metrics)

    def coverage(self, classes=(), missing=False, metrics=None, **options):
        if not list(self.folder.glob("repaired/*/scores.parquet")):
            self.repair()
        output = self.folder / "coverage.json"
        settings = {"disable_aggregation": False, "max_attempts": 2, "retry_terminal_timeouts": False, **options}
        coverage.run(
            coverage.Files(plan=self.folder / "plan.json", repaired=self.folder / "repaired", output=output),
            coverage.Settings(metrics=metrics or Metrics(backend="server"), **counted(classes, missing), **settings),
        )
        return valid("coverage", orjson.loads(output.read_bytes()))


def counted(classes=(), missing=False):
    return {"count_failure_classes_as_zero": list(classes), "count_missing_rollouts_as_zero": missing}


def answered(task, rollout=0, reward=1.0, **fields):
    response = {"id": "r", "usage": {"input_tokens": task + 1}}
    return row(task, rollout, agent_ref={"name": "a"}, reward=reward, response=response, **HEAVY, **fields)


def failed(task, rollout=0, name="agent_run_error"):
    return row(task, rollout, agent_ref={"name": "a"}, _ng_failure_class=name, _ng_failure_message="boom")


def keys(items):
    return [(item["_ng_task_index"], item["_ng_rollout_index"]) for item in items]


def test_every_server_scores_its_own_rollouts(tmp_path):
    with serving() as first, serving() as second:
        owed = [(0, 0, 0, "z", "a"), (0, 1, 0, "z", "a"), (1, 0, 1, "b", "c"), (2, 0, 0, "z", "a")]
        this = Run(tmp_path, owed, {"z": ("a", first.port), "b": ("c", second.port), "idle": ("d", 1)})
        this.shard(0, [answered(0, 0), answered(0, 1, 0.0), answered(2, 0)])
        this.shard(1, [answered(1)])
        entries, coverage = this.run()
    assert [(e["_ng_environment_server"], e["agent_ref"]["name"]) for e in entries] == [("b", "c"), ("z", "a")]
    assert keys(first.requests[0]) == [(0, 0), (0, 1), (2, 0)]
    assert [keys(request) for request in second.requests] == [[(1, 0)]]
    expected = aggregate_metrics(first.requests[0])
    assert "perf_summary" not in entries[1]
    assert all(entries[1][name] == value for name, value in expected.items() if value is not None)
    assert entries[1]["agent_metrics"]["mean/input_tokens"] == pytest.approx(5 / 3)
    assert (coverage["expected"], coverage["scored"], coverage["servers"]["z"]["scored"]) == (4, 4, 3)


def test_rows_of_several_shards_are_sent_sorted_and_stripped(tmp_path):
    with serving() as server:
        owed = [(task, repeat, task % 2, "s", "a") for task in range(4) for repeat in range(2)]
        this = Run(tmp_path, owed, {"s": ("a", server.port)})
        for shard in range(2):
            this.shard(shard, [answered(t, r, _ng_environment_server="s") for t, r, of, _, _ in owed if of == shard])
        this.run()
    (items,) = server.requests
    assert keys(items) == sorted((task, repeat) for task, repeat, *_ in owed)
    assert items[0] == {
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
        "agent_ref": {"name": "a"},
        "reward": 1.0,
        "_ng_environment_server": "s",
        "response": {"usage": {"input_tokens": 1}},
    }


def test_counted_failures_and_imputed_zeros_are_sent_and_told_apart(tmp_path):
    owed = [(task, 0, 0, "s", "a") for task in range(5)]
    with serving() as server:
        this = Run(tmp_path, owed, {"s": ("a", server.port)})
        failures = [failed(0), failed(1, name="other"), failed(1), failed(2), failed(2, name="other")]
        this.shard(0, [answered(0, level=7), answered(4, reward=None)], failures)
        _, plain = this.run()
        entries, counted = this.run(["agent_run_error"], missing=True)
    assert (plain["scored"], plain["unscored"], plain["missing"], plain["recorded"]) == (1, 1, 1, 2)
    assert plain["failed_by_class"] == {"agent_run_error": 1, "other": 1}
    assert plain["missing_keys"] == [[3, 0]]
    assert keys(server.requests[0]) == [(0, 0), (4, 0)]
    assert (counted["imputed"], counted["imputed_missing"], counted["missing"]) == (2, 1, 0)
    assert counted["failed_by_class"] == {"other": 1}
    items = server.requests[1]
    assert keys(items) == [(0, 0), (1, 0), (3, 0), (4, 0)]
    zero = {"_ng_task_index": 3, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}, "reward": 0.0, "level": 3}
    assert items[2] == zero
    assert items[1] == zero | {"_ng_task_index": 1, "level": 1, "mask_sample": False}
    assert entries[0]["agent_metrics"]["mean/reward"] == pytest.approx(1 / 3)


def test_servers_that_front_one_agent_are_labelled_by_their_own_names(tmp_path):
    with serving() as server:
        owed = [(0, 0, 0, "x", "a"), (1, 0, 0, "y", "a")]
        this = Run(tmp_path, owed, {"x": ("a", server.port), "y": ("a", server.port)})
        this.shard(0, [answered(0), answered(1)])
        entries, _ = this.run()
    assert [entry["agent_ref"]["name"] for entry in entries] == ["x", "y"]


def test_nothing_owed_is_an_empty_list_and_no_server_is_asked(tmp_path):
    entries, coverage = Run(tmp_path, [], {}).run()
    assert entries == []
    assert coverage["expected"] == 0


def test_nothing_scored_is_an_error(tmp_path):
    this = Run(tmp_path, [(0, 0, 0, "s", "a"), (1, 0, 0, "s", "a")], {"s": ("a", 1)})
    this.shard(0, [], [failed(0)])
    with pytest.raises(DataError, match=r"none of 2 .*1 failed as agent_run_error, 1 left no row"):
        this.run()
    assert not (tmp_path / "rollouts_aggregate_metrics.json").exists()


def test_a_server_that_cannot_score_is_named(tmp_path):
    with serving((422, b"no", {})) as server:
        this = Run(tmp_path, [(0, 0, 0, "s", "a")], {"s": ("a", server.port)})
        this.shard(0, [answered(0)])
        with pytest.raises(ServerError, match=r"'s'.*status 422"):
            this.run()
    assert not (tmp_path / "rollouts_aggregate_metrics.json").exists()


def test_a_server_without_address_is_named(tmp_path):
    this = Run(tmp_path, [(0, 0, 0, "gone", "a")], {"s": ("a", 1)})
    this.shard(0, [answered(0)])
    with pytest.raises(ServerError, match=r"'gone'.*no address.*: s"):
        this.run()


@pytest.mark.parametrize(
    ("rollouts", "failures", "found"),
    [
        ([answered(9)], [], "rollouts.jsonl:1: the plan does not deal task 9"),
        ([], [failed(9)], "rollouts_failures.jsonl:1: the plan does not deal task 9"),
        ([answered(1)], [], "rollouts.jsonl:1: the plan does not deal task 1"),
        ([answered(0), answered(0)], [], "rollouts.jsonl:2: the rollout of task 0, rollout 0 is there twice"),
        ([answered(0), b"{"], [], "rollouts.jsonl:2: this line is no record"),
        ([b"{}"], [], "rollouts.jsonl:1: this line is no record"),
        ([b"[]"], [], "rollouts.jsonl:1: this line is no record"),
        ([row([0])], [], "rollouts.jsonl:1: this line is no record"),
    ],
)
def test_shards_that_are_not_what_the_plan_owes_are_refused(tmp_path, rollouts, failures, found):
    this = Run(tmp_path, [(0, 0, 0, "s", "a"), (1, 0, 1, "s", "a"), (2, 0, 0, None, None)], {"s": ("a", 1)})
    this.shard(0, rollouts, failures)
    with pytest.raises(DataError, match=found):
        this.run()
    assert not (tmp_path / "coverage.json").exists()


def test_a_missing_shard_and_a_plan_of_two_minds_are_refused(tmp_path):
    this = Run(tmp_path, [(0, 0, 0, "s", "a")], {"s": ("a", 1)})
    this.plan(2)
    with pytest.raises(DataError, match=r"plan.parquet: 1 rollouts, but .*plan.json has 2"):
        this.run()
    this.plan(1)
    (tmp_path / "repaired" / "0000-of-0001" / "rollouts_failures.jsonl").unlink()
    with pytest.raises(DataError, match=r"rollouts_failures.jsonl: there is no such file"):
        this.run()


@pytest.mark.parametrize("backend", ["server", "local"])
def test_answers_that_name_nobody_are_counted_and_not_scored(tmp_path, backend):
    with serving() as server:
        this = Run(tmp_path, [(0, 0, 0, "s", "a"), (1, 0, 0, None, None)], {"s": ("a", server.port)})
        this.shard(0, [answered(0), answered(1, reward=0.0)])
        this.repair()
        entries, coverage = this.run(missing=True, metrics=Metrics(backend=backend))
    assert (coverage["scored"], coverage["unrouted"], coverage["unrouted_keys"]) == (1, 1, [[1, 0]])
    assert [entry["agent_metrics"]["mean/reward"] for entry in entries] == [1.0]


def test_rollouts_without_server_are_missing_and_never_imputed(tmp_path):
    with serving() as server:
        this = Run(tmp_path, [(0, 0, 0, "s", "a"), (1, 0, 0, None, None)], {"s": ("a", server.port)})
        this.shard(0, [answered(0)])
        entries, coverage = this.run(missing=True)
    assert (coverage["scored"], coverage["missing"], coverage["servers"][""]["missing"]) == (1, 1, 1)
    assert entries[0]["agent_metrics"]["mean/reward"] == 1.0


@pytest.mark.parametrize("content", [None, b"", b"PAR1"])
def test_a_table_that_cannot_be_read_is_named(tmp_path, content):
    this = Run(tmp_path, [(0, 0, 0, "s", "a")], {"s": ("a", 1)})
    (tmp_path / "plan.parquet").unlink()
    if content is not None:
        (tmp_path / "plan.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"plan.parquet: cannot be read"):
        this.run()


def local(**fields):
    return Metrics(backend="local", **fields)


@pytest.fixture
def mixed(tmp_path):
    """Two servers, masked, unscored, failed and missing rollouts, ragged repeats, fields of every kind, two shards."""
    with serving() as server:
        owed = [(t, r, t % 2, "z" if t < 4 else "b", "a" if t < 4 else "c") for t in range(6) for r in range(3)]
        this = Run(tmp_path, owed, {"z": ("a", server.port), "b": ("c", server.port)})
        rows = {
            (0, 0): {"reward": 1, "ok": True, "subset": "easy"},
            (0, 1): {"reward": 0.5, "ok": False, "level": 2, "subset": "easy"},
            (0, 2): {"reward": None, "t_ns": 2**62, "level": 0.25},
            (1, 0): {"reward": 0.0, "mask_sample": True, "level": 7},
            (1, 1): {"reward": 1.0, "level": True, "text": "x", "ng_perf": {"num_turns": 3}},
            (2, 0): {"reward": 0.25, "level": 2**53 + 1},
            (4, 0): {"reward": 1.0, "t_ns": 1},
            (4, 1): {"reward": 0.0, "t_ns": 0},
            (5, 0): {"reward": 0.125},
        }
        of = {(t, r): agent for t, r, _, _, agent in owed}
        for shard in range(2):
            mine = {key: fields for key, fields in rows.items() if key[0] % 2 == shard}
            records = [row(*key, agent_ref={"name": of[key]}, **fields) for key, fields in reversed(mine.items())]
            this.shard(shard, records, [failed(2 + shard, 1), failed(4 + shard, 2, "other")])
        this.repair(["subset"])
        yield this, server


@pytest.mark.parametrize("count", [{}, {"missing": True}, {"classes": ["agent_run_error"], "missing": True}])
def test_the_local_backend_computes_what_default_servers_do(mixed, count):
    this, server = mixed
    expected, _ = this.run(**count)
    asked = len(server.requests)
    entries, _ = this.run(**count, metrics=local())
    assert len(server.requests) == asked == 2
    assert entries == expected
    assert [entry["_ng_environment_server"] for entry in entries] == ["b", "z"]
    options = Settings(metrics=local(), **counted(**count))
    own, theirs = LocalMetrics(this.files(), options).states, server_metrics(this.files(), options).states
    assert_frame_equal(own, theirs, check_row_order=False)


def test_the_local_backend_adds_pass_at_k_over_the_fields_that_are_named(mixed):
    this, _ = mixed
    plain, _ = this.run(metrics=local())
    entries, coverage = this.run(metrics=local(score="reward", subset_key="subset"))
    agent = {entry["_ng_environment_server"]: entry["agent_metrics"] for entry in entries}
    # Tasks 0 (1 and 0.5), 1 (1) and 2 (0.25) have scores; of fractions the best of the first k counts.
    assert agent["z"]["pass@1/accuracy"] == pytest.approx(75.0)
    assert agent["z"]["pass@2/accuracy"] == 100.0
    assert agent["z"]["pass@1[avg-of-2]/accuracy"] == pytest.approx(100 * (0.75 + 1 + 0.25) / 3)
    assert agent["z"]["easy/pass@1/accuracy"] == 100.0
    assert entries[1]["key_metrics"]["pass@2/accuracy"] == 100.0
    assert "pass@1/accuracy" not in entries[1]["key_metrics"]
    for before, after in zip(plain, entries, strict=True):
        assert before["agent_metrics"].items() <= after["agent_metrics"].items()
        assert before["group_level_metrics"] == after["group_level_metrics"]
    subsets = coverage["subsets"]
    assert (subsets["easy"]["expected"], subsets["easy"]["scored"], subsets["easy"]["unscored"]) == (3, 2, 1)
    assert sum(part["expected"] for part in subsets.values()) == coverage["expected"] == 18


@pytest.mark.parametrize(("option", "found"), [("score", "the number 'subset'"), ("subset_key", "the field 'nowhere'")])
def test_a_field_that_no_rollout_has_is_named(tmp_path, option, found):
    this = Run(tmp_path, [(0, 0, 0, "s", "a")], {"s": ("a", 1)})
    this.shard(0, [answered(0, subset="x")])
    this.repair(["nowhere"])
    name = found.split("'")[1]
    with pytest.raises(InputError, match=rf"metrics.{option}: no rollout has {found}"):
        this.run(metrics=local(**{option: name}))


def test_shards_that_were_repaired_without_a_field_are_named(tmp_path):
    this = Run(tmp_path, [(0, 0, 0, "s", "a")], {"s": ("a", 1)})
    this.shard(0, [answered(0, subset="x")])
    this.repair()
    with pytest.raises(DataError, match=r"scores.parquet: it was written without the field 'subset'.*--texts subset"):
        this.run(metrics=local(subset_key="subset"))


@pytest.mark.parametrize(
    ("rollouts", "found"),
    [
        ([answered(0), answered(9)], "rollouts.jsonl:2: the plan does not deal task 9, rollout 0 to this shard"),
        ([answered(1)], "rollouts.jsonl:1: the plan does not deal task 1"),
    ],
)
def test_scores_that_are_not_what_the_plan_owes_are_refused(tmp_path, rollouts, found):
    this = Run(tmp_path, [(0, 0, 0, "s", "a"), (1, 0, 1, "s", "a"), (2, 0, 0, None, None)], {"s": ("a", 1)})
    this.shard(0, rollouts)
    (tmp_path / "repaired" / "0000-of-0002" / "rollouts_materialized_inputs.jsonl").unlink()
    this.repair()
    with pytest.raises(DataError, match=found):
        this.run(metrics=local())
    assert not (tmp_path / "coverage.json").exists()


def test_shards_without_scores_are_named(tmp_path):
    this = Run(tmp_path, [(0, 0, 0, "s", "a")], {"s": ("a", 1)})
    this.shard(0, [answered(0)])
    with pytest.raises(DataError, match=r"scores.parquet: cannot be read"):
        this.run(metrics=local())
