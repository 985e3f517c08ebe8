"""What a run leaves names no value of an environment variable, and no home folder."""

from __future__ import annotations

import fake_run
import msgspec
import pytest
import report_by_hand
from example import Example
from stored_values import make_sample

from pytest_ftgate.model.report import PlacedRow
from pytest_ftgate.model.sample import WorkloadError
from pytest_ftgate.model.spec import Cell, Environment, Executor, Program
from pytest_ftgate.run import privacy

SECRET = "s3cr3t-0123456789"
TESTS = """
    import os

    @ftgate.compare(threads, workers=[1, 2], env={"TOKEN": os.environ["TOKEN"]})
    def test_first(worker):
        return 1

    @ftgate.compare(threads, serial, workers=1)
    def test_missing(worker):
        return 1
"""


def test_no_file_that_a_run_leaves_names_them(
    pytester: pytest.Pytester, scripted_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("HOME", str(pytester.path / "home"))
    monkeypatch.setitem(fake_run.ELSEWHERE, "executable", str(pytester.path / "home" / "bin" / "python"))
    example = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": TESTS})
    reports = [f"--ftgate-report={kind}:out.{kind}" for kind in ("json", "html", "md")]
    reports += ["--junit-xml=out.xml"]
    example.run_pytest(
        "-p",
        "fake_run",
        "--ftgate-update",
        "-oftgate_launches=1",
        "--ftgate-python=3.14t",
        *reports,
        f"--rootdir={pytester.path}",
    )
    left = [path for path in pytester.path.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".ini")]
    assert {"out.json", "out.html", "last-run.json"} <= {path.name for path in left}
    assert any("baselines" in path.parts for path in left)
    for word in (SECRET, str(pytester.path / "home")):
        assert [str(path) for path in left if word in path.read_text(encoding="utf-8", errors="replace")] == []


def placed(cell: Cell, detail: str) -> PlacedRow:
    sample = msgspec.structs.replace(make_sample(), cell=cell, error=WorkloadError(reason="no", detail=detail))
    row = msgspec.structs.replace(report_by_hand.report().rows[0], cell=cell, sample=sample)
    return PlacedRow(table="t", reference="threads", position=0, row=row)


def test_of_variables_names_and_placeholders_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    variables = (("TOKEN", SECRET), ("SAME", SECRET), ("WORKERS", "{workers}"))
    program = Program(name="own", argv=("/home/me/bin/own", "-I/home/me/include"), environment=variables)
    executor = Executor(kind="command", program=program)
    cell = msgspec.structs.replace(
        make_sample().cell, executor=executor, environment=Environment(variables=variables, words=("TOKEN:1",))
    )
    said = "File /home/me/x.py, /home/me; /var/home/me/y; /home/meadow\n/home/me/z"
    (found,) = privacy.redacted([placed(cell, said)])
    assert found.row.sample is not None
    raw = found.row.sample.raw()
    assert SECRET.encode() not in msgspec.json.encode(msgspec.structs.replace(found.row, sample=raw))
    there = found.row.cell.environment
    assert there.variables == (("TOKEN", "***"), ("SAME", "***"), ("WORKERS", "{workers}***"))
    assert there.words == ("TOKEN:1",)
    assert found.row.cell.counted
    assert found.row.sample.cell == found.row.cell
    error = found.row.sample.error
    assert error is not None
    assert error.detail == "File ~/x.py, ~/; /var/home/me/y; /home/meadow\n~/z"
    of = found.row.cell.executor.program
    assert of is not None
    assert of.argv == ("~/bin/own", "-I~/include")


def test_a_target_stays_as_its_user_wrote_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    cell = make_sample().cell
    spec = "/home/me/bin/python3.14"
    cell = msgspec.structs.replace(
        cell, nodeid=f"x.py::t[{spec}-w2]", target=msgspec.structs.replace(cell.target, spec=spec, request=spec)
    )
    (found,) = privacy.redacted([placed(cell, "")])
    assert found.row.cell.nodeid == cell.nodeid
    assert found.row.cell.target.spec == spec


@pytest.mark.parametrize("home", ["/", "relative"])
def test_a_home_that_is_none_changes_nothing(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", home)
    assert privacy.public("/etc/passwd of relative-ly /x") == "/etc/passwd of relative-ly /x"
