"""The targets of a run that names none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from report_by_hand import GIL

from pytest_ftgate.model.spec import Interpreter, Target
from pytest_ftgate.targets import find as newest
from pytest_ftgate.targets.environments import required_python
from pytest_ftgate.targets.find import InterpreterNotFound, default_pair

Machine = Callable[..., None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Sets which names are on PATH, and what the interpreters of these names say of themselves."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))

    def have(*names: str, **versions: str) -> None:
        for name in names:
            path = (tmp_path if "/" in name else folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        found = {name.replace("_", "."): version for name, version in versions.items()}

        def find(target: Target) -> Interpreter:
            version = found.get(f"v{target.spec}")
            if version is None:
                raise InterpreterNotFound(target.spec)
            return msgspec.structs.replace(GIL, version=version, free_threaded=target.spec.endswith("t"))

        monkeypatch.setattr(newest, "find_interpreter", find)

    return have


def test_the_only_version_is_taken_without_starting_it(machine: Machine) -> None:
    machine("python3.15", "python3", "python3.11", "python3.13-config", "pythonw")
    found = default_pair()
    assert (found.targets, found.why) == (("3.15", "3.15t"), "the only version here")


def test_the_newest_of_which_both_builds_are_here(machine: Machine) -> None:
    machine(
        *(
            "python3.13",
            "python3.13t",
            "uv/cpython-3.14/bin/python3.14",
            "cache/pytest-ftgate/pythons/x/bin/python3.15",
        )
    )
    machine(v3_13="3.13.1", v3_13t="3.13.1", v3_14="3.14.7", v3_14t="3.14.7", v3_15="3.15.2")
    found = default_pair()
    assert found.targets == ("3.14", "3.14t")
    assert found.why == "the newest version here; of 3.15 only 3.15.2 is here"
    machine(v3_13="3.13.1", v3_14="3.14.7", v3_15="3.15.2", v3_15t="3.15.2")
    assert (default_pair().targets, default_pair().why) == (("3.15", "3.15t"), "the newest version here")
    machine(v3_13="3.13.1", v3_14="3.14.7")
    assert default_pair().targets == ("3.14", "3.14t")  # nowhere both: the newest
    assert default_pair().why == "the newest version here; 3.15 does not run"


def test_a_pre_release_has_to_be_named(machine: Machine) -> None:
    machine("python3.14", "python3.15", v3_14="3.14.7", v3_15="3.15.0rc1", v3_15t="3.15.0rc1")
    found = default_pair()
    assert found.targets == ("3.14", "3.14t")
    assert found.why == "the newest version here; 3.15.0rc1 is a pre-release, which has to be named"
    machine(v3_15="3.15.0rc1", v3_15t="3.15.0rc1")
    assert default_pair().targets == ("3.15", "3.15t")  # nothing else runs


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        ("", "3.15"),
        (">=3.10", "3.15"),
        (">=3.14.1", "3.15"),
        ("<3.14.2", "3.14"),
        (">=3.11,<3.14", "3.13"),
        ("nonsense", "3.15"),
    ],
)
def test_the_project_decides_which_versions_count(machine: Machine, requires: str, expected: str) -> None:
    both = {f"v3_{minor}{build}": f"3.{minor}.1" for minor in (13, 14, 15) for build in ("", "t")}
    machine("python3.13", "python3.14", "python3.15", **both)
    found = default_pair(requires)
    assert found.targets == (expected, f"{expected}t")
    assert (f" that requires-python {requires} allows" if requires else "the newest version here") in found.why


@pytest.mark.parametrize(
    ("requires", "expected", "why"),
    [
        ("", "3.14", "no version is here"),
        (">=3.15", "3.15", "no version that requires-python >=3.15 allows is here"),
        ("<3.13", "3.14", "no version that requires-python <3.13 allows can be measured"),
    ],
)
def test_where_nothing_is_here_it_is_the_usual_one(machine: Machine, requires: str, expected: str, why: str) -> None:
    machine("python3.12")
    found = default_pair(requires)
    assert (found.targets, found.why) == ((expected, f"{expected}t"), why)


@pytest.mark.parametrize(
    ("text", "expected"),
    [('[project]\nrequires-python = ">=3.13"', ">=3.13"), ("[project]", ""), ("project = 3", ""), ("nonsense", "")],
)
def test_what_the_project_requires(tmp_path: Path, text: str, expected: str) -> None:
    assert required_python(tmp_path) == ""
    (tmp_path / "pyproject.toml").write_text(text)
    assert required_python(tmp_path) == expected
    (tmp_path / "setup.cfg").write_text("[options]\npython_requires = >=3.9\n")
    assert required_python(tmp_path) == (expected or ">=3.9")
