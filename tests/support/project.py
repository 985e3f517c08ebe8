"""A project in git: what the tests do with it, by nobody in particular and without this machine's settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

NOBODY = {
    f"GIT_{role}_{field}": text
    for role in ("AUTHOR", "COMMITTER")
    for field, text in (("NAME", "nobody"), ("EMAIL", "nobody@example.invalid"))
} | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def git(folder: Path, *words: str, **variables: str) -> str:
    """What git answers in this folder; a failure is one of the test."""
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *words]
    done = subprocess.run(command, cwd=folder, env=os.environ | NOBODY | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def commit(folder: Path, message: str = "more") -> str:
    """Commits all that is there, in a repository that is made where there is none yet; the commit's id."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--template=")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def executable(path: Path, text: str) -> Path:
    """A script for a shell, unless it names another program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path
