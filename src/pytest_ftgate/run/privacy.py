"""What is recorded of a run leaves the machine: it names no home folder, no secret, no value of a variable."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..kit.hiding import HIDDEN, without_secrets
from ..kit.text import placeholders
from ..model.report import PlacedRow
from ..model.sample import Keep, Sample, in_memory
from ..model.spec import Cell, Environment
from ..targets.environments import user_home

HOME = "~"


def redacted(rows: Iterable[PlacedRow], keep: Keep = in_memory) -> list[PlacedRow]:
    """Rows as they are kept; reports are made of them. What a user named stays: node ids and targets.

    Their samples are packed, which `keep` keeps.
    """
    given, folders = list(rows), _home_folders()
    spelled: dict[bytes, bytes] = {}
    for name in {name for each in given for name in (each.row.cell.nodeid, each.row.cell.target.spec)}:
        if (changed := _without(folders, without_secrets(name))) != name:
            there, wanted = (msgspec.json.encode(each)[1:-1] for each in (changed, name))
            spelled[there] = wanted

    def shown(data: bytes) -> bytes:
        hidden = _without(folders, without_secrets(data.decode())).encode()
        for there, wanted in spelled.items():
            hidden = hidden.replace(there, wanted)
        return hidden

    packed = [
        replace(each, row=replace(each.row, cell=_cell(each.row.cell)))
        for each in (_with_samples(each, lambda sample: _hidden_in(sample.packed(keep, shown))) for each in given)
    ]
    text = msgspec.json.encode([_with_samples(each, _bare) for each in packed])
    if (hidden := shown(text)) == text:
        return packed
    heads = msgspec.json.decode(hidden, type=list[PlacedRow])
    return [
        replace(head, row=replace(head.row, sample=_filled(head.row.sample, each.row.sample)))
        for head, each in zip(heads, packed, strict=True)
    ]


def _with_samples(placed: PlacedRow, change: Callable[[Sample], Sample]) -> PlacedRow:
    sample = placed.row.sample
    return replace(placed, row=replace(placed.row, sample=sample and change(sample)))


def public(text: str) -> str:
    """A text with `~` in place of the home folder, and without secrets."""
    return _without(_home_folders(), without_secrets(text))


def _home_folders() -> list[str]:
    home = user_home() or Path("/")
    folders = {str(folder) for folder in (home, home.resolve()) if len(folder.parts) > 1}
    return sorted(folders, key=len, reverse=True)


def _without(folders: Iterable[str], text: str) -> str:
    for folder in folders:
        if folder not in text:  # a hundredth of what the expression takes
            continue
        # Not in the middle of a longer path or name, but after a compiler's option and after an escape in JSON.
        text = re.sub(rf"(?:(?<![\w./-])|(?<=-[IL])|(?<=\\[nrt])){re.escape(folder)}(?:/|(?![\w.-]))", f"{HOME}/", text)
    return text


def _hidden_in(sample: Sample) -> Sample:
    reference = sample.reference and _hidden_in(sample.reference)
    return replace(sample, cell=_cell(sample.cell), reference=reference)


def _bare(sample: Sample) -> Sample:
    """A sample without its launches."""
    return replace(sample, all_launches=(), reference=sample.reference and _bare(sample.reference))


def _filled(bare: Sample | None, sample: Sample | None) -> Sample | None:
    """A sample with the launches of another."""
    if bare is None or sample is None:
        return bare
    return replace(bare, all_launches=sample.all_launches, reference=_filled(bare.reference, sample.reference))


def _cell(cell: Cell) -> Cell:
    program = cell.executor.program
    if program is None and not cell.environment.variables:
        return cell
    environment = Environment(variables=_hidden(cell.environment.variables), words=cell.environment.words)
    if program is None:
        return replace(cell, environment=environment)
    executor = replace(cell.executor, program=replace(program, environment=_hidden(program.environment)))
    return replace(cell, executor=executor, environment=environment)


def _hidden(variables: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The variables without their values, of which placeholders stay: cells are told apart by their ids' words."""
    return tuple((name, "".join(f"{{{each}}}" for each in placeholders(value)) + HIDDEN) for name, value in variables)
