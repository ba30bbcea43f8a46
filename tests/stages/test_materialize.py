"""The stage materialize on files: what it writes, what it refuses, and that it refuses before it writes."""

import gc
import json
import logging
import os

import msgspec
import polars as pl
import pytest
from jsonschema import Draft202012Validator

from helpers.materialize import defaults, flat, typed
from rollmake.core.errors import DataError, InputError, Problems
from rollmake.core.plan import Plan, row_digest
from rollmake.core.router import OVERRIDE
from rollmake.core.topology import Environment, parse_topology
from rollmake.edge.settings import schema
from rollmake.stages import materialize
from rollmake.stages.materialize import Files, Settings, run

TOPOLOGY = {
    "math": {
        "resources_servers": {
            "math": {
                "allowed_agents": ["simple_agent"],
                "datasets": [
                    {"type": "train", "jsonl_fpath": "sums.jsonl", "name": "sums"},
                    {"type": "validation", "jsonl_fpath": "none.jsonl"},
                    {"type": "example", "jsonl_fpath": "sums.jsonl"},
                ],
            }
        }
    },
    "a": {"responses_api_agents": {"simple_agent": {"resources_server": {"name": "math"}}}},
    "b": {"responses_api_agents": {"other_agent": {"datasets": [{"type": "train", "jsonl_fpath": "sums.jsonl"}]}}},
    "a_env": {"environment_servers": {"legacy_agent": {"agent_server": {"name": "a"}}}},
    "b_env": {"environment_servers": {"legacy_agent": {"agent_server": {"name": "b"}}}},
}
VALIDATORS = {
    name: Draft202012Validator(schema(name)) for name in ("plan", "input_row", "materialized_row", "environment")
}
OUTPUTS = ("rollouts_materialized_inputs.jsonl", "plan.json", "plan.parquet")


class Run:
    """A folder with inputs and outputs of the stage."""

    def __init__(self, folder):
        self.folder = folder
        self.environment(TOPOLOGY, "")

    def environment(self, topology, identity):
        servers = parse_topology(topology, where="t").servers
        content = Environment(version=1, kind="topology", identity=identity, servers=servers)
        (self.folder / "environment.json").write_bytes(msgspec.json.encode(content))

    def __call__(self, *inputs, **given):
        paths = []
        for number, content in enumerate(inputs):
            paths.append(self.folder / f"tasks{number}.jsonl")
            rows = (
                content if isinstance(content, bytes) else "".join(json.dumps(row) + "\n" for row in content).encode()
            )
            paths[-1].write_bytes(rows)
        self.run(paths, **given)
        return self.rows()

    def run(self, paths, **given):
        settings = msgspec.convert({**defaults(), **given}, Settings)
        out = self.folder / "out"
        files = Files(
            input=paths,
            environment_file=self.folder / "environment.json",
            output=out / OUTPUTS[0],
            plan=out / "plan.json",
        )
        run(files, settings)
        VALIDATORS["plan"].validate(json.loads(self.content("plan.json")))
        for row in self.rows()[:50]:
            VALIDATORS["materialized_row"].validate(row)

    def content(self, name):
        return (self.folder / "out" / name).read_bytes()

    def rows(self):
        return [json.loads(line) for line in self.content(OUTPUTS[0]).split(b"\n")[:-1]]

    def plan(self):
        return msgspec.json.decode(self.content("plan.json"), type=Plan)

    def table(self):
        return pl.read_parquet(self.folder / "out" / "plan.parquet")

    def outputs(self):
        return sorted(os.listdir(self.folder / "out")) if (self.folder / "out").exists() else []


@pytest.fixture
def stage(tmp_path):
    return Run(tmp_path)


def keys(rows):
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]


def test_plain_rows(stage):
    rows = stage([flat("1", n=1.0), flat("2", agent=None, task_source="math")], num_repeats=2, shards=2)
    assert rows[0] == {**flat("1", n=1.0), "_ng_task_index": 0, "_ng_rollout_index": 0}
    assert rows[3] == {**flat("2", "a", task_source="math"), "_ng_task_index": 1, "_ng_rollout_index": 1}
    assert keys(rows) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert stage.outputs() == sorted(OUTPUTS)


