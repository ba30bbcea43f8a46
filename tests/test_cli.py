"""The command line is derived from the stages; what goes wrong is one message and an exit code."""

import subprocess
import sys
from pathlib import Path

import pytest

from rollmake import __version__
from rollmake.cli import STAGES, main


def test_help_names_every_stage(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["--help"])
    assert exit.value.code == 0
    said = capsys.readouterr().out
    assert set(STAGES) <= set(said.split()), said


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_explains_its_flags(stage, capsys):
    with pytest.raises(SystemExit) as exit:
        main([stage, "--help"])
    assert exit.value.code == 0
    assert "show this help message" in capsys.readouterr().out


def test_a_wrong_command_line_exits_with_2(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["collect", "--plan"])
    assert exit.value.code == 2


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"rollmake {__version__}\n"


def test_a_problem_is_one_line_without_a_traceback(tmp_path):
    command = [sys.executable, "-m", "rollmake", "status", str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "there is no such folder" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_the_system_refuses_is_said_with_its_place(tmp_path, capfd):
    (tmp_path / "folder").mkdir()
    target = tmp_path / "file" / "environment.json"
    (tmp_path / "file").write_text("")
    assert main(["environment", "--environment", "{embedded: {policy: scripted}}", "--output", str(target)]) == 1
    said = capfd.readouterr().err
    assert str(tmp_path / "file") in said
    assert "Traceback" not in said


def test_the_log_is_also_written_to_a_file(tmp_path, capfd):
    log = tmp_path / "logs" / "status.log"
    assert main(["status", str(tmp_path), "--log", str(log)]) == 1
    assert "there is no plan.json" in log.read_text()
    assert "there is no plan.json" in capfd.readouterr().err


def test_what_the_workflow_imports_when_it_plans_is_light():
    rules = (Path(__file__).parent.parent / "workflow/rules/common.smk").read_text()
    imports = "\n".join(line for line in rules.splitlines() if line.startswith("from rollmake"))
    heavy = "import sys; print(*{'polars', 'aiohttp', 'scipy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", f"{imports}\n{heavy}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
