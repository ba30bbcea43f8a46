"""What is generated is up to date, and every import goes the one way that the architecture allows."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "workflow/rollmake"
# A folder may import itself and these.
ALLOWED = {
    "core": set(),
    "edge": {"core"},
    "environment": {"core", "edge"},
    "library": {"core", "edge"},
    "stages": {"core", "edge", "environment"},
}


def test_generated_files_are_up_to_date():
    command = [sys.executable, str(ROOT / "docs/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def imported(path):
    """The folders of ours that a module imports from."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rollmake."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("rollmake."))


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_go_one_way(folder):
    modules = sorted((PACKAGE / folder).rglob("*.py"))
    assert modules
    wrong = [(path.name, name) for path in modules for name in imported(path) if name not in ALLOWED[folder] | {folder}]
    assert wrong == []


def test_every_module_says_what_it_is():
    silent = [
        path for path in PACKAGE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_the_core_opens_no_file_and_asks_no_clock():
    forbidden = {"os", "time", "socket", "subprocess", "asyncio", "aiohttp", "tempfile", "shutil", "logging"}
    found = []
    for path in sorted((PACKAGE / "core").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [(path.name, name) for name in names if name.split(".")[0] in forbidden]
    assert found == []
