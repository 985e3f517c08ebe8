"""A disk that is full, read-only or not ours, from any write on: what was stored stays whole, and the run says so."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from example import Example
from failing_writes import FailingWrites
from project import commit

from pytest_ftgate.report.json import formats
from pytest_ftgate.store.folder import Store

KINDS = ("json", *formats())
OPTIONS = (
    *("-p", "fake_run", "--ftgate", "-oftgate_launches=2", "-oftgate_iterations=2", "--ftgate-python=3.14t"),
    *(f"--ftgate-report={kind}:out/{kind}" for kind in KINDS),
    "--ftgate-update=all",
)
OLD = "of another day\n"
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES)


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None) -> Example:
    """A project with a baseline of another day, and no `.ftgate`."""
    source = "@ftgate.compare(threads, workers=[1])\ndef test_it(worker):\n    return 1\n"
    made = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": source})
    commit(pytester.path)
    made.run_pytest(*OPTIONS)
    assert len(baselines(made)) == 1
    return made


def baselines(example: Example) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (example.folder / "baselines").rglob("*") if path.is_file()}


def check(example: Example, at: int | str | None, number: int) -> FailingWrites:
    """A run in which a write fails: the old baseline, reports old or whole, the failure named, and the exit code."""
    path = example.folder
    shutil.rmtree(path / ".ftgate", ignore_errors=True)
    (path / "out").mkdir(exist_ok=True)
    for kind in KINDS:
        (path / "out" / kind).write_text(OLD)
    before = baselines(example)
    with pytest.MonkeyPatch.context() as patch:
        writes = FailingWrites(path, patch, at, number)
        result = example.run_pytest(*OPTIONS)
    text = result.stdout.str() + result.stderr.str()
    where = f"{errno.errorcode[number]} at {writes.calls[at] if isinstance(at, int) and writes.failed else at}:\n{text}"
    after = baselines(example)
    assert {name: after.get(name) for name in before} == before, where
    stored = Store(path / "baselines").load("test_a.py::test_it")  # every file is whole
    assert stored is not None, where
    assert not [each for each in writes.torn if Path(each).exists()], where
    assert not [each for each in path.rglob("*") if each.suffix in (".part", ".tmp")], where
    for kind in KINDS:
        assert is_whole(kind, (path / "out" / kind).read_text()), f"{kind}, {where}"
    if (path / ".ftgate" / "last-run.json").exists():
        example.report()
    for trace in ("Traceback", "INTERNALERROR"):
        assert trace not in text, where
    missing = [kind for kind in KINDS if (path / "out" / kind).read_text() == OLD]
    stored_too = len(after) == len(before) + 1
    if writes.failed:
        assert result.ret != 0 or (stored_too and not missing), where
        if result.ret:
            assert re.search(os.strerror(number).replace(" ", r"\s+"), text), where
        for kind in missing if result.ret != pytest.ExitCode.USAGE_ERROR else ():  # nothing was measured then
            assert f"{kind}:out/{kind} cannot be written" in " ".join(text.split()), f"{kind}, {where}"
    else:
        assert at is None, where
        assert (result.ret, missing, stored_too) == (0, [], True), where
    for new in after.keys() - before.keys():
        new.unlink()
    return writes


def is_whole(kind: str, text: str) -> bool:
    """Whether a report file is the old one, or a whole new one."""
    if text == OLD:
        return True
    if kind in ("json", "bmf", "gha-benchmark"):
        json.loads(text)
    elif kind == "html":
        return text.rstrip().endswith("</html>")
    return bool(text)


def test_a_write_that_fails_costs_nothing_that_was_stored(example: Example) -> None:
    check(example, "write .ftgate/last-run", errno.ENOSPC)
    check(example, "replace out/md", errno.EACCES)
    check(example, "fsync baselines", errno.EROFS)


@pytest.mark.long
@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_whichever_write_fails(example: Example, number: int) -> None:
    count = len(check(example, None, number).calls)
    assert count > 60
    wrong = []
    for at in range(count):
        try:
            check(example, at, number)
        except AssertionError as error:
            wrong.append(str(error))
    print(f"{errno.errorcode[number]} at each of {count} calls: {len(wrong)} wrong")
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n----\n".join(wrong)
