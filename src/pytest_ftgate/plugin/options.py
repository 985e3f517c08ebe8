"""Our options as pytest's: registered from the options table, resolved and checked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ..declare import options
from ..declare.options import Option, Options
from ..kit.errors import FtgateError
from ..kit.text import listed, plain

OPTIONS = pytest.StashKey[Options]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Every row of the table as an option and an ini key."""
    group = parser.getgroup("ftgate", "concurrency regression gating (ftgate)")
    for option in options.table():
        parser.addini(option.dest, option.help, type=option.ini, default=None)
        if option.ini_only:
            continue
        how: dict[str, Any] = {"action": "append" if option.many else "store", "metavar": option.metavar}
        if option.flag:
            how = {"action": "store_true"}
        elif option.optional:
            how |= {"nargs": "?", "const": option.optional}
        said = f"{option.help} (ini)"
        group.addoption(option.cli, dest=option.dest, default=None, help=said, **how)


def options_of(config: pytest.Config) -> Options:
    """The options of a run, read once. Raises pytest.UsageError."""
    if OPTIONS not in config.stash:
        config.stash[OPTIONS] = _read(config, options.table())
    return config.stash[OPTIONS]


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Raise pytest.UsageError in place of an error of ours, which holds no secret."""
    try:
        yield
    except FtgateError as error:
        raise pytest.UsageError(plain(str(error))) from None


def _read(config: pytest.Config, rows: Sequence[Option]) -> Options:
    cli, ini = {option.name: config.getoption(option.dest, None) for option in rows}, {}
    for option in rows:
        try:
            ini[option.name] = config.getini(option.dest)
        except (ValueError, TypeError, pytest.UsageError) as error:  # which of them depends on pytest's version
            # pytest has one type for each key, and `[tool.pytest]` may hold 5 or "5", 90 or "90s", a text or a list.
            written = vars(config).get("_inicfg") or vars(config).get("inicfg", {})  # the latter up to pytest 9.0.2
            raw = getattr(written.get(option.dest), "value", None)
            if option.ini != "bool" and type(raw) in (int, float, str):
                ini[option.name] = raw
                continue
            with usage_errors():
                raise FtgateError(f"ini option {option.dest}: {error}") from None
    with usage_errors():
        return options.read(cli, ini, rows)


def measures(config: pytest.Config) -> bool:
    """Whether an option asks for a measurement, wherever it is said. Raises pytest.UsageError."""
    rows = [option for option in options.table() if option.measures]
    given = _read(config, rows)
    return any(option.of(given) for option in rows)


@usage_errors()
def check_values(config: pytest.Config, *, measuring: bool) -> None:
    """Raise pytest.UsageError for options that together, or without a measurement, cannot mean what they say."""
    given = options_of(config)
    # `--ftgate-update tests/` means an update and a folder.
    for value in config.getoption("ftgate_update") or ():
        if value not in ("new", "all") and (config.invocation_params.dir / value).exists():
            raise FtgateError(f"--ftgate-update took {value!r} as its value: write --ftgate-update=new {value}")
    against = config.getoption("ftgate_against")
    if against and (config.invocation_params.dir / against).exists():
        raise FtgateError(
            f"--ftgate-against took {against!r} as its value: write --ftgate-against=merge-base {against}, "
            f"or refs/heads/{against} for a branch of that name"
        )
    # Not those of addopts, which is in the ini.
    words = {str(word).partition("=")[0] for word in config.invocation_params.args}
    idle = (option for option in options.table() if not (option.measures or option.plain))
    said = [option.cli for option in idle if option.cli in words]
    if said and not measuring and not config.option.collectonly:
        raise FtgateError(f"this run measures nothing, so {listed(said, 'and')} would do nothing: add --ftgate")
    if given.update and given.against:
        raise FtgateError(
            "--ftgate-update and --ftgate-against cannot be combined: "
            "a comparison does not run the control workload that baselines need; update in a separate run"
        )
