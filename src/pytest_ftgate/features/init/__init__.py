"""`ftgate init`: a first test and a CI workflow."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from importlib import resources
from pathlib import Path
from typing import Final

from ...hookspec import Subparsers, hookimpl
from ...kit.errors import FtgateError
from ...kit.git import AgainstError, NotTrusted, Repository, branch_of
from ..last_run import project

PLACES: Final = {
    "github": Path(".github") / "workflows" / "ftgate.yml",
    "gitlab": Path(".gitlab") / "ftgate.yml",
}
"""The workflow of each CI system, below the repository's top."""
INSTALLS: Final = "it needs the packages of your other jobs, and the plugin by its address"


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "init",
        help="write a first test and a CI workflow",
        description="Write a first test and a CI workflow. Existing files stay as they are.",
        exits=(),
    )
    parser.add_argument(
        "--ci",
        choices=(*PLACES, "none"),
        help="which workflow to write (default: gitlab if the repository has a .gitlab-ci.yml, otherwise github)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write what is missing, and say what was left and what to run next. Raises FtgateError."""
    # 1. The test goes where pytest looks for tests, the workflow to the top of the repository.
    config = project()
    root = config.rootpath
    folders = [root / name for name in config.getini("testpaths")] or [root / "tests"]
    test = next(filter(Path.is_dir, folders), folders[0]) / "test_concurrency.py"
    files = {test: "test_concurrency.py.txt"}
    try:
        repository = Repository(root)
        top, branch = repository.top, _default_branch(repository)
    except NotTrusted:
        raise
    except AgainstError:
        top, branch = None, ""
    ci = args.ci or ("gitlab" if top and (top / ".gitlab-ci.yml").exists() else "github")
    if top and ci in PLACES:
        files[top / PLACES[ci]] = f"{ci}.yml"

    # 2. What exists stays.
    wrote = []
    for path, template in files.items():
        name = os.path.relpath(path)
        if path.exists():
            print(f"left  {name}: it already exists")
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = resources.files(__name__).joinpath("templates", template).read_text("utf-8")
            path.write_text(text.replace("branches: [main]", f"branches: [{json.dumps(branch)}]"), "utf-8")
        except OSError as error:
            raise FtgateError(f"{name}: cannot be written: {error.strerror}") from error
        wrote.append(name)
        print(f"wrote {name}")

    # 3. What is left to do.
    if top is None:
        print("no workflow: this is not a git repository")
    elif ci in PLACES and root != top:
        print(f"the project is in a folder of the repository: add `cd {root.relative_to(top)}` to {PLACES[ci]}")
    if top and ci == "gitlab":
        print(f"include it in .gitlab-ci.yml:\n  include:\n    - local: {PLACES[ci].as_posix()}")
    named = shlex.quote(os.path.relpath(test))
    print("\nnext:")
    if top is None:  # there is no other commit to compare with
        print(f"  pytest --ftgate-update {named}\n  pytest --ftgate {named}")
    else:
        if ci in PLACES and os.path.relpath(top / PLACES[ci]) in wrote:
            print(f"  # in {os.path.relpath(top / PLACES[ci])}, edit the line `uv pip install`: {INSTALLS}")
        if wrote:
            print(f"  git add {shlex.join(wrote)} && git commit -m 'Gate the cost of threads and processes'")
        print(f"  # then a change: 20_000 becomes 40_000 in {named}\n  pytest --ftgate-against=HEAD {named}")
    return 0


def _default_branch(repository: Repository) -> str:
    """The default branch of the remote, else main or master if there is one, else the branch that is checked out."""
    head = f"refs/remotes/{repository.remote}/HEAD"
    remote = repository.git("symbolic-ref", "--quiet", "--short", head, allowed=(0, 1)).strip()
    usual = (name for name in ("main", "master") if repository.commit(f"refs/heads/{name}"))
    return remote.removeprefix(f"{repository.remote}/") or next(usual, "") or branch_of(repository.root) or "main"
