"""A light door: every pytest run of an environment loads the plugin, so what it imports is listed here by name."""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points

import pytest
from example import Example

from pytest_ftgate.features import FEATURES

DOOR = {
    "pytest_ftgate",
    "pytest_ftgate.declare",
    "pytest_ftgate.declare.options",
    "pytest_ftgate.features",
    "pytest_ftgate.hookspec",
    "pytest_ftgate.kit",
    "pytest_ftgate.kit.errors",
    "pytest_ftgate.kit.plugins",
    "pytest_ftgate.plugin",
    "pytest_ftgate.plugin.hooks",
    "pytest_ftgate.plugin.options",
    "pytest_ftgate.runner",
    "pytest_ftgate.runner.api",
    "pytest_ftgate.runner.state",
    "pytest_ftgate.runner.tokens",
    "pytest_ftgate.kit.text",
    *(f"pytest_ftgate.features.{name}" for name, kinds in FEATURES.items() if "option" in kinds),
}
"""What a run without decorated tests imports of ours."""
DECLARING = {
    "pytest_ftgate.declare.arguments",
    "pytest_ftgate.declare.tests",
    "pytest_ftgate.declare.plan",
    *(f"pytest_ftgate.features.{name}" for name, kinds in FEATURES.items() if "metric" in kinds),
    "pytest_ftgate.judge",
    "pytest_ftgate.judge.contracts",
    "pytest_ftgate.judge.contract_grammar",
    "pytest_ftgate.judge.readers",
    "pytest_ftgate.judge.metrics",
    "pytest_ftgate.judge.limits",
    "pytest_ftgate.model",
    "pytest_ftgate.kit.hiding",
    "pytest_ftgate.kit.values",
    "pytest_ftgate.model.report",
    "pytest_ftgate.model.sample",
    "pytest_ftgate.model.spec",
    "pytest_ftgate.model.verdict",
    "pytest_ftgate.plugin.collection",
    "pytest_ftgate.runner.loading",
    "pytest_ftgate.runner.protocol",
    "pytest_ftgate.runner.pytest_stub",
    "pytest_ftgate.runner.signatures",
    "pytest_ftgate.stats",
    "pytest_ftgate.stats.histogram",
    "pytest_ftgate.stats.estimators",
    "pytest_ftgate.stats.intervals",
}
"""What a decorated test adds at collection."""
RUNNING = {
    "pytest_ftgate.kit.proc",
    "pytest_ftgate.measure",
    "pytest_ftgate.measure.launch",
    "pytest_ftgate.measure.stacks",
    "pytest_ftgate.plugin.plain",
    "pytest_ftgate.run",
    "pytest_ftgate.run.plain",
    "pytest_ftgate.runner.clock",
    "pytest_ftgate.runner.control",
    "pytest_ftgate.runner.executors",
    "pytest_ftgate.runner.executors.base",
    "pytest_ftgate.runner.executors.making",
    "pytest_ftgate.runner.executors.pipes",
    "pytest_ftgate.runner.executors.threads",
    "pytest_ftgate.runner.gil",
    "pytest_ftgate.runner.held",
    "pytest_ftgate.runner.orders",
    "pytest_ftgate.runner.primitives",
    "pytest_ftgate.runner.proc",
    "pytest_ftgate.runner.results",
    "pytest_ftgate.runner.stacks",
    "pytest_ftgate.runner.worker",
}
"""What it adds when it runs once, in a run without --ftgate."""
HEAVY = {
    "filelock",
    "http",
    "numpy",
    "packaging.specifiers",
    "psutil",
    "scipy",
    "ssl",
    "tarfile",
    "tomllib",
    "urllib.request",
}

PLAIN = "def test_it(): assert True"
DECORATED = """
    @ftgate.compare(threads, pythons=["3.14"])
    def test_it(worker): ...
"""
LIST = """
import json, pathlib, sys
import pytest
before = set(sys.modules)
code = pytest.main(["-p", "no:cacheprovider", "-q", *sys.argv[2:]])
pathlib.Path(sys.argv[1]).write_text(json.dumps(sorted(set(sys.modules) - before)))
sys.exit(code)
"""


def imported(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, test: str, *args: str) -> set[str]:
    """The modules that a pytest run in a process of its own has at its end, beyond those of `import pytest`."""
    Example(pytester, {"test_a.py": test})
    if test is PLAIN:
        (pytester.path / "test_a.py").write_text(PLAIN)  # without the import of the decorators
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    found = pytester.path / "modules.json"
    result = pytester.run(sys.executable, "-c", LIST, found, "-p", "pytest_ftgate.plugin.hooks", *args)
    assert result.ret == pytest.ExitCode.OK, result.stdout.str()
    return set(json.loads(found.read_text()))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "pytest_ftgate"}


def heavy(modules: set[str]) -> set[str]:
    """What is heavy of them; some versions of pytest load asyncio, which brings ssl."""
    return modules & HEAVY - ({"ssl"} if "asyncio" in modules else set())


def test_pytest_finds_the_hooks() -> None:
    (point,) = (point for point in entry_points(group="pytest11") if point.name == "ftgate")
    assert point.value == "pytest_ftgate.plugin.hooks"


def test_a_run_without_decorated_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = imported(pytester, monkeypatch, PLAIN)
    assert ours(modules) == DOOR
    assert heavy(modules) | modules & {"msgspec"} == set()


def test_a_decorated_test_that_is_collected(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = imported(pytester, monkeypatch, DECORATED, "--collect-only")
    assert ours(modules) == DOOR | DECLARING
    assert heavy(modules) == set()


def test_a_decorated_test_that_runs_once(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = imported(pytester, monkeypatch, DECORATED)
    assert ours(modules) == DOOR | DECLARING | RUNNING
    assert heavy(modules) == set()


def test_a_measuring_run_imports_what_the_others_leave_out(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = imported(pytester, monkeypatch, PLAIN, "--ftgate")
    assert {"pytest_ftgate.plugin.gate", "numpy", "psutil", "msgspec"} <= modules
