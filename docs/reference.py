"""The pages of the reference, made from the code: run this to write them. A test fails where one is stale."""

from __future__ import annotations

import argparse
import inspect
import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest_ftgate
from pytest_ftgate.cli import build_parser
from pytest_ftgate.declare.options import table as options_table
from pytest_ftgate.judge import contract_grammar, metrics
from pytest_ftgate.kit import units
from pytest_ftgate.kit.text import listed
from pytest_ftgate.model.verdict import Limits
from pytest_ftgate.runner import signatures
from pytest_ftgate.runner.api import Declaration

FOLDER = Path(__file__).parent
MADE = "<!-- made by docs/reference.py -->\n"
UNITS = {
    "time": "ns, us, ms, s",
    "size": "B, KB, KiB, MB, MiB, GB, GiB",
    "share": "% or plain",
    "ratio": "% or plain",
}
"""What a contract may write after a number of a metric."""
NO_BREAK = "\u00a0"
INTERNAL = ("close", "forget")
"""Methods that the runner calls."""


def main() -> None:
    """Write every page."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """The text of each page, by the name of its file."""
    made = {"options.md": options(), "commands.md": commands(), "metrics.md": metric_table(), "api.md": api()}
    return {name: "\n".join([*lines, ""]) for name, lines in made.items()}


def options() -> Iterator[str]:
    """The options of `pytest`."""
    yield from ("# Options", "", MADE)
    yield "The ini key of an option has its name: `--ftgate-test-time` is `ftgate_test_time`."
    yield "[Running](running.md#options) has their order of precedence."
    yield ""
    rows, rare = list[tuple[str, str]](), list[tuple[str, str]]()
    for option in options_table():
        value = "" if option.flag else f"[={option.metavar}]" if option.optional else f" {option.metavar}"
        said = "default" in option.help or option.flag or option.default in (None, (), "", -1)
        text = f"{option.help}{'' if said else f' (default: {option.default:g})'}"
        (rare if option.ini_only else rows).append(
            (f"`{option.dest if option.ini_only else option.cli + value}`", text)
        )
    yield from table(("option", "meaning"), rows)
    yield from ("", "These are set only in the ini, or for one run by `-o ftgate_alpha=0.001`:", "")
    yield from table(("ini key", "meaning"), rare)


def commands() -> Iterator[str]:
    """The `ftgate` command."""
    ftgate = build_parser()
    assert ftgate.epilog
    yield from ("# Commands", "", MADE, f"{ftgate.epilog[0].upper()}{ftgate.epilog[1:]}.")
    for name, parser in _subcommands(ftgate):
        if not parser.description:  # its commands have one each
            continue
        yield from ("", f"## ftgate {name}", "", parser.description, "")
        shown = [each for each in parser._actions if each.help != argparse.SUPPRESS and each.dest != "help"]
        rows = [
            (f"`{_words(action)}`", (action.help or "") % {"default": action.default, "prog": "ftgate"})
            for action in shown
            if not isinstance(action, argparse._SubParsersAction)
        ]
        yield from table(("argument", "meaning"), rows) if rows else ()


def _subcommands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, each in action.choices.items():
                yield f"{name}{word}", each
                yield from _subcommands(each, f"{name}{word} ")


def _words(action: argparse.Action) -> str:
    """An argument as it is typed: `--to FORM`, `PATH ...`."""
    metavar = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    value = "" if action.nargs == 0 else metavar if isinstance(metavar, str) else " ".join(metavar)
    value = {"*": f"[{value} ...]", "+": f"{value} ...", "?": f"[{value}]"}.get(str(action.nargs), value)
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


def metric_table() -> Iterator[str]:
    """The metrics, with their default limits."""
    yield from ("# Metrics", "", MADE)
    yield "[Contracts](#contracts), `--ftgate-metrics` and `--ftgate-limit` take these names. The last two columns are"
    yield "the default [margin](terms.md#margin), with its floor, and [effect](terms.md#effect), for pairs and for"
    yield "stored values. A metric without limits is derived from times: it explains a change, and fails a cell only if"
    yield "its own time is worse too."
    yield ""
    rows = [
        (
            f"`{row.name}`",
            row.meaning,
            row.unit,
            *("" if row.explains else _limits(row, each) for each in (row.paired, row.apart)),
        )
        for row in metrics.TABLE.values()
    ]
    rows += [(f"`{kind}.NAME`", own.meaning, own.unit, "", "") for kind, own in metrics.OWN.items()]
    yield from table(("metric", "meaning", "unit", "paired", "stored"), rows)
    yield ""
    yield f"{listed([f'`{name}`' for name in metrics.GATING], 'and')} gate by default."
    yield f"In a contract the units are: {'; '.join(f'{unit}: {written}' for unit, written in UNITS.items())}."
    yield from ("", "## Contracts", "", "```text")
    _, _, grammar = (contract_grammar.__doc__ or "").partition("\n\n")
    yield from (grammar.strip("\n"), "```")


def _limits(row: metrics.MetricRow, limits: Limits) -> str:
    """A margin with its floor, and an effect: of a difference both have one."""
    margin, effect = (units.whole_share(each).replace(" ", NO_BREAK) for each in (limits.margin, limits.effect))
    if not limits.floor:
        return f"{margin}, {effect}"
    floors = [_floor(row.unit, times * limits.floor) for times in (1, 2)]
    return f"{margin} + {floors[0]}, {effect}" + (f" + {floors[1]}" if metrics.by_difference(row.name) else "")


def _floor(unit: str, floor: float) -> str:
    if unit == "share":
        return f"{100 * floor:g} point{'s' if floor != 0.01 else ''}"
    return units.of(unit, floor * (1e9 if unit == "time" else 1))


def api() -> Iterator[str]:
    """What `pytest_ftgate` exports."""
    yield from ("# API", "", MADE, "All names are those of `pytest_ftgate`.")
    for name in ("compare", "serve", "contract", "limit", "xfail", "named", "shared"):
        yield from _function(f"ftgate.{name}", getattr(type(pytest_ftgate.ftgate), name))
    yield from ("", "## Decorators of a decorated test")
    of_test = ("set_shared", "set_check", "set_stop", "add_role", "add_variant", "add_setup", "add_teardown")
    for name in of_test:
        yield from ("", _doc(getattr(Declaration, name)))
    for name in ("executor", "command", "load"):
        yield from _function(name, getattr(pytest_ftgate, name))
    for name in ("Worker", "Context", "Server"):
        found = getattr(pytest_ftgate, name)
        yield from ("", f"## {name}", "", _doc(found))
        for member, value in vars(found).items():
            if inspect.isfunction(value) and not member.startswith("_") and member not in INTERNAL:
                yield from ("", f"**`{member}{_signature(value)}`** {_doc(value)}")


def _function(name: str, function: Any) -> Iterator[str]:
    yield from ("", f"## {name}", "", f"`{name}{_signature(function)}`", "", _doc(function))


def _signature(function: Any) -> str:
    """Without annotations, and with the keywords that `**options` takes."""
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in "".join(found):
            found.append("*")
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and (
            taken := re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        ):
            hints = typing.get_type_hints(getattr(signatures, taken[1]))
            found += [f"{name}=..." for name in sorted(hints)]
        elif parameter.name != "self":
            found.append(str(parameter.replace(annotation=inspect.Parameter.empty)))
    return f"({', '.join(found)})"


def _doc(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        cells = (re.sub(r"[ \n]+", " ", cell.replace("|", r"\|")).strip() for cell in row)
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
