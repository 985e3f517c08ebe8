"""What is published: the source distribution builds the wheel that the tree builds, and the wheel has all that runs."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import package_index
import pytest
import release
import smoke
from packaging.version import Version

from pytest_ftgate.model.spec import NEWEST_TESTED

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "pytest_ftgate"
ADDRESS = "https://code.example.invalid/team/pytest-ftgate"


@pytest.mark.parametrize(
    ("target", "builds"),
    [
        *(dict.fromkeys(("lint", "docs", "fuzz", "version", "requirements"), False).items()),
        *(dict.fromkeys(("setup", "test", "examples", "recordings", "demo", "smoke"), True).items()),
    ],
)
def test_what_measures_alone_has_interpreters_made(target: str, builds: bool) -> None:
    """Where none is found they are built, which takes minutes."""
    command = ["make", "--dry-run", "--always-make", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ".venv/bin/uv pip sync" in done.stdout
    assert (".ci/build-pythons" in done.stdout) is builds


class Built:
    """Both distributions of the tree: the wheel's path, and the unpacked source distribution."""

    def __init__(self, folder: Path) -> None:
        packed, self.path = smoke.build(ROOT, folder / "built")
        with tarfile.open(packed) as files:
            files.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
            files.extractall(folder)
        (self.source,) = folder.glob("pytest_ftgate-*")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("packaging"))


@pytest.fixture(scope="module")
def wheel(built: Built) -> zipfile.ZipFile:
    return zipfile.ZipFile(built.path)


def test_the_source_distribution_builds_the_wheel_of_the_tree(built: Built, tmp_path: Path) -> None:
    _, again = smoke.build(built.source, tmp_path)
    assert checksums(again) == checksums(built.path)


def checksums(wheel: Path) -> dict[str, int]:
    return {each.filename: each.CRC for each in zipfile.ZipFile(wheel).infolist()}


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


def test_the_source_distribution_has_what_its_tests_read(built: Built) -> None:
    files = ("docs/running.md", "CHANGELOG.md", "LICENSE", "Makefile", ".ci/release.py")
    for name in ("tests/golden", "benchmarks", "examples", *files):
        assert (built.source / name).exists(), name


# -- what an index shows -------------------------------------------------------------------------------------------


def test_an_index_takes_the_metadata_and_the_long_description(built: Built) -> None:
    assert list(release.indescribable(built.path)) == []
    assert release.long_description(built.path).startswith("# pytest-ftgate\n")


def test_with_an_address_every_link_leads_there(built: Built, tmp_path: Path) -> None:
    settings = built.source / "pyproject.toml"
    text = settings.read_text("utf-8")
    named = text.replace('\nrepository = ""', f'\nrepository = "{ADDRESS}/"').replace(".dev0", "")
    assert named != text
    settings.write_text(named, "utf-8")
    try:
        _, wheel = smoke.build(built.source, tmp_path)
    finally:
        settings.write_text(text, "utf-8")
    assert list(release.indescribable(wheel)) == []
    version = release.project()["project"]["version"].removesuffix(".dev0")
    shown = release.long_description(wheel)
    assert f"]({ADDRESS}/blob/v{version}/docs/ci.md)" in shown
    assert f"]({ADDRESS}/raw/v{version}/docs/page.png)" in shown
    metadata = zipfile.ZipFile(wheel).read(f"pytest_ftgate-{version}.dist-info/METADATA").decode()
    assert f"Project-URL: Changelog, {ADDRESS}/blob/v{version}/CHANGELOG.md\n" in metadata


def test_a_link_in_code_is_none() -> None:
    text = "[a](b.md#c), [d](#e), `[f](g)`\n\n![h](i.png)\n\n```\n[j](k)\n```\n<https://l> [m](https://n)\n"
    assert package_index.linked(text, "", "1.0") == "a, d, `[f](g)`\n\n```\n[j](k)\n```\n<https://l> [m](https://n)\n"
    absolute = package_index.linked(text, "https://o", "1.0").splitlines()
    assert absolute[0] == "[a](https://o/blob/v1.0/b.md#c), [d](https://o/blob/v1.0/README.md#e), `[f](g)`"
    assert absolute[2] == "![h](https://o/raw/v1.0/i.png)"
    assert absolute[5] == "[j](k)"


def test_a_link_into_the_repository_is_found(built: Built, tmp_path: Path) -> None:
    broken = tmp_path / built.path.name
    with zipfile.ZipFile(built.path) as good, zipfile.ZipFile(broken, "w") as bad:
        for each in good.namelist():
            content = good.read(each)
            if each.endswith("/METADATA"):
                content = content.replace(b"Requires-Python: >=3.11", b"Requires-Python: new") + b"\n[a](docs/ci.md)\n"
            bad.writestr(each, content)
    first, second = release.indescribable(broken)
    assert "'new' is invalid for 'requires-python'" in first
    assert second == "the long description has a link to 'docs/ci.md'"


