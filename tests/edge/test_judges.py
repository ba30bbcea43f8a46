"""Rows without a valid verdict move to the sidecar of a journal; a kill moves none twice, what is published stays."""

import json
import os

import pytest

from rollmake.edge.judges import move_invalid_judges

VALID = b'{"_ng_task_index":0, "_ng_rollout_index":0,"reward":1.0 }\n'
INVALID = b'{"_ng_task_index":1,"_ng_rollout_index":0,"reward":0.0,"invalid_judge_response":true,"_ng_failure_terminal":true}\n'
MENTIONED = (
    b'{"_ng_task_index":2,"_ng_rollout_index":0,"text":"\\"invalid_judge_response\\"","invalid_judge_response":false}\n'
)


@pytest.fixture
def files(tmp_path):
    rollouts, failures = tmp_path / "rollouts.jsonl", tmp_path / "rollouts_failures.jsonl"
    rollouts.write_bytes(VALID + INVALID + MENTIONED)
    failures.write_bytes(b"")
    return rollouts, failures


def moved_row(failures):
    [line] = failures.read_text().splitlines()
    return json.loads(line)


def test_rows_without_a_valid_verdict_move_and_the_others_keep_their_bytes(files):
    rollouts, failures = files
    assert move_invalid_judges(*files) == 1
    assert rollouts.read_bytes() == VALID + MENTIONED
    row = moved_row(failures)
    assert (row["_ng_failure_class"], row["_ng_migrated_invalid_judge_response"]) == ("judge_invalid", True)
    assert "_ng_failure_terminal" not in row
    assert move_invalid_judges(*files) == 0


def test_a_deliverable_that_can_be_judged_again_is_reused(files, tmp_path):
    rollouts, failures = files
    folder = tmp_path / "delivered"
    folder.mkdir()
    (folder / "answer.md").write_text("x")
    rollouts.write_text(json.dumps({**json.loads(INVALID), "deliverables_dir": str(folder)}) + "\n")
    assert move_invalid_judges(*files) == 1
    assert moved_row(failures)["reuse_cached_deliverable"] is True


def test_a_kill_between_sidecar_and_rollouts_moves_nothing_twice(files, monkeypatch):
    rollouts, failures = files

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            move_invalid_judges(*files)
    assert rollouts.read_bytes() == VALID + INVALID + MENTIONED
    assert moved_row(failures)
    assert move_invalid_judges(*files) == 1
    assert moved_row(failures)
    assert rollouts.read_bytes() == VALID + MENTIONED


def test_what_was_published_is_not_changed(files, tmp_path):
    for path in files:
        os.link(path, tmp_path / f"published_{path.name}")
    move_invalid_judges(*files)
    assert (tmp_path / "published_rollouts.jsonl").read_bytes() == VALID + INVALID + MENTIONED
    assert (tmp_path / "published_rollouts_failures.jsonl").read_bytes() == b""
