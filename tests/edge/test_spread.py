"""Many files, few open at once."""

import pytest

from rollmake.edge import spread


def test_lines_go_to_their_files_in_order_and_empty_files_exist(tmp_path, monkeypatch):
    monkeypatch.setattr(spread, "BUFFER_BYTES", 100)
    with spread.Spreader(tmp_path / "new") as out:
        out.create("empty/file")
        for number in range(200):
            out.add(f"{number % 7}/file", b"line %d" % number)
    assert (tmp_path / "new" / "empty" / "file").read_bytes() == b""
    for which in range(7):
        lines = (tmp_path / "new" / str(which) / "file").read_bytes().splitlines()
        assert lines == [b"line %d" % number for number in range(which, 200, 7)]


def test_a_folder_that_exists_is_refused(tmp_path):
    with pytest.raises(FileExistsError), spread.Spreader(tmp_path):
        pass
