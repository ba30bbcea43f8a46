"""`pytest tests/golden --golden-dir DIR`: every case of every golden file in DIR that the project covers, one test a case."""

import json
from importlib import import_module
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ADAPTERS = {path.stem for path in (HERE / "adapters").glob("*.py")}


def pytest_addoption(parser):
    parser.addoption("--golden-dir", type=Path, default=HERE, help="folder of golden files (default: the copies here)")


def golden_files(config):
    return sorted(config.getoption("--golden-dir", HERE).resolve().glob("*.json"))


def pytest_generate_tests(metafunc):
    if "golden_case" not in metafunc.fixturenames:
        return
    cases = []
    for path in golden_files(metafunc.config):
        if path.stem not in ADAPTERS:
            continue
        golden = json.loads(path.read_text())
        run = import_module(f"golden.adapters.{path.stem}").run
        cases += [
            pytest.param((run, case, golden.get("topology")), id=f"{path.stem}:{case['id']}")
            for case in golden["cases"]
        ]
    metafunc.parametrize("golden_case", cases)


def pytest_terminal_summary(terminalreporter, config):
    missing = [path.name for path in golden_files(config) if path.stem not in ADAPTERS]
    if missing:
        terminalreporter.write_line(f"golden files not covered yet: {', '.join(missing)}")
