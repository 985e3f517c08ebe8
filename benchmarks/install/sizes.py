"""What an installation of the plugin takes on disk, by distribution, on one Python.

It installs the tree and the newest of what it depends on into a new environment. `files` is what the wheels hold,
`bytecode` what pip adds to it: uv leaves that to the first import. `without` is the rest of the environment if this
distribution, and what nothing else needs, were not installed.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pytest_ftgate.targets.environments import run_uv

ROOT = Path(__file__).parents[2]
OURS = "pytest-ftgate"


class Installed(NamedTuple):
    """A distribution of an environment: bytes, and the names of what it needs there."""

    files: int
    bytecode: int
    needs: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.14", metavar="VERSION", help="(default: %(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftgate-sizes-") as folder:
        python = Path(folder, "env", "bin", "python")
        for words in (
            ["venv", "--no-project", "--python", args.python, str(python.parents[1])],
            ["pip", "install", "--compile-bytecode", "--python", str(python), str(ROOT)],
        ):
            done = run_uv([*words, "--quiet"])
            if done.returncode:
                raise SystemExit(done.stderr)
        (packages,) = python.parents[1].glob("lib/python3*/site-packages")
        found = {canonicalize_name(each.name): installed(each) for each in metadata.distributions(path=[str(packages)])}
    whole = total(found, OURS)
    rows = [
        (name, each.files / 1e6, each.bytecode / 1e6, total(found, OURS, name) / 1e6) for name, each in found.items()
    ]
    print(f"{'MB':24} {'files':>7} {'bytecode':>9} {'without':>8}")
    for name, files, bytecode, without in sorted(rows, key=lambda row: -row[1]):
        print(f"{name:24} {files:7.1f} {bytecode:9.1f} {without if name != OURS else 0:8.1f}")
    bytecode = sum(each.bytecode for each in found.values())
    print(f"{'all of it':24} {(whole - bytecode) / 1e6:7.1f} {bytecode / 1e6:9.1f}")


def installed(distribution: metadata.Distribution) -> Installed:
    """What a distribution has in its environment."""
    paths = [Path(str(distribution.locate_file(each))) for each in distribution.files or () if each.suffix != ".pyc"]
    files = [path for path in paths if path.is_file()]
    stems = {path.with_suffix("") for path in files if path.suffix == ".py"}
    folders = {stem.parent / "__pycache__" for stem in stems}
    cached = [each for folder in folders if folder.is_dir() for each in folder.iterdir()]
    compiled = [each for each in cached if each.parents[1] / each.name.partition(".")[0] in stems]
    requirements = map(Requirement, distribution.requires or ())
    needs = (canonicalize_name(each.name) for each in requirements if "extra" not in str(each.marker))
    return Installed(size(files), size(compiled), tuple(needs))


def size(files: list[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def total(found: dict[str, Installed], name: str, without: str = "") -> int:
    """Bytes of a distribution and of all that it needs, less one of them."""
    seen: set[str] = set()
    left = [name]
    while left:
        each = left.pop()
        if each in found and each not in seen and each != without:
            seen.add(each)
            left += found[each].needs
    return sum(found[each].files + found[each].bytecode for each in seen)


if __name__ == "__main__":
    main()