def test_the_table_says_where_each_rollout_lies(stage):
    stage([flat("1"), flat("2", "b"), flat("3")], num_repeats=3, shards=2)
    content, table = stage.content(OUTPUTS[0]), stage.table()
    for line in table.iter_rows(named=True):
        raw = content[line["offset"] : line["offset"] + line["length"]]
        row = json.loads(raw)
        assert (row.pop("_ng_task_index"), row.pop("_ng_rollout_index")) == (line["task"], line["rollout"])
        assert line["digest"] == row_digest(json.dumps(row, separators=(",", ":")).encode(), "")
        assert line["repeat"] == line["rollout"]
    assert table["shard"].to_list() == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert table["server"].to_list() == ["a_env"] * 3 + ["b_env"] * 3 + ["a_env"] * 3
    assert table["agent"].to_list() == ["a"] * 3 + ["b"] * 3 + ["a"] * 3


def test_plan_counts_and_does_not_change_by_itself(stage):
    stage([flat("1"), flat("2")], num_repeats=3, shards=2)
    plan, content = stage.plan(), stage.content("plan.json")
    assert (plan.version, plan.shards, plan.tasks, plan.rollouts) == (1, 2, 2, 6)
    assert plan.materialized_bytes == len(stage.content(OUTPUTS[0]))
    stage([flat("1"), flat("2")], num_repeats=3, shards=2)
    assert stage.content("plan.json") == content
    stage.environment(TOPOLOGY, "another policy")
    stage([flat("1"), flat("2")], num_repeats=3, shards=2)
    assert stage.plan().digest != plan.digest
    assert stage.plan().environment == "another policy"


def test_a_row_keeps_its_digest_when_it_moves(stage):
    stage([flat("1"), flat("2")])
    before = dict(zip(["1", "2"], stage.table()["digest"].to_list(), strict=True))
    stage([flat("0"), flat("2"), flat("1")], shards=3)
    after = dict(zip(["0", "2", "1"], stage.table()["digest"].to_list(), strict=True))
    assert {key: after[key] for key in before} == before


def test_stamped_indices_are_not_content(stage):
    stage([flat("1"), flat("2")])
    automatic = stage.table()["digest"].to_list()
    stage([flat("1", _ng_task_index=70, _ng_rollout_index=5), flat("2", _ng_task_index=80)])
    assert stage.table()["digest"].to_list() == automatic
    assert keys(stage.rows()) == [(70, 0), (80, 0)]


def test_equal_content_of_different_tasks_is_told_apart_by_repeat(stage):
    stage([flat("1", _ng_task_index=7), flat("1", _ng_task_index=8)], num_repeats=2)
    assert stage.table()["repeat"].to_list() == [0, 1, 2, 3]


def test_several_files_are_one_input(stage):
    assert keys(stage([flat("1")], [flat("2"), flat("1")])) == [(0, 0), (1, 0), (0, 1)]


def test_interleaved_repeats(stage):
    rows = stage([flat(str(number)) for number in range(3)], num_repeats=2, interleave_repeats=True, shards=2)
    assert keys(rows) == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    content, table = stage.content(OUTPUTS[0]), stage.table()
    assert table["shard"].to_list() == [0, 1, 0, 0, 1, 0]
    ends = (table["offset"] + table["length"]).to_list()
    assert all(content[end : end + 1] == b"\n" for end in ends)
    assert ends[-1] + 1 == len(content)
    assert stage.outputs() == sorted(OUTPUTS)


