"""The command line itself: alone, and with a reader of its output that has read enough, as `ftgate history | head`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import report_by_hand

from pytest_ftgate import cli, features
from pytest_ftgate.report import json


def test_alone_it_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    said = capsys.readouterr()
    assert ended.value.code == 0
    assert not said.err
    names = [name for name, kinds in features.FEATURES.items() if "command" in kinds]
    assert [name for name in names if f"\n    {name} " in said.out] == names


@pytest.mark.parametrize(
    ("words", "exits"),
    [
        ("", "0 success, 1 regression, 2 usage or file error, 3 nothing measured or found"),
        ("baseline show", "0 success, 2 usage or file error, 3 nothing measured or found"),
        ("init", "0 success, 2 usage or file error"),
    ],
)
def test_the_help_of_a_command_names_its_exit_codes(words: str, exits: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([*words.split(), "--help"])
    assert " ".join(capsys.readouterr().out.split()).endswith(f"exit codes: {exits}")


@pytest.mark.parametrize("arguments", [("decide", "--json"), ("report",)])
def test_a_closed_pipe_ends_a_command_without_a_traceback(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / ".ftgate").mkdir()
    (tmp_path / ".ftgate" / "last-run.json").write_text(json.render(report_by_hand.report()))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest_ftgate.cli", *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
