"""NumPy or SciPy as the project under test: what pytest's own process judges with."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ftgate.plugin.collection import import_needed

SOURCE = """\
from fakenum import part
raise ImportError("you should not try to import fakenum from its source directory\\nplease exit the source tree")
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project `fakenum` that cannot be imported from its source folder, which is first on sys.path."""
    folder = tmp_path / "root"
    (folder / "fakenum").mkdir(parents=True)
    (folder / "fakenum" / "__init__.py").write_text(SOURCE, encoding="utf-8")
    (folder / "fakenum" / "part.py").touch()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    yield folder
    for name in ("fakenum", "fakenum.part"):
        sys.modules.pop(name, None)


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build of it behind the source folder on sys.path."""
    (folder / "site-packages" / "fakenum").mkdir(parents=True)
    (folder / "site-packages" / "fakenum" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder / "site-packages")])
    return folder / "site-packages"


@pytest.mark.parametrize("place", ["elsewhere", "root/build"])
def test_a_source_folder_gives_way_to_a_build(
    root: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = installed(tmp_path / place, monkeypatch)
    before = list(sys.path)
    import_needed(root, ["fakenum"])
    assert Path(sys.modules["fakenum"].__file__ or "").is_relative_to(build)
    assert "fakenum.part" not in sys.modules
    assert sys.path == before


def test_a_build_in_place_serves(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch)
    (root / "fakenum" / "__init__.py").write_text("", encoding="utf-8")
    importlib.invalidate_caches()
    import_needed(root, ["fakenum"])
    assert Path(sys.modules["fakenum"].__file__ or "").is_relative_to(root)


def test_without_a_build_the_error_says_what_to_do(root: Path) -> None:
    with pytest.raises(pytest.UsageError, match=r"fakenum .*source directory\).*uvx --with pytest-ftgate pytest"):
        import_needed(root, ["fakenum"])


def test_in_any_other_project_nothing_is_imported(root: Path) -> None:
    import_needed(root / "elsewhere", ["fakenum"])
    import_needed(root, ["other"])
    assert "fakenum" not in sys.modules


def test_a_checkout_of_numpy_is_gated(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("")  # puts its folder first on sys.path
    pytester.mkpydir("numpy").joinpath("__init__.py").write_text("raise ImportError('from its source directory')")
    done = pytester.runpytest_subprocess("--ftgate", "-v")
    done.stdout.fnmatch_lines("ftgate: measuring, seed *")
    assert "INTERNALERROR" not in done.stdout.str() + done.stderr.str()
