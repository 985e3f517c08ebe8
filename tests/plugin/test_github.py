"""GitHub Actions: the summary of a job, and annotations on the lines of tests."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import report_by_hand
from example import Example

from pytest_ftgate.features import github, markdown
from pytest_ftgate.model.report import Report, Row
from pytest_ftgate.model.verdict import Decision, Verdict

QUICK = (
    "-p", "fake_run", "--ftgate", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-python=3.14t",
    "--ftgate-metrics=wall",
)  # fmt: skip
WORKLOADS = """
    @ftgate.compare(threads, serial, workers=1)
    def test_missing(worker):
        return {}["missing"]

    @ftgate.contract(gil="on")
    @ftgate.compare(threads, workers=1)
    def test_broken(worker):
        return 1

    @ftgate.compare(threads, workers=1)
    def test_fine(worker):
        return 1
"""
COMMAND = re.compile(r"::(error|warning) file=([^,]*)(?:,line=(\d+))?,title=([^,:]*)::(.*)")


def changed(change: Callable[[Row], Row]) -> Report:
    """The report by hand, with each row changed."""
    report = report_by_hand.report()
    tables = [msgspec.structs.replace(table, rows=tuple(change(row) for row in table.rows)) for table in report.tables]
    return msgspec.structs.replace(report, tables=tuple(tables), failing=None)


def commands(report: Report, rootdir: str = "/repo", workspace: str = "/repo") -> list[str]:
    return github.commands(report, Path(rootdir), Path(workspace))


# ---- annotations


def test_each_test_has_one_annotation_that_names_its_cells() -> None:
    lines = {"tests/test_words.py": 12, "tests/test_cache.py": 34}
    report = changed(lambda row: msgspec.structs.replace(row, line=lines.get(row.cell.nodeid.partition("::")[0], 0)))
    words, cache = commands(report)
    assert cache == (
        "::error file=tests/test_cache.py,line=34,title=ftgate%3A 3 of 4 decided%2C "
        "1 regressed%2C 1 not compared::test_lookup[3.14t-threads-w8]: "
        "lock_wait +4.1 points (+2.0 to +6.2): 31.2 %25, was 27.1 %25; "
        "scaling -12.3 %25 (-15.3 to -9.3): 1.72x, was 1.96x"
    )
    title = "ftgate%3A 6 of 8 decided%2C 2 regressed%2C 1 broken%2C 1 error%2C 2 not compared"
    assert words.startswith(f"::error file=tests/test_words.py,line=12,title={title}::")
    assert [line.partition(": ")[0] for line in words.partition("compared::")[2].split("%0A")] == [
        "test_tokenise[3.14-fork-w8]",
        "test_tokenise[3.14-forkserver-w8]",
        "test_tokenise[3.14t-fork-w8]",
        "test_tokenise[3.14-tasks-w8]",
    ]


def test_a_file_is_named_from_the_top_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "packages")
    report = report_by_hand.report()
    found = commands(report, str(tmp_path / "link"), str(tmp_path))
    assert [COMMAND.fullmatch(line)[2] for line in found] == [  # type: ignore[index]
        "packages/tests/test_words.py",
        "packages/tests/test_cache.py",
    ]
    assert COMMAND.fullmatch(commands(report, "/container")[0])[2] == "/container/tests/test_words.py"  # type: ignore[index]


def test_there_are_ten_the_worst_first_and_what_does_not_fail_is_a_warning() -> None:
    decisions = [Decision.PASSED, Decision.SUSPECT, Decision.ERROR, Decision.REGRESSED]

    def numbered(number: int) -> Row:
        of = report_by_hand.cell(f"t{number}.py::test", "3.14t", "threads", 1)
        return Row(cell=of, line=number + 1, verdict=Verdict(decision=decisions[number % 4], reason="why"))

    table = msgspec.structs.replace(report_by_hand.report().tables[0], rows=tuple(map(numbered, range(24))))
    bad = (Decision.REGRESSED, Decision.ERROR)
    named = tuple(row.cell.nodeid for row in table.rows if row.verdict.decision in bad)
    report = msgspec.structs.replace(report_by_hand.report(), tables=(table,), failing=named)
    found = commands(report)
    matches = [COMMAND.fullmatch(line) for line in found]
    assert [match[4] for match in matches if match] == [
        *["ftgate%3A 1 of 1 decided%2C 1 regressed"] * 6,
        *["ftgate%3A 0 of 1 decided%2C 1 error"] * 4,
    ]
    few = msgspec.structs.replace(report, tables=(msgspec.structs.replace(table, rows=table.rows[:4]),))
    assert [line.partition(" ")[0] for line in commands(few)] == ["::error", "::error", "::warning"]


def test_names_cannot_give_commands() -> None:
    hostile = "a,line=9::%0A\r\n::add-mask::x\x1b[31m"

    def renamed(row: Row) -> Row:
        of = msgspec.structs.replace(row.cell, nodeid=f"a,b%0A\r\n.py::{hostile}")
        # Each for a reason of its own: those of one reason are one line.
        verdict = Verdict(decision=Decision.REGRESSED, reason=hostile, why=row.cell.nodeid)
        return msgspec.structs.replace(row, cell=of, verdict=verdict)

    (line,) = commands(changed(renamed))
    assert COMMAND.fullmatch(line), line
    assert line.count("::error") == 1
    assert not set(line) & set("\r\n\x1b")
    title = "title=ftgate%3A 18 of 18 decided%2C 18 regressed"
    assert line.startswith(f"::error file=a%2Cb%250A%0A.py,{title}::a,line=9::%250A \\::add-mask::x: a,")
    assert re.search(r"%0Aand \d+ more cells of this test$", line)


# ---- the summary


def test_the_summary_keeps_what_is_there_and_its_limit(tmp_path: Path) -> None:
    path, report = tmp_path / "summary.md", report_by_hand.report()
    whole = f"\n{markdown.render(report)}".encode()
    github.append(path, report)
    assert path.read_bytes() == whole
    for before, added in ((10, whole), (github.SUMMARY_BYTES - 100, b""), (github.SUMMARY_BYTES + 1, b"")):
        path.write_bytes(b"x" * before)
        github.append(path, report)
        assert path.read_bytes() == b"x" * before + added
    path.write_bytes(b"x" * (github.SUMMARY_BYTES - 5000))
    github.append(path, report)
    text = path.read_text(encoding="utf-8").lstrip("x")
    assert "9 of 12 decided, 3 regressed, 1 broken, 1 error, 6 not compared. 18 cells in" in text
    assert path.stat().st_size <= github.SUMMARY_BYTES


# ---- for real


@pytest.fixture
def example(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, scripted_runs: None) -> Example:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
    made = Example(
        pytester,
        {"sub/pytest.ini": "[pytest]\nftgate_install =\n", "sub/test_a.py": WORKLOADS, "summary.md": "before\n"},
    )
    monkeypatch.chdir(pytester.path / "sub")
    return made


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_run_in_a_job_leaves_its_summary_and_annotations_once(example: Example, options: tuple[str, ...]) -> None:
    result = example.run_pytest(*QUICK, *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    found = [match.groups() for line in result.outlines if (match := COMMAND.fullmatch(line))]
    assert found == [
        (
            "error",
            "sub/test_a.py",
            "6",
            "ftgate%3A 1 of 1 decided%2C 1 broken",
            "test_broken[3.14t-threads-w1]: gil == on: the GIL was off in 1 of 1 launches",
        ),
        (
            "error",
            "sub/test_a.py",
            "2",
            "ftgate%3A 0 of 2 decided%2C 2 errors",
            "test_missing[3.14t-threads-w1], test_missing[3.14t-serial-w1]: KeyError: 'missing'",
        ),
    ]
    summary = (example.folder / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith(
        f"before\n\n{markdown.MARKER}\n## ftgate: test\\_broken\\[3.14t-threads-w1\\]: gil == on: the GIL "
    )
    assert "1 of 3 decided, 1 broken, 2 errors, 1 not compared. 4 cells in" in summary
    assert summary.count(markdown.MARKER) == 1


def test_a_summary_that_cannot_be_written_does_not_fail_the_run(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", os.devnull + "/nowhere")
    monkeypatch.delenv("GITHUB_ACTIONS")
    result = example.run_pytest(*QUICK, "--ftgate-report=md:report.md", "-k", "fine")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["ftgate: GITHUB_STEP_SUMMARY cannot be written: *"])
    assert not any(map(COMMAND.match, result.outlines)), "outside of a job there are none"
    assert "## ftgate: nothing was compared" in (example.folder / "sub/report.md").read_text(encoding="utf-8")


def test_a_run_that_is_interrupted_leaves_a_summary_that_says_so(example: Example) -> None:
    path = example.folder / "sub/test_a.py"
    path.write_text(path.read_text(encoding="utf-8") + "def test_stop():\n    raise KeyboardInterrupt('@all')\n")
    result = example.run_pytest(*QUICK, "test_a.py::test_broken", "test_a.py::test_stop")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    summary = (example.folder / "summary.md").read_text(encoding="utf-8")
    assert "## ftgate: partial report, test\\_broken\\[3.14t-threads-w1\\]: gil == on: " in summary
    assert [match[4] for line in result.outlines if (match := COMMAND.fullmatch(line))] == [
        "ftgate%3A 1 of 1 decided so far%2C 1 broken"
    ]


def test_the_plugin_that_annotates_failures_is_left_to_it(example: Example) -> None:
    conftest = "def pytest_configure(config): config.pluginmanager.register(object(), 'annotate_errors')\n"
    (example.folder / "sub/conftest.py").write_text(conftest, encoding="utf-8")
    result = example.run_pytest(*QUICK, "-k", "broken")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert not any(map(COMMAND.match, result.outlines))
