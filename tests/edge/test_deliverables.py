"""What counts as delivered."""

import pytest

from rollmake.core.judge import NO_DELIVERABLES
from rollmake.edge.deliverables import has_deliverable


def test_a_file_counts_unless_it_is_always_there(tmp_path):
    for name in NO_DELIVERABLES - {"reference_files"}:
        (tmp_path / name).write_text("x")
    for folder in ("reference_files", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("x")
    assert not has_deliverable(str(tmp_path))
    (tmp_path / "result.txt").touch()
    assert has_deliverable(str(tmp_path))


@pytest.mark.parametrize("name", ["nothing", "file", "\0"])
def test_what_is_no_folder_holds_nothing(tmp_path, name):
    (tmp_path / "file").touch()
    assert not has_deliverable(f"{tmp_path}/{name}")
