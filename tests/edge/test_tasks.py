"""Where files of tasks are looked for, and what is said of those that are not there."""

import logging
import os
from pathlib import Path

import msgspec
import pytest

from rollmake.core.errors import DataError, InputError
from rollmake.core.topology import Environment, parse_topology
from rollmake.edge import tasks
from rollmake.edge.tasks import (
    ROOTS,
    TaskFile,
    find,
    found_files,
    input_files,
    read_environment,
    read_lines,
    split_files,
)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two extra roots and a working directory."""
    for name in ("first", "second", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv(ROOTS, os.pathsep.join([str(tmp_path / "first"), "", "../second"]))
    return tmp_path


def write(path, text="{}\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def topology(*paths):
    datasets = [{"type": "train", "jsonl_fpath": str(path)} for path in paths]
    return parse_topology({"math": {"resources_servers": {"math": {"datasets": datasets}}}}, where="t")


def test_extra_roots_come_before_the_working_directory(folders):
    here = write(folders / "here" / "a" / "t.jsonl")
    assert find("a/t.jsonl") == Path("a/t.jsonl")
    second = write(folders / "second" / "a" / "t.jsonl")
    assert find("a/t.jsonl").samefile(second)
    assert find("a/t.jsonl").is_absolute()
    first = write(folders / "first" / "a" / "t.jsonl")
    assert find("a/t.jsonl") == first
    assert find(str(here)) == here
    assert find("b.jsonl") is None


def test_without_extra_roots_there_is_the_working_directory(folders, monkeypatch):
    write(folders / "first" / "t.jsonl")
    monkeypatch.delenv(ROOTS)
    assert find("t.jsonl") is None
    write(folders / "here" / "t.jsonl")
    assert find("t.jsonl") == Path("t.jsonl")


def test_inputs_that_are_missing_are_all_told(folders):
    place = write(folders / "first" / "t.jsonl")
    found, problems = input_files([Path("t.jsonl"), Path("none.jsonl"), Path("nor.jsonl")])
    assert found == [TaskFile(place)]
    assert [str(problem) for problem in problems] == [
        f"{name}: there is no such file. Correct `input` in the config" for name in ("none.jsonl", "nor.jsonl")
    ]


def test_data_sets_are_found_with_their_server_and_the_missing_are_all_told(folders):
    place = write(folders / "first" / "t.jsonl")
    found, problems = split_files(topology("t.jsonl", "x.jsonl", "t.jsonl", "/nowhere/y.jsonl"), "train")
    assert found == [TaskFile(place, "math"), TaskFile(place, "math")]
    assert [str(problem).split(". ")[0] for problem in problems] == [
        "math.datasets.1: there is no file x.jsonl",
        "math.datasets.3: there is no file /nowhere/y.jsonl",
    ]
    assert all(ROOTS in str(problem) and "jsonl_fpath" in str(problem) for problem in problems)


def test_the_files_of_a_split_by_environment_json(folders):
    place = write(folders / "second" / "t.jsonl")
    path = folders / "environment.json"
    content = Environment(version=1, kind="topology", identity="", servers=topology("t.jsonl", "x.jsonl").servers)
    path.write_bytes(msgspec.json.encode(content))
    (found,) = found_files(path, "train")
    assert Path(found).samefile(place)
    assert found_files(path, "benchmark") == []
    assert read_environment(path) == content
    with pytest.raises(DataError, match=r"none\.json: cannot be read: No such file.*Run the stage environment"):
        read_environment(folders / "none.json")


def test_lines_have_their_places_across_blocks(folders, monkeypatch, caplog):
    monkeypatch.setattr(tasks, "BLOCK", 5)
    path = write(folders / "t.jsonl", '{"a":1}\n\n{}\n{"b":"\u2028"}\r\n{"c":3}')
    with caplog.at_level(logging.WARNING):
        lines = list(read_lines(path))
    assert lines == [
        (f"{path}:1", b'{"a":1}'),
        (f"{path}:3", b"{}"),
        (f"{path}:4", '{"b":"\u2028"}'.encode()),
        (f"{path}:5", b'{"c":3}'),
    ]
    assert [message.split(": ", 1)[1] for message in caplog.messages] == [
        "passed over blank lines: 1",
        "lines that end in CRLF: 1",
        "the last line has no newline; it is the same task as equal lines all the same",
    ]


def test_a_folder_is_no_file_of_tasks(folders):
    with pytest.raises(InputError, match=r"first: cannot be read: Is a directory.*`input`"):
        list(read_lines(folders / "first"))
