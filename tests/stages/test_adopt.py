"""The stage adopt on shards that were repaired by the stage."""

import msgspec
import orjson
import polars as pl
import pytest

from helpers.runs import json_lines
from rollmake.core.errors import DataError, InputError
from rollmake.core.plan import COLUMNS
from rollmake.core.topology import Environment, parse_topology
from rollmake.edge.plan import read_plan
from rollmake.edge.records import planned
from rollmake.stages import adopt, repair
from stages.shard_files import lines, row, write_shard

# Two servers front `both`.
FRONTED = {"one": "solver", "two": "both", "three": "both"}


class Run:
    """Shards at `shards`, each its rollouts, failures and materialized rows, repaired but not yet adopted."""

    def __init__(self, folder, *shards):
        self.folder, self.shards = folder, len(shards)
        config = {
            name: {"environment_servers": {"kind": {"agent_server": {"name": agent}}}}
            for name, agent in FRONTED.items()
        }
        servers = parse_topology(config, where="test").servers
        environment = Environment(version=1, kind="topology", identity="", servers=servers)
        (folder / "environment.json").write_bytes(msgspec.json.encode(environment))
        for index, shard in enumerate(shards):
            self.repair(write_shard(folder / "raw", *(lines(*rows) for rows in shard), stem=f"shard{index}"), index)

    def repair(self, source, index=0):
        output = self.folder / "repaired" / f"{index:04d}-of-{self.shards:04d}" / "rollouts.jsonl"
        settings = repair.Settings(retry_invalid_judge_responses=False)
        repair.run(repair.Files(rollouts=source, output=output), settings)

    def adopt(self):
        files = adopt.Files(
            repaired=self.folder / "repaired",
            shards=self.shards,
            environment_file=self.folder / "environment.json",
            output=self.folder / "rollouts_materialized_inputs.jsonl",
            plan=self.folder / "plan.json",
        )
        adopt.run(files, adopt.Settings())
        return pl.read_parquet(self.folder / "plan.parquet")


def solver(task, rollout=0, **fields):
    return row(task, rollout, agent_ref={"name": "solver"}, **fields)


def test_what_is_owed_is_what_the_shards_own_files_say(tmp_path):
    rows = [solver(task, level=task) for task in range(3)]
    this = Run(
        tmp_path,
        ([solver(1, reward=1)], [solver(0, _ng_failure_class="x")], rows),
        ([solver(5, reward=0)], [solver(6, _ng_failure_class="x")]),
    )
    table = this.adopt()
    assert table.columns == list(COLUMNS)
    assert table.select("task", "rollout", "shard", "server", "agent").rows() == [
        (0, 0, 0, "one", "solver"),
        (1, 0, 0, "one", "solver"),
        (2, 0, 0, "one", "solver"),
        (5, 0, 1, "one", "solver"),
        (6, 0, 1, "one", "solver"),
    ]
    content = (tmp_path / "rollouts_materialized_inputs.jsonl").read_bytes()
    at = [content[offset : offset + length] for offset, length in table.select("offset", "length").iter_rows()]
    assert at[:3] == rows
    assert [orjson.loads(line)["_ng_environment_server"] for line in at[3:]] == ["one", "one"]
    plan = read_plan(tmp_path / "plan.json")
    assert (plan.rollouts, plan.tasks, plan.shards, plan.materialized_bytes) == (5, 5, 2, len(content))
    assert len(planned(tmp_path / "plan.json")) == 5


def test_a_stamp_goes_before_the_agent_and_rows_may_name_nobody(tmp_path):
    this = Run(tmp_path, ([row(0, agent_ref={"name": "both"}, _ng_environment_server="two"), row(1, reward=1)],))
    assert this.adopt().select("task", "server", "agent").rows() == [(0, "two", "both"), (1, None, None)]
    assert json_lines(tmp_path / "rollouts_materialized_inputs.jsonl")[1] == {
        "_ng_task_index": 1,
        "_ng_rollout_index": 0,
    }


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"agent_ref": {"name": "nobody"}}, "no environment server fronts agent 'nobody'.*whose `topology` has"),
        ({"agent_ref": {"name": "both"}}, "agent 'both' is fronted by several servers: two, three"),
        (
            {"_ng_environment_server": "gone"},
            "environment server 'gone' is not in the environment.*whose `topology` has",
        ),
    ],
)
def test_a_row_that_no_one_server_answers_is_named(tmp_path, place, fields, found):
    shard = [[], [], [row(7, 3, **fields)]]
    shard[place] = [row(7, 3, **fields)]
    this = Run(tmp_path, ([solver(0)],), shard)
    with pytest.raises(InputError, match=rf"shard1.jsonl: task 7, rollout 3: {found}"):
        this.adopt()
    assert not (tmp_path / "plan.json").exists()


