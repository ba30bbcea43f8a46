"""Records are read by their place, one at a time, and a file that does not fit is named."""

import json

import pytest

from helpers.run_folder import SERVER, make_run
from rollmake.core.errors import DataError, InputError
from rollmake.core.shards import shard_names
from rollmake.edge import run_files


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run", tasks=6, shards=2, failing=0.3)


def test_json_is_read_or_told_apart_from_nothing(tmp_path):
    path = tmp_path / "coverage.json"
    assert run_files.optional(path) is None
    with pytest.raises(InputError, match=r"coverage\.json is missing\. Run the stages before"):
        run_files.required(path)
    path.write_text('{"a": 1}')
    assert run_files.required(path) == {"a": 1}
    path.write_text('{"a": ')
    with pytest.raises(DataError, match=r"coverage\.json: no JSON"):
        run_files.optional(path)


def test_shards_are_those_of_the_plan_else_those_that_were_repaired(folder):
    (folder / "repaired" / "0003-of-0002").mkdir()
    assert run_files.shard_folders(folder, {"shards": 3}) == shard_names(3)
    assert run_files.shard_folders(folder, None) == shard_names(2)


def test_examples_come_with_their_question(folder):
    found = run_files.examples(folder, shard_names(2))
    assert [kind for kind, _ in found] == sorted(kind for kind, _ in found)
    assert {kind for kind, _ in found} == {"best", "worst"}
    for kind, example in found:
        assert example.reward == (1.0 if kind == "best" else 0.0)
        assert example.question.text == f"What is 2 + 2? (task {example.task})"
        assert example.server.text == SERVER


def test_a_run_without_a_plan_has_examples_without_a_question(folder):
    (folder / "plan.parquet").unlink()
    found = run_files.examples(folder, shard_names(2))
    assert found
    assert {example.question.text for _, example in found} == {""}


def test_a_shard_without_scores_gives_no_example(folder):
    for name in shard_names(2):
        (folder / "repaired" / name / "scores.parquet").unlink()
    assert run_files.examples(folder, shard_names(2)) == []


def test_rollouts_that_changed_after_their_scores_are_refused(folder):
    path = folder / "repaired" / shard_names(2)[0] / "rollouts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(reversed(lines)))
    with pytest.raises(
        DataError, match=r"rollouts\.jsonl.*Repair the shard again|rollouts\.jsonl.*repair the shard again"
    ):
        run_files.examples(folder, shard_names(2))
    path.unlink()
    with pytest.raises(DataError, match=r"rollouts\.jsonl: the file is missing"):
        run_files.examples(folder, shard_names(2))


def test_failures_are_the_first_of_each_class(folder):
    found = run_files.failures(folder, {"agent_run_error", "judge_failed", "never_seen"})
    assert set(found) == {"agent_run_error", "judge_failed"}
    lines = [json.loads(line) for line in (folder / "rollouts_failures.jsonl").read_text().splitlines()]
    for name, failure in found.items():
        first = next(line for line in lines if line["_ng_failure_class"] == name)
        assert (failure.task, failure.rollout) == (first["_ng_task_index"], first["_ng_rollout_index"])
        assert failure.question.text == f"What is 2 + 2? (task {failure.task})"


def test_a_failure_without_a_class_is_unclassified(tmp_path):
    (tmp_path / "rollouts_failures.jsonl").write_text(
        '{"_ng_task_index": 1, "_ng_rollout_index": 0, "failure_reason": "why"}\n'
    )
    assert run_files.failures(tmp_path, {"unclassified"})["unclassified"].message.text == "why"


def test_the_sidecar_is_read_no_further_than_needed(folder):
    with (folder / "rollouts_failures.jsonl").open("ab") as file:
        file.write(b"{broken\n")
    assert set(run_files.failures(folder, {"agent_run_error"})) == {"agent_run_error"}
    with pytest.raises(DataError, match=r"rollouts_failures\.jsonl:\d+: no JSON"):
        run_files.failures(folder, {"never_seen"})


def test_a_run_without_a_sidecar_has_no_failures(tmp_path):
    assert run_files.failures(tmp_path, {"agent_run_error"}) == {}


def test_lines_are_counted_whole(tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(b"x" * (3 << 20) + b"\n{}\n{torn")
    assert run_files.count_lines(path) == 2
