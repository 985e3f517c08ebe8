"""What is published: the source distribution builds the wheel that the tree builds, and the wheel has all that runs."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "pytest_ftgate"


def built(kind: str, source: Path, into: Path) -> Path:
    run = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(into)]
    subprocess.run(run, cwd=source, check=True, capture_output=True)
    (found,) = into.iterdir()
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built("sdist", ROOT, folder / "packed")) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        packed.extractall(folder)
    (unpacked,) = folder.glob("pytest_ftgate-*")
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(built("wheel", sdist, sdist.parent / "wheel"))


def test_the_source_distribution_builds_the_wheel_of_the_tree(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    of_tree = zipfile.ZipFile(built("wheel", ROOT, tmp_path / "wheel"))
    assert {each.filename: each.CRC for each in of_tree.infolist()} == {
        each.filename: each.CRC for each in wheel.infolist()
    }


def test_the_wheel_has_the_package_and_its_licence_alone(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"pytest_ftgate/py.typed", "pytest_ftgate/measure/launchers/wrk.lua"} <= names
    described = {name.partition(".dist-info/")[2] for name in wheel.namelist()} - {""}
    assert described == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def test_the_long_description_has_no_link_that_a_package_index_would_break(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert "# pytest-ftgate" in text
    links = re.findall(r"\]\(([^)]*)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_the_source_distribution_has_what_its_tests_read(sdist: Path) -> None:
    for name in ("tests/golden", "docs/running.md", "benchmarks", "examples", "CHANGELOG.md", "LICENSE", "Makefile"):
        assert (sdist / name).exists(), name
