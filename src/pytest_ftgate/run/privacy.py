"""What is recorded of a run leaves the machine: it names no home folder, and no value of an environment variable."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..kit.text import placeholders
from ..model.report import PlacedRow
from ..model.sample import Sample
from ..model.spec import Cell, Environment
from ..targets.environments import user_home

HOME = "~"


def redacted(rows: Iterable[PlacedRow]) -> list[PlacedRow]:
    """Rows as they are kept; reports are made of them. What a user named stays: node ids and targets."""
    replace, public = msgspec.structs.replace, []
    for placed in rows:
        row = placed.row
        hidden = replace(row, cell=_cell(row.cell), sample=_sample(row.sample), paired=_sample(row.paired))
        public.append(replace(placed, row=hidden))
    text = without_home(msgspec.json.encode(public).decode())
    for name in {name for each in public for name in (each.row.cell.nodeid, each.row.cell.target.spec)}:
        if (changed := without_home(name)) != name:
            spelled, wanted = (msgspec.json.encode(each).decode()[1:-1] for each in (changed, name))
            text = text.replace(spelled, wanted)
    return msgspec.json.decode(text, type=list[PlacedRow])


def without_home(text: str) -> str:
    """A text with `~` in place of the home folder."""
    home = user_home() or Path("/")
    folders = {str(folder) for folder in (home, home.resolve()) if len(folder.parts) > 1}
    for folder in sorted(folders, key=len, reverse=True):
        if folder not in text:  # a hundredth of what the expression takes
            continue
        # Not in the middle of a longer path or name, but after a compiler's option and after an escape in JSON.
        text = re.sub(rf"(?:(?<![\w./-])|(?<=-[IL])|(?<=\\[nrt])){re.escape(folder)}(?:/|(?![\w.-]))", f"{HOME}/", text)
    return text


def _sample(sample: Sample | None) -> Sample | None:
    if sample is None:
        return None
    return msgspec.structs.replace(sample, cell=_cell(sample.cell), reference=_sample(sample.reference))


def _cell(cell: Cell) -> Cell:
    replace, program = msgspec.structs.replace, cell.executor.program
    environment = Environment(variables=_hidden(cell.environment.variables), words=cell.environment.words)
    if program is None:
        return replace(cell, environment=environment)
    executor = replace(cell.executor, program=replace(program, environment=_hidden(program.environment)))
    return replace(cell, executor=executor, environment=environment)


def _hidden(variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The variables, each with a digest for its value: equal values stay equal; placeholders stay."""
    return tuple((name, _digest(value)) for name, value in variables)


def _digest(value: str) -> str:
    known = "".join(f"{{{name}}}" for name in placeholders(value))
    return f"{known}sha256:{hashlib.sha256(value.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
