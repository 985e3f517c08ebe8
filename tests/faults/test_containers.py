"""What a container may lack: a home, a known user, the ownership of the repository, memory, descriptors, processes."""

from __future__ import annotations

import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fake_launcher import CONFIG, Quiet

from pytest_ftgate import pythons
from pytest_ftgate.commands.diagnosis import diagnose
from pytest_ftgate.errors import FtgateError
from pytest_ftgate.pythons.uv_tool import uv_environment
from pytest_ftgate.run import assembly, git
from pytest_ftgate.run.session import Session


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a random uid: HOME is not set, and no password database knows the user."""

    def unknown(uid: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("homeless")
def test_without_a_home_interpreters_are_found_and_only_what_keeps_one_fails(tmp_path: Path) -> None:
    assert pythons.default_pair().targets
    with pytest.raises(FtgateError, match="set HOME or XDG_CACHE_HOME"):
        pythons.cache_folder()
    assert uv_environment()["UV_NO_CACHE"] == "1"
    found = diagnose(["/nowhere/python"], tmp_path)
    assert "set HOME or XDG_CACHE_HOME to a folder that can be written" in [problem.fix for problem in found.problems]


def test_uv_keeps_its_cache_where_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet" / "made"))
    assert "UV_NO_CACHE" not in uv_environment()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    assert uv_environment()["UV_NO_CACHE"] == "1"
    monkeypatch.setenv("UV_CACHE_DIR", "/said/by/the/user")
    assert "UV_NO_CACHE" not in uv_environment()


def test_a_repository_of_another_owner_is_named_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    fix = f"git config --global --add safe.directory {tmp_path}"
    with pytest.raises(git.NotTrusted) as refused:
        git.Repository(tmp_path)
    assert fix in str(refused.value)
    assert assembly.commit_of(tmp_path) == ""
    listener = Listener()
    Session(CONFIG, tmp_path, "run", listener).check_out()
    (warning,) = listener.warnings
    assert "no commit is recorded" in warning
    assert fix in warning


class Listener(Quiet):
    """Hears warnings."""

    def begin(self, title: str, cells: object) -> None:
        """Forget it."""
