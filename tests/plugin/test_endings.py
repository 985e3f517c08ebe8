"""However a measuring run ends, its report files are written, and say what is missing or failed."""

from __future__ import annotations

import shlex
import textwrap
from typing import Any

import pytest
from example import HEAD, Example

from pytest_ftgate import cli
from pytest_ftgate.model.report import Format
from pytest_ftgate.report.json import formats
from pytest_ftgate.run.trial import Trial

REAL = ("--ftgate", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-python=3.14t", "--ftgate-metrics=wall")
QUICK = ("-p", "fake_run", *REAL)
TESTS = """
    @ftgate.compare(threads, workers=[1, 2])
    def test_first(worker):
        return 1

    @ftgate.compare(threads, serial, workers=1)
    def test_second(worker):
        return 1
"""


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None) -> Example:
    return Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": TESTS})


def report_of(example: Example, name: str = "out.json") -> dict[str, Any]:
    return example.report(name)


def stop_at_second(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, after: bool = False) -> None:
    """Raise this error in place of the second test's first round, or after it."""
    step = Trial.step

    def stopped(self: Trial, *shares: float) -> None:
        second = "test_second" in self.group.key
        if after or not second:
            step(self, *shares)
        if second:
            raise error

    monkeypatch.setattr(Trial, "step", stopped)


def cells_of(report: dict[str, Any]) -> list[str]:
    return [row["cell"]["nodeid"].partition("::")[2] for table in report["tables"] for row in table["rows"]]


FIRST = ["test_first[3.14t-threads-w1]", "test_first[3.14t-threads-w2]"]
SECOND = ["test_second[3.14t-threads-w1]", "test_second[3.14t-serial-w1]"]
FILES = ("--ftgate-report=json:out.json", "--ftgate-report=json:more.json")
LEFT = "2 of 4 cells were not run"