def test_many_rows_are_the_same_as_few(stage):
    rows = stage([flat(str(number)) for number in range(1500)], num_repeats=2)
    assert keys(rows) == [(number // 2, number % 2) for number in range(3000)]
    assert [row["responses_create_params"]["input"] for row in rows[::2]] == [str(number) for number in range(1500)]


def test_limit_stops_reading(stage):
    content = json.dumps(flat("1")).encode() + b"\n\n" + json.dumps(flat("2")).encode() + b"\nnot json\n"
    assert keys(stage(content, limit=2)) == [(0, 0), (1, 0)]
    with pytest.raises(InputError, match=r"tasks0\.jsonl:4: column 1: broken JSON"):
        stage(content, limit=0)


def test_no_rows_are_a_plan_without_rollouts(stage):
    for interleave in (False, True):
        assert stage(b"", interleave_repeats=interleave) == []
        assert (stage.plan().tasks, stage.plan().rollouts) == (0, 0)
        assert stage.table().height == 0


def test_odd_line_ends_are_accepted_and_said(stage, caplog):
    one, two = json.dumps(flat("1")).encode(), json.dumps(flat("2")).encode()
    with caplog.at_level(logging.WARNING):
        rows = stage(b"\xef\xbb\xbf" + one + b"\r\n\n" + two + b"\n" + one, one + b"\r" + two + b"\n")
    assert keys(rows) == [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)]
    said = "\n".join(caplog.messages)
    for remark in ("byte order mark", "blank lines: 1", "CRLF: 1", "no newline", "carriage return: 1"):
        assert remark in said
    assert "tasks0.jsonl: passed over blank lines: 1" in said
    assert "tasks1.jsonl: lines that end in a lone carriage return: 1" in said


def test_separators_inside_text_are_text(stage):
    text = "café \u2028 \u2029 \u0085 😀"
    raw = json.dumps(flat(text), ensure_ascii=False).encode() + b"\n"
    assert [row["responses_create_params"]["input"] for row in stage(raw, num_repeats=2)] == [text, text]


def test_all_problems_are_told_at_once_and_nothing_is_written(stage):
    stage([flat("before")])
    before = {name: stage.content(name) for name in OUTPUTS}
    content = b"\n".join(
        [
            b'{"a":1,"a":2}',
            json.dumps(flat("2", "bb")).encode(),
            b"[]",
            json.dumps(flat("4", None)).encode(),
            json.dumps(flat("5", None, task_source="mth")).encode(),
            json.dumps(typed()).encode(),
            json.dumps(flat("7", "b", task_source="math")).encode(),
            b'{"a":NaN}',
        ]
    )
    with pytest.raises(Problems) as refusal:
        stage(content)
    told = str(refusal.value)
    for line, text in {
        1: "column 8: the key 'a' stands twice",
        2: "agent 'bb' is not in the environment; the nearest is 'b'",
        3: "column 1: a row is a JSON object, not an array",
        4: "names no agent",
        5: "task_source 'mth' is not in the environment; the nearest is 'math'",
        6: "no environment server is known for taskset 'env:math'",
        7: "'math' accepts simple_agent only, but agent 'b' is a other_agent",
        8: "column 6: NaN is no JSON number",
    }.items():
        assert f"tasks0.jsonl:{line}: {text}" in told
    for option in ("agent_map", "agent_name", "environment_server_routes", "allow_unsupported_pairing"):
        assert option in told
    assert len(refusal.value.problems) == 8
    assert {name: stage.content(name) for name in OUTPUTS} == before
    assert stage.outputs() == sorted(OUTPUTS)


@pytest.mark.parametrize("variable", ["1", "true", "yes"])
def test_pairings_can_be_allowed(stage, monkeypatch, variable):
    rows = [flat("1", "b", task_source="math")]
    assert len(stage(rows, allow_unsupported_pairing=True)) == 1
    monkeypatch.setenv(OVERRIDE, variable)
    assert len(stage(rows)) == 1


@pytest.mark.parametrize("variable", ["", "0", "false"])
def test_pairings_are_checked(stage, monkeypatch, variable):
    monkeypatch.setenv(OVERRIDE, variable)
    with pytest.raises(InputError, match=r"tasks0\.jsonl:1: 'math' accepts simple_agent only"):
        stage([flat("1", "b", task_source="math")])


def test_contradicting_options_are_refused_before_reading(stage):
    with pytest.raises(InputError, match="num_repeats: 0"):
        stage(b"not json", num_repeats=0)


def test_files_that_are_not_there(stage, tmp_path):
    with pytest.raises(Problems) as refusal:
        stage.run([tmp_path / "none.jsonl", tmp_path / "nor.jsonl"])
    for name in ("none.jsonl", "nor.jsonl"):
        assert f"{name}: there is no such file. Correct `input` in the config" in str(refusal.value)
    with pytest.raises(InputError, match=r"cannot be read: Is a directory.*`input`"):
        stage.run([tmp_path])
    (tmp_path / "environment.json").unlink()
    with pytest.raises(DataError, match=r"environment\.json: cannot be read.*Run the stage environment"):
        stage([flat("1")])
    assert stage.outputs() == []


def test_prompt_skills_and_parameters_reach_the_rows(stage, tmp_path):
    (tmp_path / "prompt.yaml").write_text("user: 'Solve {question}'\n")
    (tmp_path / "skills" / "s").mkdir(parents=True)
    (tmp_path / "skills" / "s" / "SKILL.md").write_text("---\nname: calc\n---\n")
    given = {"prompt_config": str(tmp_path / "prompt.yaml"), "skills": str(tmp_path / "skills")}
    (row,) = stage([{"question": "1+1", "agent_ref": {"name": "a"}}], **given, responses_create_params={"top_p": 1})
    assert row["responses_create_params"] == {"input": [{"role": "user", "content": "Solve 1+1"}], "top_p": 1}
    assert row["skills_ref"]["skills"] == [{"name": "calc", "description": None, "version": None}]


def test_typed_rows_go_to_the_server_of_their_taskset(stage):
    (row,) = stage([typed()], environment_server_routes={"env:math": "b_env"})
    assert row["_ng_environment_server"] == "b_env"
    assert stage.table().select("server", "agent").rows() == [("b_env", None)]


def test_garbage_collection_goes_on_afterwards(stage):
    stage([flat("1")])
    assert gc.isenabled()
    with pytest.raises(InputError):
        stage(b"[]")
    assert gc.isenabled()
    gc.disable()
    try:
        stage([flat("1")])
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_warnings_are_said(stage, caplog):
    with caplog.at_level(logging.WARNING):
        stage([flat("1", "a")], agent_map={"a": "b", "q": "b"})
    assert "agent_map replaces what rows name: 'a' -> 'b' (1 rows)" in caplog.messages
    assert "agent_map has entries that no row uses: q" in caplog.messages


def test_the_plan_takes_its_name_last(stage, monkeypatch):
    order = []
    replace = materialize.Path.replace
    monkeypatch.setattr(
        materialize.Path, "replace", lambda self, target: (order.append(target.name), replace(self, target))[1]
    )
    stage([flat("1")])
    assert order == ["rollouts_materialized_inputs.jsonl", "plan.parquet", "plan.json"]


ONE, TWO = (json.dumps(flat(text)).encode() for text in "12")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"a": 1', "column 8: broken JSON"),
        (b'{"a": 1} {"b": 2}', "column 10: broken JSON"),
        (b"[1]", "column 1: a row is a JSON object, not an array"),
        (b'"text"', "column 1: a row is a JSON object, not a string"),
        (b'{"a": 1, "a": 2}', "column 10: the key 'a' stands twice in one object. Leave one of them out"),
        (b'{"a": [{"b": {"c": 1, "c": 2}}]}', "column 23: the key 'c' stands twice in one object"),
        ('{"é": {"b": 1, "b": 1}}'.encode(), "column 16: the key 'b' stands twice in one object"),
        (b'{"a": 18446744073709551616}', "column 7: the integer 18446744073709551616 does not fit into 64 bits"),
        (b'{"a": [-9223372036854775809]}', "column 8: the integer -9223372036854775809 does not fit into 64 bits"),
        (b'{"a": NaN}', "column 7: NaN is no JSON number. Write null or leave it out"),
        (b'{"a": -Infinity}', "column 7: -Infinity is no JSON number"),
    ],
)
@pytest.mark.parametrize(("before", "number"), [(b"", 1), (ONE + b"\n\n", 3), (b"\xef\xbb\xbf" + ONE + b"\r\n", 2)])
def test_what_is_no_row_is_told_with_file_line_and_column(stage, line, told, before, number):
    with pytest.raises(InputError) as refusal:
        stage([flat("0")], before + line + b"\n" + TWO)
    path = stage.folder / "tasks1.jsonl"
    assert str(refusal.value).startswith(f"{path}:{number}: {told}")
    assert stage.outputs() == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_equal_lines_are_one_task_whatever_ends_them(stage, end):
    assert keys(stage(ONE + end + ONE + b"\n" + TWO + end + ONE)) == [(0, 0), (0, 1), (1, 0), (0, 2)]


