"""The command that repeats a run, and the options that a rerun of one cell needs."""

from __future__ import annotations

import os
import shlex

import pytest

from ..declare.options import OPTIONS

OF_RESULTS = ("ftgate", "update", "strict", "fail_on", "report", "decide")
OF_THE_RUN = ("seed", "time", "shard")
"""These and those of results do not change what is measured of a cell."""


def given(config: pytest.Config) -> tuple[str, ...]:
    """The options of the command line, and of `addopts`, that change what is measured of a cell."""
    words: list[str] = []
    for option in OPTIONS:
        value = config.getoption(option.dest)
        if option.name in OF_RESULTS + OF_THE_RUN or value in (None, False):
            continue
        values = value if isinstance(value, list) else [value]
        words += [option.cli if option.flag else f"{option.cli}={each}" for each in values]
    return tuple(words)


def command(config: pytest.Config, seed: int) -> str:
    """The words of the user with the seed, after the variables that set options; run from the root of the project."""
    words = [os.fspath(each) for each in config.invocation_params.args]
    if not any(word.startswith("--ftgate-seed") for word in words):
        words += ["--ftgate-seed", str(seed)]
    names = ("PYTEST_ADDOPTS", *(option.variable for option in OPTIONS))
    variables = [f"{name}={shlex.quote(os.environ[name])}" for name in names if name in os.environ]
    folder, root = config.invocation_params.dir, config.rootpath
    there = ["cd", shlex.quote(str(folder.relative_to(root))), "&&"] if root in folder.parents else []
    return " ".join([*there, *variables, shlex.join(["pytest", *words])])