def test_a_run_that_is_stopped_reports_what_was_measured(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at_second(monkeypatch, pytest.exit.Exception("enough"))
    result = example.run_pytest(*QUICK, *FILES, "--ftgate-update")
    found, said = report_of(example), "interrupted: enough"
    assert (result.ret, found["partial"]) == (pytest.ExitCode.INTERRUPTED, f"{said}: {LEFT}")
    assert cells_of(found) == FIRST
    assert found == report_of(example, "more.json") == report_of(example, ".ftgate/last-run.json")
    assert [line.partition(": ")[0] for line in found["updates"]] == [
        "2 recorded in baselines/",
        "recorded test_a.py::test_first",
        "next",
    ]
    assert result.outlines.count(f"this report is partial: {said}: {LEFT}") == 1
    assert f"ftgate: wrote json:{example.folder / 'out.json'}" in result.outlines
    words = shlex.join(("pytest", "-p", "no:cacheprovider", *QUICK, *FILES, "--ftgate-update"))
    assert found["command"] == f"{words} --ftgate-seed {found['seed']}"


def test_ctrl_c_while_a_workload_runs_leaves_every_report(example: Example) -> None:
    """The signal comes from the workload, which never ends by itself."""
    path = example.folder
    waits = f"""
        import os, signal, threading

        @ftgate.compare(threads, workers=1)
        def test_third(worker):
            with open({str(path / "pid")!r}) as file:
                os.kill(int(file.read()), signal.SIGINT)
            threading.Event().wait()
    """
    (path / "test_b.py").write_text(HEAD + textwrap.dedent(waits), encoding="utf-8")
    example.pytester.makeconftest('import os, pathlib; pathlib.Path("pid").write_text(str(os.getpid()))')
    kinds = ("json", "html", "md", "bmf", "gha-benchmark", "openmetrics")
    reports = [f"--ftgate-report={kind}:out.{kind}" for kind in kinds]
    result = example.run_fresh(*REAL, *reports, "-k", "test_first or test_third")
    partial = "interrupted: 1 of 3 cells was not run"
    assert result.ret == pytest.ExitCode.INTERRUPTED
    found = example.report("out.json")
    assert (found["partial"], cells_of(found)) == (partial, FIRST)
    assert f"this report is partial: {partial}" in result.outlines
    for kind in kinds:
        text = (path / f"out.{kind}").read_text(encoding="utf-8")
        assert ("partial" if kind in ("bmf", "openmetrics") else partial) in text, kind


@pytest.mark.parametrize("option", ["", "--full-trace"])
def test_no_traceback_is_rendered_of_which_one_line_is_shown(
    example: Example, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """With the sources of all frames it takes longer than what there is to end."""
    example.pytester.makeconftest("""
        def pytest_keyboard_interrupt(excinfo):
            print(f"\\n{len(excinfo.traceback)} frames")
    """)
    stop_at_second(monkeypatch, KeyboardInterrupt())
    result = example.run_pytest(*QUICK, "-s", *filter(None, [option]))
    (frames,) = (int(line.split()[0]) for line in result.outlines if line.endswith(" frames"))
    assert (frames > 1) == bool(option)
    assert [line for line in result.outlines if line.endswith(": KeyboardInterrupt")]


def test_an_error_of_another_plugin_leaves_the_report(example: Example) -> None:
    example.pytester.makeconftest("""
        def pytest_runtest_logfinish(nodeid):
            if "test_first[3.14t-threads-w2]" in nodeid:
                raise ValueError("of a plugin")
    """)
    result = example.run_pytest(*QUICK, *FILES)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    partial = f"internal error: ValueError: of a plugin: {LEFT}"
    assert (report_of(example)["partial"], cells_of(report_of(example))) == (partial, FIRST)
    assert f"this report is partial: {partial}" in result.outlines, "pytest has no summary then"


def test_of_a_measurement_that_is_interrupted_the_rounds_so_far_count(
    example: Example, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_at_second(monkeypatch, KeyboardInterrupt(), after=True)
    options = [each for each in QUICK if "launches" not in each]
    example.run_pytest(*options, *FILES, "--ftgate-time=60", "--ftgate-update")
    found = report_of(example)
    assert (found["partial"], cells_of(found)) == ("interrupted: 4 of 4 cells were measured in part", [*FIRST, *SECOND])
    rows = [row for table in found["tables"] for row in table["rows"]]
    rounds = [[each for each in row["sample"]["launches"] if each.get("role", "time") == "time"] for row in rows]
    assert [(row["in_part"], len(timed)) for row, timed in zip(rows, rounds, strict=True)] == [(True, 1)] * 4
    why = "measured in part: the run was interrupted"
    assert found["updates"] == [f"skipped test_a.py::{each}: {why}" for each in (*FIRST, *SECOND)]
    capsys.readouterr()
    cli.main(["baseline", "update"])
    said = capsys.readouterr()
    assert said.err == f"the last run is partial: {found['partial']}\n"
    assert said.out.splitlines() == found["updates"]


def test_an_interrupt_before_the_first_result_replaces_the_report_of_another_day(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    example.run_pytest(*QUICK, *FILES, "-k", "test_first and w1")
    kept = report_of(example, ".ftgate/last-run.json")
    stop_at_second(monkeypatch, KeyboardInterrupt())
    result = example.run_pytest(*QUICK, *FILES, "-k", "test_second")
    assert (report_of(example)["partial"], cells_of(report_of(example))) == (
        "interrupted: 2 of 2 cells were not run",
        [],
    )
    assert report_of(example, ".ftgate/last-run.json") == kept, "the last run with results"
    assert "ftgate: interrupted: 2 of 2 cells were not run" in result.outlines


def test_what_fails_to_be_written_is_named_and_the_rest_is_written(example: Example) -> None:
    (example.folder / "file").touch()
    bad = ("--ftgate-report=json:file/out.json", "--ftgate-baselines=file", "--ftgate-update")
    result = example.run_pytest(*QUICK, bad[0], *FILES, *bad[1:], "-k", "test_first and w1")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    written, stored = report_of(example)["partial"].split("; ", 1)
    assert written.startswith("json:file/out.json cannot be written: ")
    assert stored.startswith("the baselines cannot be stored: ")
    assert "~/file/" in stored  # pytester's folder is the home
    assert report_of(example) == report_of(example, "more.json") == report_of(example, ".ftgate/last-run.json")
    text = " ".join(result.stdout.str().split())
    assert text.count("file/out.json cannot be written") == text.count("baselines cannot be stored") == 1
    assert "Traceback" not in text


def test_a_folder_in_the_place_of_a_report_is_named_once_and_left_alone(example: Example) -> None:
    example.pytester.mkdir("taken")
    result = example.run_pytest(*QUICK, "--ftgate-report=md:taken", *FILES, "-k", "test_first and w1")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert report_of(example)["partial"] == "md:taken cannot be written: Is a directory: ~/taken"
    assert not list(example.folder.glob("taken.*"))


def test_a_mistake_of_a_renderer_is_told_with_its_traceback(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Format(lambda report: report.missing)  # type: ignore[attr-defined]
    monkeypatch.setitem(formats(), "broken", broken)
    result = example.run_pytest(*QUICK, "--ftgate-report=broken:x", *FILES, "-k", "test_first and w1")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert report_of(example)["partial"].startswith("broken:x cannot be written: AttributeError: ")
    assert "Traceback (most recent call last):" in result.stdout.str()


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_run_that_ends_at_a_failure_says_what_was_not_run(example: Example, options: tuple[str, ...]) -> None:
    path = example.folder / "test_a.py"
    path.write_text(path.read_text(encoding="utf-8").replace("test_first", "test_missing"), encoding="utf-8")
    result = example.run_pytest(*QUICK, *FILES, "-x", *options)
    found = report_of(example)
    assert cells_of(found) == [each.replace("first", "missing") for each in FIRST], "its test was measured whole"
    assert found["partial"].endswith(f"stopping after 1 failures: {LEFT}")
    assert f"this report is partial: {found['partial']}" in result.outlines
    repeated = [set(row["options"]) for table in found["tables"] for row in table["rows"]]
    assert repeated == [{"-o", *(each.removeprefix("-o") for each in QUICK if "=" in each)}] * 2, "not the report files"