# -- its name ------------------------------------------------------------------------------------------------------


def test_the_classifiers_name_what_is_tried() -> None:
    found = release.project()["project"]
    stated = set(found["classifiers"])
    versions = {name.removesuffix("t") for name in smoke.CONTROLLERS}
    prefix = "Programming Language :: Python :: "
    assert {each.removeprefix(prefix) for each in stated if each.startswith(f"{prefix}3.")} == versions
    assert (f"{prefix}Free Threading" in stated) == any(name.endswith("t") for name in smoke.CONTROLLERS)
    assert "{}.{}".format(*NEWEST_TESTED) == max(versions, key=Version)
    assert found["requires-python"] == f">={min(versions, key=Version)}"
    assert ("Typing :: Typed" in stated) == (PACKAGE / "py.typed").is_file()
    assert ("Development Status :: 3 - Alpha" in stated) == ("alpha" in (ROOT / "README.md").read_text("utf-8").lower())


def test_the_version_has_its_section() -> None:
    assert [fault for fault in release.unnamed(ROOT) if "CHANGELOG.md" in fault] == []


@pytest.fixture
def root(tmp_path: Path, bare_git: None) -> Path:
    """A repository that is about to have its first release."""
    settings = '[project]\nversion = "0.1.0.dev0"\n[tool.hatch.metadata.hooks.custom]\nrepository = ""\n'
    (tmp_path / "pyproject.toml").write_text(settings, "utf-8")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n- All of it.\n", "utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    who = {f"GIT_{role}_{what}": "a@example.invalid" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for words in (["add", "."], ["commit", "--quiet", "--message", "one"]):
        subprocess.run(["git", *words], cwd=root, env={**os.environ, **who}, check=True)


def test_a_version_moves_what_is_unreleased(root: Path) -> None:
    assert list(release.unnamed(root)) == []
    release.name(Version("0.1.0"), root)
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    assert "Unreleased" not in changes
    (address,) = release.unnamed(root)
    assert "names no repository" in address
    assert list(release.uncommitted(root)) == ["CHANGELOG.md differs from HEAD", "pyproject.toml differs from HEAD"]
    text = (root / "pyproject.toml").read_text("utf-8").replace('repository = ""', f'repository = "{ADDRESS}"')
    (root / "pyproject.toml").write_text(text, "utf-8")
    commit(root)
    assert list(release.unnamed(root)) == list(release.uncommitted(root)) == []
    release.name(Version("0.2.0.dev0"), root)
    assert (root / "CHANGELOG.md").read_text("utf-8") == changes.replace("\n## ", "\n## [Unreleased]\n\n## ", 1)
    assert list(release.unnamed(root)) == []


def test_a_version_without_a_section_is_found(root: Path) -> None:
    release.name(Version("0.1.0"), root)
    text = (root / "pyproject.toml").read_text("utf-8").replace("0.1.0", "0.1.1").replace('""', f'"{ADDRESS}"')
    (root / "pyproject.toml").write_text(text, "utf-8")
    (fault,) = release.unnamed(root)
    assert fault.endswith("not with 0.1.1: make version VERSION=0.1.1")


# -- its files -----------------------------------------------------------------------------------------------------


def test_two_builds_are_compared_byte_by_byte(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of a project that is built by a hook: what differs by the place of the build is found, and named."""
    (root / "pyproject.toml").write_text(
        """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "same"
version = "1.0"
[tool.hatch.build.targets.wheel]
include = ["same.py"]
""",
        "utf-8",
    )
    (root / "same.py").write_text("", "utf-8")
    commit(root)
    into = tmp_path_factory.mktemp("dist")
    assert list(release.differing(root, into)) == []
    assert {path.suffix for path in into.iterdir()} == {".whl", ".gz"}
    hook = "[tool.hatch.metadata.hooks.custom]\n"
    text = (
        (root / "pyproject.toml").read_text("utf-8").replace('version = "1.0"', 'version = "1.0"\ndynamic = ["readme"]')
    )
    (root / "pyproject.toml").write_text(text + hook, "utf-8")
    (root / "hatch_build.py").write_text(
        """
from hatchling.metadata.plugin.interface import MetadataHookInterface

class Placed(MetadataHookInterface):
    def update(self, metadata):
        metadata["readme"] = {"content-type": "text/plain", "text": self.root}
""",
        "utf-8",
    )
    commit(root)
    packed, wheel = release.differing(root, into)
    assert "same-1.0/PKG-INFO" in packed
    assert "same-1.0.dist-info/METADATA" in wheel