def test_a_row_is_sent_as_it_was_said(stage):
    text = (
        b'{"responses_create_params": {"input": "q", "n": 1.0}, "agent_ref": {"name": "a", "x": 1}, "big": %d, "u": "'
    )
    text += "\u2028".encode() + b'"}'
    stage(text % (2**64 - 1) + b"\n")
    line = stage.content(OUTPUTS[0])
    assert line == (text % (2**64 - 1)).replace(b": ", b":").replace(b", ", b",")[:-1] + (
        b',"_ng_task_index":0,"_ng_rollout_index":0}\n'
    )


def test_an_automatic_index_that_a_row_has_already_is_told_with_both_lines(stage):
    with pytest.raises(InputError) as refusal:
        stage([flat("1"), flat("2", _ng_task_index=0)])
    path = stage.folder / "tasks0.jsonl"
    assert str(refusal.value).startswith(f"{path}:1: would get _ng_task_index 0, which the row at {path}:2 has")


def test_repeats_are_found_by_the_data_source_after_rerouting(stage):
    rows = stage(
        [flat("1", None, task_source="s")], agent_map={"s": "b"}, num_repeats={"s": 3}, allow_unsupported_pairing=True
    )
    assert [(row["agent_ref"], row["_ng_rollout_index"]) for row in rows] == [({"name": "b"}, r) for r in range(3)]
    fan_out = {"fan_out": {"math": ["a", "b"]}, "num_repeats": {"a": 1, "math": 2}, "allow_unsupported_pairing": True}
    rows = stage([flat("1", None, task_source="math")], **fan_out)
    assert [(row["agent_ref"]["name"], row["_ng_rollout_index"]) for row in rows] == [("a", 0), ("b", 1), ("b", 2)]