def test_a_result_in_two_shards_is_refused_with_both_files_before_anything_is_written(tmp_path):
    this = Run(tmp_path, ([solver(4, 1)],), ([solver(0)],), ([solver(4, 1, reward=1)],))
    with pytest.raises(
        InputError, match=r"task 4, rollout 1 of .*'one' has a result in .*shard0.jsonl and in .*shard2"
    ):
        this.adopt()
    assert not (tmp_path / "rollouts_materialized_inputs.jsonl").exists()


def test_the_same_indices_under_two_servers_are_two_rollouts(tmp_path):
    this = Run(tmp_path, ([solver(4)],), ([row(4, _ng_environment_server="two")],))
    assert this.adopt()["server"].to_list() == ["one", "two"]
    assert read_plan(tmp_path / "plan.json").tasks == 2


def test_the_plan_is_another_if_and_only_if_what_is_owed_is(tmp_path):
    def digest(name, *shards):
        (tmp_path / name).mkdir()
        this = Run(tmp_path / name, *shards)
        this.adopt()
        return read_plan(tmp_path / name / "plan.json").digest

    rows = [solver(0, level=1), solver(1, level=1)]
    one = digest("a", ([solver(0)], [], rows))
    assert one == digest("b", ([solver(0, reward=1), solver(1)], [], rows))
    assert one != digest("c", ([solver(0)], [], [solver(0, level=1), solver(1, level=2)]))
    assert one != digest("d", ([solver(0)], [], rows[:1]))
    assert one == digest("e", ([solver(0)], [], rows), ([],))


def test_equal_rows_are_counted_as_repeats(tmp_path):
    rows = [solver(task, repeat, level=task) for task in range(2) for repeat in range(3)]
    table = Run(tmp_path, ([], [], rows)).adopt()
    assert table["repeat"].to_list() == [0, 1, 2, 0, 1, 2]
    assert table["digest"].n_unique() == 2


NAN = b'{"_ng_task_index":3,"_ng_rollout_index":1,"reward":NaN'


def test_a_lost_line_with_a_key_is_owed_where_nothing_else_says_what_is(tmp_path):
    named = NAN + b',"_ng_environment_server":"two","agent_ref":{"name":"both"}}'
    this = Run(tmp_path, ([solver(0), NAN + b"}", b'{"torn'], [named.replace(b":3", b":4"), solver(5)]), ([solver(6)],))
    assert this.adopt().select("task", "rollout", "shard", "server", "agent").rows() == [
        (0, 0, 0, "one", "solver"),
        (5, 0, 0, "one", "solver"),
        (3, 1, 0, "one", "solver"),
        (4, 1, 0, "two", "both"),
        (6, 0, 1, "one", "solver"),
    ]
    assert json_lines(tmp_path / "rollouts_materialized_inputs.jsonl")[2] == {
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "agent_ref": {"name": "solver"},
        "_ng_environment_server": "one",
    }
    assert read_plan(tmp_path / "plan.json").adopted


def test_a_lost_line_of_a_key_that_has_a_row_is_no_second_rollout(tmp_path):
    both = row(7, _ng_environment_server="two")
    this = Run(
        tmp_path, ([solver(0), NAN + b"}"], [solver(3, 1)]), ([solver(5), both, NAN.replace(b":3", b":7") + b"}"],)
    )
    assert this.adopt().select("task", "rollout", "server").rows() == [
        (0, 0, "one"),
        (3, 1, "one"),
        (5, 0, "one"),
        (7, 0, "two"),
        (7, 1, None),
    ]


def test_a_lost_line_that_names_nobody_is_answered_by_another_shard_whoever_does(tmp_path):
    lost = NAN + b',"agent_ref":{"name":"gone"}}'
    this = Run(
        tmp_path, ([lost, NAN.replace(b":3", b":8") + b"}"],), ([solver(3, 1), row(7, _ng_environment_server="two")],)
    )
    assert this.adopt().select("task", "server", "shard").rows() == [(8, None, 0), (3, "one", 1), (7, "two", 1)]


def test_where_materialized_inputs_say_what_is_owed_lost_lines_do_not(tmp_path):
    this = Run(tmp_path, ([solver(0), NAN + b"}"], [], [solver(0), solver(1)]))
    assert this.adopt()["task"].to_list() == [0, 1]


def test_shards_without_scores_are_named(tmp_path):
    this = Run(tmp_path, ([solver(0)],))
    (tmp_path / "repaired/0000-of-0001/scores.parquet").unlink()
    with pytest.raises(DataError, match=r"scores.parquet: cannot be read"):
        this.adopt()


@pytest.mark.parametrize("name", ["rollouts_failures.jsonl", "rollouts_materialized_inputs.jsonl", "scores.parquet"])
def test_a_file_that_a_repaired_shard_lacks_is_named(tmp_path, name):
    this = Run(tmp_path, ([solver(0, reward=1)], [], []))
    (tmp_path / "repaired" / "0000-of-0001" / name).unlink()
    with pytest.raises(DataError, match=rf"0000-of-0001/{name}: .*Repair that shard again"):
        this.adopt()
    assert not (tmp_path / "plan.json").exists()
