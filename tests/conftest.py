"""Fixtures of all tests: the two interpreters, and a bench that starts launches on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import BUILDS, Bench
from hypothesis import settings
from scripted import Project

from pytest_ftgate import cli
from pytest_ftgate.model.spec import parse_target
from pytest_ftgate.targets.find import find_interpreter

# These tests start hundreds of interpreters: they keep what they compile, whatever the caller's shell says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Where they run in CI, the runs that they start leave no summary and no annotations there.
os.environ.pop("GITHUB_ACTIONS", None)
os.environ.pop("GITHUB_STEP_SUMMARY", None)
# How long an example takes says nothing here.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    """What takes minutes is tried only when it is asked for."""
    parser.addoption("--long", action="store_true", help="also run the tests that are marked `long`")


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What measures this machine stands in `physical/`: the folder is the mark. Long tests are left out unasked, and
    others put in an order in which several processes end together."""
    physical = Path(__file__).parent / "physical"
    for item in items:
        if item.path.is_relative_to(physical):
            item.add_marker(pytest.mark.physical)
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    # What starts whole runs takes longest, and begins first: then no process works alone at the end.
    items.sort(key=lambda item: item.path.parent.name not in ("tests", "plugin"))


@pytest.fixture(scope="session")
def executables() -> dict[str, str]:
    """Executable of each build; `make test` sees to it that both are there."""
    return {build: find_interpreter(parse_target(build)).executable for build in BUILDS}


@pytest.fixture
def interpreters_on_path(monkeypatch: pytest.MonkeyPatch, executables: dict[str, str]) -> None:
    """Runs in this environment take the two interpreters by their paths' folders, as a user's would; wide lines.

    They are no workers of pytest-xdist, should this process be one.
    """
    folders = [str(Path(path).parent) for path in executables.values()]
    monkeypatch.setenv("PATH", ":".join(dict.fromkeys(folders)), prepend=":")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@pytest.fixture(scope="session")
def scripted() -> str:
    """The folder of `fake_run`, which is imported before pytester notes what it will forget: NumPy loads only once."""
    import fake_run

    return str(Path(fake_run.__file__).parent)


@pytest.fixture
def scripted_runs(scripted: str, interpreters_on_path: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with `-p fake_run`: their own processes find it, too."""
    monkeypatch.setenv("PYTHONPATH", scripted)


@pytest.fixture
def bare_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this machine's git settings nor the repository that a hook runs these tests for."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder in which scripted runs follow each other."""
    return Project(tmp_path, monkeypatch)


@pytest.fixture
def bench(tmp_path: Path, executables: dict[str, str]) -> Iterator[Bench]:
    """A bench whose launches are all ended with the test."""
    made = Bench(tmp_path, executables)
    yield made
    for handle in made.started:
        handle.kill()


@pytest.fixture
def ftgate(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command line, which ends with that code; returns what it prints, its errors last."""

    def run(*argv: str, code: int = 0) -> str:
        assert cli.main(list(argv)) == code
        said = capsys.readouterr()
        return said.out + said.err

    return run
