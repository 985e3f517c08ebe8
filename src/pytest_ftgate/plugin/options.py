"""Our options as pytest's: registered from the options table, resolved and checked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from ..declare import options
from ..kit.errors import FtgateError
from ..kit.text import listed

if TYPE_CHECKING:
    from ..kit.values import Threshold

ALWAYS = ("ftgate", "update", "against", "python", "timeout")
"""Options that make a run measure, or that a plain run uses too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Every row of the table as an option and an ini key."""
    group = parser.getgroup("ftgate", "concurrency regression gating (ftgate)")
    for option in options.OPTIONS:
        parser.addini(option.dest, option.help, type=option.ini, default=None)
        how: dict[str, Any] = {
            "dest": option.dest,
            "default": None,
            "help": f"{option.help} (ini, env: {option.variable})",
        }
        if option.flag:
            group.addoption(option.cli, action="store_true", **how)
        elif option.optional:
            action = "append" if option.many else "store"
            group.addoption(option.cli, action=action, nargs="?", const=option.optional, metavar=option.metavar, **how)
        else:
            group.addoption(option.cli, action="append" if option.many else "store", metavar=option.metavar, **how)


def value_of(config: pytest.Config, name: str, declared: Any = None) -> Any:
    """The value of an option after precedence. Raises pytest.UsageError."""
    option = options.by_name(name)
    ini = _ini(config, option)
    try:
        return options.resolve(option, config.getoption(option.dest), os.environ, ini, declared)
    except FtgateError as error:
        raise pytest.UsageError(str(error)) from None


def _ini(config: pytest.Config, option: options.Option) -> Any:
    try:
        return config.getini(option.dest)
    except (ValueError, TypeError, pytest.UsageError) as error:  # which of them depends on pytest's version
        raise pytest.UsageError(f"ini option {option.dest}: {error}") from None


def thresholds_of(config: pytest.Config) -> tuple[tuple[Threshold, ...], tuple[Threshold, ...]]:
    """The thresholds of this run (command line and environment), and of the project (ini).

    A decorator overrides the ini only. Raises pytest.UsageError.
    """
    from ..judge import limits

    rows = [options.by_name(name) for name in options.THRESHOLDS]
    cli = {row.name: config.getoption(row.dest) for row in rows}
    ini = {row.name: _ini(config, row) for row in rows}
    try:
        given, written = options.threshold_layers(cli, os.environ, ini)
        limits.check(cli=given, ini=written)
    except FtgateError as error:
        raise pytest.UsageError(str(error)) from None
    return given, written


def measures(config: pytest.Config) -> bool:
    """Whether an option asks for a measurement, wherever it is said. Raises pytest.UsageError."""
    return any(value_of(config, name) for name in ("ftgate", "update", "against"))


def check_given(config: pytest.Config) -> None:
    """Raise pytest.UsageError for a value that its option cannot take.

    An option that is not given is not read: its default may need imports that a plain run has no use for.
    """
    for option in options.OPTIONS:
        given = (config.getoption(option.dest), os.environ.get(option.variable), _ini(config, option))
        if any(value is not None for value in given):
            value_of(config, option.name)


def check_values(config: pytest.Config) -> None:
    """Refuse options that together, or without a measurement, cannot mean what they say."""
    # `--ftgate-update tests/` means an update and a folder.
    for value in config.getoption("ftgate_update") or ():
        if value not in ("new", "all") and (config.invocation_params.dir / value).exists():
            raise pytest.UsageError(f"--ftgate-update took {value!r} as its value: write --ftgate-update=new {value}")
    against = config.getoption("ftgate_against")
    if against and (config.invocation_params.dir / against).exists():
        raise pytest.UsageError(
            f"--ftgate-against took {against!r} as its value: write --ftgate-against=merge-base {against}, "
            f"or refs/heads/{against} for a branch of that name"
        )
    # Not those of addopts, which is in the ini.
    words = {str(word).partition("=")[0] for word in config.invocation_params.args}
    said = [option.cli for option in options.OPTIONS if option.cli in words and option.name not in ALWAYS]
    if said and not measures(config) and not config.option.collectonly:
        raise pytest.UsageError(f"this run measures nothing, so {listed(said, 'and')} would do nothing: add --ftgate")
    if value_of(config, "trust") == "base" and measures(config) and not value_of(config, "against"):
        raise pytest.UsageError(
            "--ftgate-trust=base takes limits from the commit that is compared with: add --ftgate-against REV"
        )
    if value_of(config, "update") and value_of(config, "against"):
        raise pytest.UsageError(
            "--ftgate-update and --ftgate-against cannot be combined: "
            "a comparison does not run the control workload that baselines need; update in a separate run"
        )
