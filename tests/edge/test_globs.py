"""Files on disk that patterns mean."""

import pytest

from rollmake.core.errors import InputError
from rollmake.edge.globs import external_shards, find_shards, require_shards


@pytest.fixture
def folder(tmp_path):
    for name in ("r/b.jsonl", "r/a.jsonl", "r/a_failures.jsonl", "q/c.jsonl", "r/s/d.jsonl", "r/.h.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ("r/*.jsonl", ["r/a.jsonl", "r/b.jsonl"]),
        ("r/b.jsonl, */*.jsonl", ["r/b.jsonl", "q/c.jsonl", "r/a.jsonl"]),
        ("r/*", ["r/a.jsonl", "r/b.jsonl"]),
        ("r/**/*.jsonl", ["r/s/d.jsonl"]),
        ("r/[b-z].jsonl,,r/none", ["r/b.jsonl"]),
        ("", []),
    ],
)
def test_relative_patterns(folder, patterns, found):
    assert find_shards(patterns, folder) == found


def test_patterns_start_at_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert find_shards("q/*") == ["q/c.jsonl"]
    assert find_shards(f"{folder}/q/*") == [f"{folder}/q/c.jsonl"]


def test_what_a_run_writes_itself_is_no_shard_of_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = ["results/a/rollouts.jsonl", "results/a/repaired/0000-of-0001/rollouts.jsonl"]
    for name in (*own, "results/a/more.jsonl", "results/b/rollouts.jsonl", "x.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    patterns = "x.jsonl, results/*/*.jsonl, results/*/*/*/*.jsonl"
    found = ["x.jsonl", "results/a/more.jsonl", "results/b/rollouts.jsonl"]
    assert external_shards(patterns, tmp_path / "results/a") == found
    assert external_shards("results/a/r*.jsonl", tmp_path / "results/a") == []


def test_a_run_without_shards_is_named():
    assert require_shards(["x"], "x", "a") == ["x"]
    with pytest.raises(InputError, match=r"runs.a: no rollouts file matches 'results/a/r\*.jsonl'"):
        require_shards([], "results/a/r*.jsonl", "a")
