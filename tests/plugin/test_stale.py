"""Recordings whose commits cannot run their tests here, end to end: the last lines say so, and how to record again."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from example import HEAD, Example
from project import commit

from pytest_ftgate.store import names, schema

BODY = """
@ftgate.compare(threads, workers=1)
def test_{name}(worker):
    return 1
"""
NEW = {f"test_{name}.py": BODY.format(name=name) for name in ("built", "gone", "imported", "raises")}
OLD = {
    "test_gone.py": BODY.format(name="other"),
    "test_imported.py": "from json import require\n" + NEW["test_imported.py"],
    "test_raises.py": NEW["test_raises.py"].replace("return 1", 'raise ValueError("as it was")'),
}
WHY = {
    "built": "cannot install $ test ! -e broken",
    "gone": "has no such test",
    "imported": "ImportError: cannot import name 'require'",
    "raises": "raised ValueError: as it was",
}
QUICK = ("-oftgate_launches=2", "-oftgate_iterations=1", "--ftgate-python=3.14t", "--ftgate-metrics=wall")
INI = "[pytest]\nftgate_install = $ test ! -e broken\n"


def restored(folder: Path, commits: dict[str, str], fingerprint: str) -> None:
    """What is stored of each test becomes that of a commit and a machine, on which it took a thousandth of the time."""

    def faster(recording: schema.Recording) -> schema.Recording:
        values = {
            name: tuple(value and value / 1000 for value in each) if name.startswith("wall") else each
            for name, each in recording.values.items()
        }
        return msgspec.structs.replace(recording, values=values)

    for path in (folder / "baselines").rglob("*.json"):
        run = schema.decode(path.read_bytes(), path.name)
        machine = msgspec.structs.replace(run.machine, fingerprint=fingerprint or run.machine.fingerprint)
        at = commits[run.test.partition("::test_")[2]]
        cells = {label: faster(each) for label, each in run.cells.items()}
        new = msgspec.structs.replace(run, machine=machine, commit=at, tree="", cells=cells)
        path.unlink()
        name = names.file_name(new.recorded_at, new.commit, new.seed, machine.fingerprint)
        path.with_name(name).write_text(schema.encode(new), encoding="utf-8")


def test_a_recording_whose_commit_fails_says_so_in_the_last_lines(
    pytester: pytest.Pytester, interpreters_on_path: None
) -> None:
    project = Example(pytester, {"pytest.ini": INI, ".gitignore": ".ftgate/\n__pycache__/\n", **NEW})
    folder = project.folder
    # 1. A commit that cannot be built, and one that can run no test of the recordings.
    (folder / "broken").touch()
    commits = dict.fromkeys(WHY, commit(folder))
    (folder / "broken").unlink()
    for name, text in OLD.items():
        (folder / name).write_text(HEAD + text, encoding="utf-8")
    commits |= dict.fromkeys(("gone", "imported", "raises"), commit(folder))
    for name in OLD:
        (folder / name).write_text(HEAD + NEW[name], encoding="utf-8")
    commit(folder)
    assert project.run_fresh("--ftgate-update=new", *QUICK).ret == 0
    # 2. Recorded here, where each cell misses its baseline; then by another machine.
    for fingerprint in ("", "linux-x86_64-64c-99999999"):
        restored(folder, commits, fingerprint)
        result = project.run_fresh("--ftgate", *QUICK)
        said_of = re.findall(r"^stale (.*(?:\n .*)*)", result.stdout.str(), re.MULTILINE)
        stale = [" ".join(each.split()) for each in said_of]
        for name, at in commits.items():
            said = f"recorded at {at[:10]}, whose test cannot run here: "
            assert [WHY[name] in each.partition(said)[2] for each in stale].count(True) == 1
        assert "compare with a commit" not in result.stdout.str()
        # 3. What could not be installed is not tried again.
        assert ("as it failed before: it is tried again after a day" in result.stdout.str()) is bool(fingerprint)
        # 4. It can be recorded again, unless it is worse: then that would be accepted.
        decisions = {verdict["decision"] for verdict in project.verdicts().values()}
        commands = [line.partition("record it again: ")[2] for line in result.stdout.lines if "it again: " in line]
        assert bool(commands) is bool(decisions - {"regressed", "suspect"})
        assert all("--ftgate-update=" in command for command in commands)
    assert decisions == {"no baseline"}


def test_a_file_that_git_does_not_have_is_needed_by_both_sides(
    pytester: pytest.Pytester, interpreters_on_path: None
) -> None:
    """As an extension that was built in place: the cell is measured there, by what is stored of it."""
    reads = """
        from pathlib import Path

        @ftgate.compare(threads, workers=1)
        def test_reads(worker):
            return (Path(__file__).parent / "built.bin").read_text()
        """
    ignored = {".gitignore": ".ftgate/\n__pycache__/\n*.bin\n", "built.bin": "1"}
    project = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_reads.py": reads, **ignored})
    commit(project.folder)
    assert project.run_fresh("--ftgate-update=new", *QUICK).ret == 0
    Example(pytester, {"test_reads.py": reads + "\n        CHANGED = 1\n"})
    result = project.run_fresh("--ftgate", *QUICK)
    (verdict,) = project.verdicts().values()
    assert verdict["basis"] == "stored"
    assert verdict["decision"] != "error"
    assert "which is not at hand: built.bin is in the working tree but not in git" in verdict["why"]
    assert "missing  1 cell" in result.stdout.str()
    assert "record it again" not in result.stdout.str()


def test_a_reference_that_takes_longer_to_build_than_the_run_may_take(
    pytester: pytest.Pytester, interpreters_on_path: None
) -> None:
    """Its time is the run's; with no more of it the next run does not build it again, but measures."""
    files = {"test_built.py": BODY.format(name="built"), ".gitignore": ".ftgate/\n__pycache__/\n"}
    project = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install = $ test -e fast || sleep 600\n", **files})
    at = commit(project.folder)
    (project.folder / "fast").touch()
    commit(project.folder)
    assert project.run_fresh("--ftgate-update=new", *QUICK).ret == 0
    restored(project.folder, {"built": at}, "")
    first = project.run_fresh("--ftgate", "--ftgate-time=11s", *QUICK)
    (verdict,) = project.verdicts().values()
    assert (verdict["basis"], verdict["decision"]) == ("stored", "not measured")
    assert "--ftgate-time was over; give the run more time" in verdict["why"]
    second = project.run_fresh("--ftgate", "--ftgate-time=11s", *QUICK)
    (verdict,) = project.verdicts().values()
    assert verdict["basis"] == "stored"
    assert verdict["decision"] != "not measured"
    assert "it is tried again with more time, after a day" in verdict["why"]
    for result in (first, second):
        assert "missing  1 cell: recorded at" in result.stdout.str()
        assert "record it again" not in result.stdout.str()
