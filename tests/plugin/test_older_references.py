"""A reference whose tests are of another version: its functions are measured, and the working tree decides how."""

from __future__ import annotations

import json
from typing import Any

import pytest
from example import Example
from project import commit, git

from pytest_ftgate.store.names import file_name

QUICK = (
    "-oftgate_launches=1", "-oftgate_iterations=1", "--ftgate-python=3.14", "--ftgate-metrics=wall",
    "-oftgate_explain=no",
)  # fmt: skip
NOW = """
    from concurrent.futures import ThreadPoolExecutor
    from pytest_ftgate import Context, executor

    @ftgate.contract("threads.wall < 1000 s")
    @ftgate.compare(threads, processes=["fork", "spawn"])
    def test_it(worker):
        worker.count("new body")
        assert worker.shared == [worker.local.prepared]

    @test_it.shared
    def state(context: Context):
        return [1]

    @test_it.setup
    def prepare(worker):
        worker.local.prepared = 1

    @test_it.variant(processes=["spawn"])
    def spawned(worker):
        worker.count("new variant")

    @ftgate.compare(executor("own", ThreadPoolExecutor))
    def test_own(executor):
        return executor.submit(int).result()

    class TestIt:
        @ftgate.compare(threads)
        def test_method(self, worker):
            worker.count("new method")
"""
# The same functions with what `pytest_ftgate` has had, will have or never had.
OLD = """
    from concurrent.futures import ThreadPoolExecutor
    from pytest_ftgate import SharedObjects, executor, of_another_version

    of_another_version.configure("wall", size=3)

    @ftgate.require("threads.wall < 1000 s", scaling=">= 0")
    @ftgate.gate("wall", tolerance=3)
    @ftgate.limit("wall", 3, unit="%")
    @ftgate.expect
    @ftgate.compare(threads=True, processes=["fork", "spawn"], environment={"A": "1"})
    @ftgate.xfail()
    def test_it(worker):
        worker.count("old body")
        assert worker.shared == [worker.local.prepared]

    @test_it.shared
    def state(objects: SharedObjects):
        return [1]

    @test_it.setup
    def prepare(worker):
        worker.local.prepared = 1

    @test_it.variant(processes("spawn"))
    def spawned(worker):
        worker.count("old variant")

    @ftgate.require(wall="< 1000 s")
    @ftgate.compare(executor("own", ThreadPoolExecutor), processes("fork"))
    @ftgate.gate("wall")
    def test_own(executor):
        return executor.submit(int).result()

    class TestIt:
        @ftgate.measure(threads=True)
        def test_method(self, worker):
            worker.count("old method")

    test_it.note("a decorator of a test that decorates nothing")
"""
# What decides which code is measured, and is not known here; what is said of it.
NOT_KNOWN = {
    "before": (
        "@ftgate.compare(threads)",
        "@test_before.before\ndef prepare(worker): ...",
        "@test_before.before of prepare: there is no such decorator here",
    ),
    "scope": (
        "@ftgate.compare(threads)",
        "@test_scope.setup('session')\ndef prepared(worker): ...",
        "prepared is a setup for 'session', which is no scope here",
    ),
    "variant": (
        "@ftgate.compare(threads, pytest_ftgate.greenlets)",
        "@test_variant.variant(pytest_ftgate.greenlets)\ndef in_greenlets(worker): ...",
        "test_variant has a body for greenlets, which is no executor here",
    ),
    "plain": ("", "", "test_plain has no decorator of ftgate"),
}


@pytest.fixture
def project(pytester: pytest.Pytester, interpreters_on_path: None) -> Example:
    """A project whose first commit is of another version; the tests of the next one are the working tree's."""
    made = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": OLD})
    commit(made.folder, "old")
    Example(pytester, {"test_a.py": NOW})
    return made


def counted(row: dict[str, Any], side: str) -> set[str]:
    """What the bodies of one side said."""
    sample = row["sample"] if side == "new" else row["sample"]["reference"]
    return {name for launch in sample["launches"] for name in launch.get("counters", ())}


EXPECTED = {
    "test_it[3.14-threads-w2]": "body",
    "test_it[3.14-fork-w2]": "body",
    "test_it[3.14-spawn-w2]": "variant",
    "TestIt::test_method[3.14-threads-w2]": "method",
    "test_own[3.14-own-w2]": "",
}


@pytest.mark.parametrize("of", ["revision", "recording"])
def test_its_functions_are_measured(project: Example, of: str) -> None:
    old = git(project.folder, "rev-parse", "HEAD")
    if of == "recording":
        commit(project.folder, "new")
        assert project.run_fresh("--ftgate-update=all", *QUICK).ret == 0
        for path in (project.folder / "baselines").rglob("*.json"):  # as that version recorded it, on another machine
            kept = json.loads(path.read_text())
            there = f"{kept['machine']['fingerprint']}-other"
            kept |= {"commit": old, "tree": "", "machine": kept["machine"] | {"fingerprint": there}}
            path.unlink()
            path.with_name(file_name(kept["recorded_at"], old, kept["seed"], there)).write_text(json.dumps(kept))
    project.run_fresh(f"--ftgate-against={old}" if of == "revision" else "--ftgate", *QUICK)
    rows = {row["cell"]["nodeid"].partition("::")[2]: row for row in project.rows()}
    assert rows.keys() == EXPECTED.keys()
    for name, body in EXPECTED.items():
        assert rows[name]["sample"]["reference"].get("error") is None
        for side in ("old", "new"):
            assert counted(rows[name], side) == ({f"{side} {body}"} if body else set())


def test_what_decides_on_the_code_is_not_guessed(pytester: pytest.Pytester, interpreters_on_path: None) -> None:
    body, old, new = "def test_{}(worker): worker.count('it')", ["import pytest_ftgate"], []
    for name, (decorator, beside, _) in NOT_KNOWN.items():
        old += [decorator, body.format(name), beside]
        new += ["@ftgate.compare(threads)", body.format(name)]
    made = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": "\n".join(old)})
    commit(made.folder, "old")
    Example(pytester, {"test_a.py": "\n".join(new)})
    made.run_fresh("--ftgate-against=HEAD", *QUICK)
    verdicts = {nodeid.partition("::test_")[2].partition("[")[0]: each for nodeid, each in made.verdicts().items()}
    assert verdicts.keys() == NOT_KNOWN.keys()
    for name, (_, _, said) in NOT_KNOWN.items():
        assert verdicts[name]["decision"] == "no baseline"
        assert said in verdicts[name]["reason"]
