"""Builds what is published and checks all of it: `make release`. It uploads nothing.

The files of dist/ are those of a clean clone of HEAD, built a second time elsewhere with the same bytes. A version with
`dev` in it is a rehearsal: it may have no address and stands under "Unreleased".

`--name VERSION` gives the project another version, and the changelog's section "Unreleased" that name and today's date.
"""

from __future__ import annotations

import argparse
import email
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import smoke
import yaml
from packaging.metadata import Metadata
from packaging.version import Version
from readme_renderer import markdown

from pytest_ftgate.targets.environments import run_uv

ROOT = Path(__file__).parents[1]
PYRIGHT = "basedpyright==1.40.2"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
UNRELEASED = "## [Unreleased]"
DIST = ROOT / "dist"


def project(root: Path = ROOT) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))


# -- its name ------------------------------------------------------------------------------------------------------


def unnamed(root: Path) -> Iterator[str]:
    """What the version lacks: its section at the top of the changelog, and for a release the address."""
    found = project(root)
    version = Version(found["project"]["version"])
    first = re.search(r"^## .*", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    begins = first[0] if first else "nothing"
    if version.is_devrelease:
        if begins != UNRELEASED:
            yield f"CHANGELOG.md begins with {begins!r}; version {version} needs {UNRELEASED!r}"
    else:
        if not re.fullmatch(rf"## \[{re.escape(str(version))}\] - \d{{4}}-\d\d-\d\d", begins):
            yield f"CHANGELOG.md begins with {begins!r}, not with {version}: make version VERSION={version}"
        if not found["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]:
            yield "pyproject.toml names no repository: the links of a release lead there"


def uncommitted(root: Path) -> Iterator[str]:
    """What is not in HEAD, which alone is built."""
    run = subprocess.run(["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True, text=True)
    yield from (f"{line[3:]} differs from HEAD" for line in run.stdout.splitlines())


def name(version: Version, root: Path = ROOT) -> None:
    """Give the project a version, and the changelog a section for it."""
    path = root / "pyproject.toml"
    text = path.read_text("utf-8")
    path.write_text(re.sub(r'^version = ".*"$', f'version = "{version}"', text, count=1, flags=re.MULTILINE), "utf-8")
    path = root / "CHANGELOG.md"
    text = path.read_text("utf-8")
    if version.is_devrelease and UNRELEASED not in text:
        text = text.replace("\n## ", f"\n{UNRELEASED}\n\n## ", 1)
    if not version.is_devrelease:
        text = text.replace(UNRELEASED, f"## [{version}] - {datetime.now(UTC):%Y-%m-%d}", 1)
    path.write_text(text, "utf-8")


# -- its files -----------------------------------------------------------------------------------------------------


def differing(root: Path, into: Path) -> Iterator[str]:
    """Build into a folder from a clean clone, and again elsewhere: what differs."""
    with tempfile.TemporaryDirectory(prefix="ftgate-release-") as folder:
        # What must not matter: the folder, the rights that git gives files, and the machine's settings.
        places = (Path(folder) / "a", 0o022), (Path(folder) / "another" / "place", 0o077)
        for place, umask in places:
            subprocess.run(["git", "clone", "--quiet", str(root), str(place)], check=True, umask=umask)
        for old in [*into.glob("*.whl"), *into.glob("*.tar.gz")]:
            old.unlink()
        built = smoke.build(places[0][0], into, TZ="UTC", PYTHONHASHSEED="1")
        again = smoke.build(places[1][0], Path(folder) / "again", TZ="Pacific/Apia", PYTHONHASHSEED="2", LC_ALL="C")
        for one, other in zip(built, again, strict=True):
            if one.read_bytes() != other.read_bytes():
                yield f"{one.name} differs between two builds: {', '.join(members(one) ^ members(other)) or 'its form'}"


def members(path: Path) -> set[str]:
    """The files of a distribution, each with what it is made of."""
    if path.suffix == ".whl":
        return {f"{each.filename} {each.CRC:x} {each.date_time}" for each in zipfile.ZipFile(path).infolist()}
    with tarfile.open(path) as packed:
        return {f"{each.name} {each.size} {each.mode:o} {each.mtime}" for each in packed.getmembers()}


# -- its description -----------------------------------------------------------------------------------------------


class Links(HTMLParser):
    """Where the links and the pictures of a page lead."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("href", "src")]


def indescribable(wheel: Path) -> Iterator[str]:
    """What a package index would refuse in the wheel's metadata, and links that lead nowhere there."""
    with zipfile.ZipFile(wheel) as packed:
        (path,) = (name for name in packed.namelist() if name.endswith("/METADATA"))
        content = packed.read(path)
    try:
        Metadata.from_email(content, validate=True)
    except ExceptionGroup as error:
        yield from (f"metadata: {each}" for each in error.exceptions)
    if "Description-Content-Type: text/markdown" not in content.decode():
        yield "the long description does not say that it is Markdown"
    trouble = StringIO()
    page = markdown.render(long_description(wheel), stream=trouble)
    if page is None:
        yield f"the long description cannot be rendered: {trouble.getvalue()}"
        return
    links = Links()
    links.feed(page)
    own = "#user-content-"  # which rendering gives each heading
    lost = (link for link in links.found if "://" not in link and not link.startswith(own))
    yield from (f"the long description has a link to {link!r}" for link in lost)


def long_description(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as packed:
        (path,) = (name for name in packed.namelist() if name.endswith("/METADATA"))
        text = email.message_from_bytes(packed.read(path)).get_payload(decode=True)
    assert isinstance(text, bytes)
    return text.decode()


# -- its action ----------------------------------------------------------------------------------------------------


def misread(root: Path) -> Iterator[str]:
    """What actionlint says of the action's steps, of the manual's workflows, and of what `ftgate init` writes."""
    action = (root / "action.yml").read_text("utf-8")
    page = (root / "docs" / "action.md").read_text("utf-8")
    uses = page.partition("```yaml\n")[2].partition("```")[0]
    with tempfile.TemporaryDirectory(prefix="ftgate-actions-") as folder:
        workflows = {"uses.yml": re.sub(r"NAME/pytest-ftgate@\S+", "./", uses), "steps.yml": as_workflow(action)}
        made = Path(folder, "project")
        subprocess.run(["git", "init", "--quiet", str(made)], check=True)
        words = ["init", "--ci", "github"]
        subprocess.run([sys.executable, "-m", "pytest_ftgate.cli", *words], cwd=made, check=True, capture_output=True)
        for path in (*made.glob(".github/workflows/*.yml"), *root.glob("examples/ci/*.yml")):
            workflows[path.name] = path.read_text("utf-8")
        Path(folder, ".github", "workflows").mkdir(parents=True)
        Path(folder, "action.yml").write_text(action, "utf-8")
        for name, text in workflows.items():
            Path(folder, ".github", "workflows", name).write_text(text, "utf-8")
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
        if not shutil.which("actionlint") and not shutil.which("go"):
            yield "there is neither actionlint nor go, which gets it"
            return
        command = ["actionlint"] if shutil.which("actionlint") else ["go", "run", ACTIONLINT]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            yield f"actionlint: {done.stdout}{done.stderr}"


def as_workflow(action: str) -> str:
    """The steps of an action as those of a job: actionlint reads workflows alone."""
    read = yaml.safe_load(action)
    inputs = {name: {"type": "string", "default": each["default"]} for name, each in read["inputs"].items()}
    job = {"runs-on": "ubuntu-latest", "steps": read["runs"]["steps"]}
    return str(yaml.safe_dump({"on": {"workflow_call": {"inputs": inputs}}, "jobs": {"ftgate": job}}, sort_keys=False))


# -- its types -----------------------------------------------------------------------------------------------------


def untyped(wheel: Path) -> Iterator[str]:
    """What strict type checkers say of a user's file, with the wheel as it is installed."""
    with tempfile.TemporaryDirectory(prefix="ftgate-types-") as folder:
        python = smoke.install(sys.executable, wheel, Path(folder) / "env") / "python"
        shutil.copy(ROOT / "tests" / "support" / "typed_workloads.py", Path(folder) / "test_typed.py")
        # No settings of ours: a user's checker has those of the user.
        mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", str(python)]
        done = subprocess.run([*mypy, "test_typed.py"], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            yield f"mypy: {done.stdout}{done.stderr}"
        # As mypy, it is to refuse what the file says is refused.
        strict = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error"}
        Path(folder, "pyrightconfig.json").write_text(json.dumps(strict), "utf-8")
        words = ["--pythonpath", str(python), "--level", "error", "test_typed.py"]
        done = run_uv(["tool", "run", "--quiet", "--from", PYRIGHT, "basedpyright", *words], cwd=Path(folder))
        if done.returncode:
            yield f"pyright: {done.stdout}{done.stderr}"


def unusable(wheel: Path) -> Iterator[str]:
    """What a user of the wheel meets on each Python that the classifiers name."""
    for python in smoke.CONTROLLERS:
        step = smoke.smoked(python, wheel)
        print(f"   {step.said}", flush=True)
        yield from step.errors


# ------------------------------------------------------------------------------------------------------------------


def main() -> int:
    """Every check, with what it found; exits with 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", type=Version, metavar="VERSION", help="the version to give the project")
    args = parser.parse_args()
    if args.name:
        name(args.name)
        return 0

    def wheel() -> Path:
        (path,) = DIST.glob("*.whl")
        return Path(path)

    checks: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
        ("the version has its section and its address", lambda: unnamed(ROOT)),
        ("all of it is committed", lambda: uncommitted(ROOT)),
        ("two builds of it have the same bytes", lambda: differing(ROOT, DIST)),
        ("an index takes its metadata, and its links lead somewhere", lambda: indescribable(wheel())),
        ("actionlint reads its action and the workflows that it writes", lambda: misread(ROOT)),
        ("what users write with it has types", lambda: untyped(wheel())),
        ("it runs on each Python that it names", lambda: unusable(wheel())),
    )
    failed = False
    for holds, faults in checks:
        found = list(faults())
        failed |= bool(found)
        print(f"{'FAILED' if found else 'ok':6} {holds}", *found, sep="\n       ", flush=True)
    print(*(f"{path.name} {path.stat().st_size / 1e3:.0f} KB" for path in sorted(DIST.iterdir())), sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