def test_agents_without_repeats_are_told_at_once(stage):
    rows = [flat("1", "a"), flat("2", "b"), flat("3", None, task_source="math")]
    with pytest.raises(Problems) as refusal:
        stage(rows, num_repeats={"c": 2})
    for line, name in ((1, "a"), (2, "b"), (3, "math")):
        assert f"tasks0.jsonl:{line}: num_repeats has no entry for '{name}' (it has c)" in str(refusal.value)
    assert len(stage(rows, num_repeats=None)) == 3


def test_seeds_are_added_inside_the_json_text(stage):
    params = {"input": "q", "metadata": {"extra_body": '{"top_k": 3}'}}
    rows = stage(
        [{"responses_create_params": params, "agent_ref": {"name": "a"}}], num_repeats=2, num_repeats_add_seed=True
    )
    bodies = [row["responses_create_params"]["metadata"]["extra_body"] for row in rows]
    assert bodies == ['{"top_k": 3, "seed": 0}', '{"top_k": 3, "seed": 1}']


@pytest.fixture
def split_stage(stage, monkeypatch):
    monkeypatch.chdir(stage.folder)
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)
    rows = [flat("1", None), flat("2", None, task_source=None), flat("3", None, task_source="a_source")]
    (stage.folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return stage


def test_a_split_is_every_data_set_of_its_type_with_its_source(split_stage):
    given = {"agent_map": {"a_source": "b"}, "environment_server_name": "a_env", "allow_unsupported_pairing": True}
    split_stage.run([], split="train", **given)
    rows = split_stage.rows()
    assert [row["task_source"] for row in rows] == ["math", "math", "a_source", "b", "b", "a_source"]
    assert [row["agent_ref"]["name"] for row in rows] == ["a", "a", "b", "b", "b", "b"]
    # Equal rows of two servers are two tasks; those that name their source themselves are one.
    assert keys(rows) == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (2, 1)]
    split_stage.run([], split="train", **given, limit=4)
    assert len(split_stage.rows()) == 4


def test_a_split_whose_files_are_missing_or_that_nobody_declares_is_refused(split_stage):
    with pytest.raises(InputError, match=r"^math\.datasets\.1: there is no file none\.jsonl.*NEMO_GYM_EXTRA_ROOTS"):
        split_stage.run([], split="validation")
    with pytest.raises(
        InputError, match=r"^split: no server.*type 'benchmark'; there is train \(math, b\), validation"
    ):
        split_stage.run([], split="benchmark")
    assert split_stage.outputs() == []


def test_tasks_come_from_an_input_or_a_split(split_stage):
    with pytest.raises(InputError, match="neither input nor split is given"):
        split_stage.run([])
    with pytest.raises(InputError, match="both input and split are given"):
        split_stage.run([split_stage.folder / "sums.jsonl"], split="train")


@pytest.mark.parametrize(
    "row",
    [
        flat(),
        flat(agent=None, task_source="math"),
        flat(agent=None, _ng_environment_server="a_env"),
        flat(_ng_task_index=7, _ng_rollout_index="anything", task_source=None),
        typed(),
        typed(agent_ref=None),
        {},
        [],
        flat(agent=None),
        flat(agent=None, task_source=None),
        flat(agent=""),
        flat(_ng_task_index=-1),
        flat(_ng_task_index=None),
        flat(_ng_task_index=1.5),
        flat(task_source=3),
        flat(_ng_environment_server=""),
        {**flat(), "agent_ref": "a"},
        {**flat(), "responses_create_params": None},
        {"agent_ref": {"name": "a"}},
        {"task_id": {"taskset": "t"}, "agent_ref": {"name": "a"}},
    ],
)
def test_the_schema_of_input_rows_is_what_the_stage_accepts(stage, row):
    try:
        stage([row], environment_server_routes={"env:math": "a_env"})
    except InputError:
        accepted = False
    else:
        accepted = True
    assert VALIDATORS["input_row"].is_valid(row) == accepted


def test_equal_rows_and_an_empty_input_are_said(stage, caplog):
    with caplog.at_level(logging.WARNING):
        stage([flat("1"), flat("1"), flat("2"), flat("1")])
        assert "2 rows are the same as one before: they add repeats to its task" in caplog.text
        stage([])
        assert "there is no task in the input, so nothing is owed" in caplog.text
