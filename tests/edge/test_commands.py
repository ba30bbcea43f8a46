"""Commands of ours are found before others of their names."""

import os
import shutil

import pytest

from rollmake.edge.commands import put_in_front


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a `squeue`, while the path has a folder with another one."""
    for name in ("own", "real"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "squeue").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/real{os.pathsep}/usr/bin")
    return tmp_path / "own"


def test_ours_are_found_first_and_the_others_stay(own):
    put_in_front(own)
    assert shutil.which("squeue") == str(own / "squeue")
    assert shutil.which("env") == "/usr/bin/env"


def test_a_folder_stands_on_the_path_once(own):
    put_in_front(own)
    put_in_front(own)
    assert os.environ["PATH"].split(os.pathsep).count(str(own)) == 1


def test_without_a_path_the_systems_own_is_kept(own, monkeypatch):
    monkeypatch.delenv("PATH")
    put_in_front(own)
    assert os.environ["PATH"] == f"{own}{os.pathsep}{os.defpath}"
