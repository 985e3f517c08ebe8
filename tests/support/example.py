"""A small project in a folder of its own, and pytest run on it: `Example(pytester, {file: text}).run_pytest(...)`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

import jsonschema
import pytest

HEAD = "from pytest_ftgate import ftgate, interpreters, processes, serial, tasks, threads\n"
# Hypothesis' plugin takes a third of the time in which pytest starts.
FRESH = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]


class Example:
    """A project; its test files get the plugin's names in their first line: the text itself begins in line 2."""

    def __init__(self, pytester: pytest.Pytester, files: Mapping[str, str]) -> None:
        self.pytester = pytester
        self.folder = pytester.path
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            head = HEAD if path.name.startswith("test_") else ""
            path.write_text(head + textwrap.dedent(text).lstrip("\n"), encoding="utf-8")

    def run_pytest(self, *args: str) -> pytest.RunResult:
        """Run in this process: quick, and enough for what happens at collection."""
        return self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *args, no_reraise_ctrlc=True)

    def run_fresh(self, *args: str, folder: str = ".") -> pytest.RunResult:
        """Run pytest in `folder` in a process of its own, which has nothing on sys.path but what pytest puts there."""
        began = time.monotonic()
        done = subprocess.run([*FRESH, *args], cwd=self.folder / folder, capture_output=True, text=True, timeout=300)
        print(done.stdout, done.stderr)
        lines = done.stdout.splitlines(), done.stderr.splitlines()
        return pytest.RunResult(done.returncode, *lines, duration=time.monotonic() - began)

    def start(self, *args: str, output: IO[str] | int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start pytest in a process and a session of its own, which Ctrl-C and other signals reach."""
        # A shell makes what it runs in the background deaf to one of them, nohup to another, and children inherit that.
        # What has a handler here has the default there.
        numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
        heard = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
        try:
            return subprocess.Popen(
                [*FRESH, *args],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        finally:
            for number, handler in heard.items():
                signal.signal(number, handler)

    def report(self, name: str = ".ftgate/last-run.json") -> dict[str, Any]:
        """A JSON report that a run left here, which is valid by the published schema."""
        found: dict[str, Any] = json.loads((self.folder / name).read_text(encoding="utf-8"))
        _validator().validate(found)
        return found

    def rows(self, name: str = ".ftgate/last-run.json") -> list[dict[str, Any]]:
        """The rows of all tables of such a report."""
        return [row for table in self.report(name)["tables"] for row in table["rows"]]

    def verdicts(self, name: str = ".ftgate/last-run.json") -> dict[str, dict[str, Any]]:
        """What such a report says of each cell, by node id."""
        rows = self.rows(name)
        found = {row["cell"]["nodeid"]: row["verdict"] for row in rows}
        assert len(found) == len(rows)
        return found

    def decisions(self, name: str = ".ftgate/last-run.json") -> dict[str, str]:
        """The word for each cell, by node id."""
        return {nodeid: verdict["decision"] for nodeid, verdict in self.verdicts(name).items()}

    def collect(self, *args: str) -> list[str]:
        """The node ids that these arguments select; raises AssertionError where collection fails."""
        result = self.run_pytest("--collect-only", "-q", *args)
        assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), result.stdout.str()
        return [line for line in result.outlines if "::" in line]


@cache
def _validator() -> jsonschema.Draft202012Validator:
    published = Path(__file__).parents[2] / "docs" / "report.schema.json"
    return jsonschema.Draft202012Validator(json.loads(published.read_text(encoding="utf-8")))


def assert_collection_error(result: pytest.RunResult, *fragments: str) -> None:
    """The run ended with a plain collection error: each fragment is there, and no traceback of ours."""
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.INTERRUPTED, text
    assert "error" in result.parseoutcomes() or "errors" in result.parseoutcomes(), text
    for fragment in fragments:
        assert fragment in text, f"{fragment!r} is missing in:\n{text}"
    for trace in ("Traceback", "INTERNALERROR", "pytest_ftgate/", "pluggy/"):
        assert trace not in text, text


def assert_usage_error(result: pytest.RunResult, *fragments: str) -> None:
    """The run was refused before it collected anything."""
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR, text
    for fragment in fragments:
        assert fragment in text, f"{fragment!r} is missing in:\n{text}"
    for trace in ("Traceback", "INTERNALERROR"):
        assert trace not in text, text
