"""Files on disk that patterns mean."""

import pytest

from rollmake.edge.globs import find_shards


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
