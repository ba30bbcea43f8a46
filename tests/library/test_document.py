"""What docs/library.md says is so: its example runs as it stands, and its names are the library's."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rollmake

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "library.md").read_text()
[EXAMPLE] = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)


def test_the_example_runs_as_it_stands(tmp_path):
    script = tmp_path / "trainer.py"
    script.write_text(EXAMPLE)
    ended = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    *groups, lost = ended.stdout.splitlines()
    assert lost == "lost 0"
    told = {int(task): ast.literal_eval(numbers) for task, numbers in (line.split(" ", 1) for line in groups)}
    assert sorted(told) == [0, 1, 2, 3]
    for advantages in told.values():
        assert len(advantages) == 8
        assert sum(advantages) == pytest.approx(0.0, abs=0.01)
    assert any(number != 0 for advantages in told.values() for number in advantages)


@pytest.mark.parametrize("function", [rollmake.preprocess_examples, rollmake.run_examples])
def test_every_parameter_is_in_the_document(function):
    for name in inspect.signature(function).parameters:
        assert re.search(rf"\b{name}\b", DOCUMENT), name


def test_the_readme_points_to_it():
    assert "](docs/library.md)" in (ROOT / "README.md").read_text()
