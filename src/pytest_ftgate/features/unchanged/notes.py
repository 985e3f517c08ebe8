"""Notes of a check launch, and whether the other side has the same of all that they say."""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ...kit.values import grouped
from ...runner import reads
from .code import MODULE, differing
from .sides import Place, SideFiles

OPENED: Final = "opened"
"""A kind of note, of the kernel: a file that was opened, by whatever code."""
_SEEN: Final = {
    reads.FILE: reads.FILE,
    OPENED: reads.FILE,
    reads.ASKED: reads.ASKED,
    reads.FOLDER: reads.FOLDER,
    reads.NAMES: reads.NAMES,
    reads.MODULE: reads.MODULE,
}
"""Kinds of notes that hold a path which was looked at; what is seen there."""
_BYTECODE: Final = re.compile(r"(.*/)?__pycache__(/[^/]+\.pyc(\.\d+)?)?")


class Read(NamedTuple):
    """A note of a process of the check launch: a kind of `runner.reads`, and a path or words."""

    kind: str
    text: str


class Compared(NamedTuple):
    """The first reason to measure, empty for none; and what differs without being a reason."""

    reason: str
    sources: int = 0
    """Sources that differ, but not in what ran of them."""
    uncalled: frozenset[str] = frozenset()
    """Functions that differ and were not called."""
    ran: frozenset[tuple[Place, str]] = frozenset()
    changed: frozenset[tuple[str, str]] = frozenset()
    """File and qualified name of the functions that ran and differ."""


def read_notes(file: Path) -> list[Read]:
    """The notes of a launch; a line that is not whole counts as one that cannot be followed. Raises OSError."""
    notes = []
    for line in file.read_text(encoding="ascii", errors="replace").splitlines():
        kind, _, literal = line.partition(" ")
        try:
            notes.append(Read(kind, str(ast.literal_eval(literal))))
        except (SyntaxError, ValueError):
            notes.append(Read(reads.UNKNOWN, "an unreadable note"))
    return notes


def differ(names: Sequence[str]) -> str:
    """`f() in mod.py and 2 more differ`."""
    return f"{names[0]} and {len(names) - 1} more differ" if names[1:] else f"{names[0]} differs"


def installed_files(notes: Sequence[Read], mine: SideFiles) -> set[str]:
    """The files in site-packages that ran or were opened, as they are named in there."""
    paths = [note.text for note in notes if note.kind == reads.FILE]
    paths += [note.text.rpartition(":")[0] for note in notes if note.kind == reads.RAN]
    return {str(place) for place in map(mine.place_of, paths) if place and place.base == "environment"}


def compared(notes: Iterable[Read], mine: SideFiles, other: SideFiles) -> Compared:
    """Compare the other side with the side that made these notes."""
    notes = list(dict.fromkeys(notes))
    if reason := _unfollowed(notes, mine):
        return Compared(reason)
    # 1. The code that ran.
    ran = defaultdict[Place, set[str]](set)
    by_path = grouped(note.text.rpartition(":")[::2] for note in notes if note.kind == reads.RAN)
    for path, called in by_path.items():
        if at := mine.place_of(path):
            ran[at].update(called)
    changed, sources, uncalled, functions = list[str](), 0, set[str](), set[tuple[str, str]]()
    for place, names in ran.items():
        if mine.fingerprint(reads.FILE, place) == other.fingerprint(reads.FILE, place):
            continue
        found = differing(mine.parts(place, names), other.parts(place, names))
        changed += [str(place) if each == MODULE else f"{each} in {place}" for each in found]
        functions |= {(str(place), each.removesuffix("()")) for each in found if each.endswith("()")}
        sources += 1
        different = differing(mine.parts(place, None), other.parts(place, None))
        uncalled |= {f"{place}: {each.split('.<locals>')[0]}" for each in different if each.endswith("()")}
    if changed:
        return Compared(differ(sorted(changed, key=lambda each: "()" not in each)), changed=frozenset(functions))
    # 2. Files and folders that it read, asked for, listed and looked for. The text of executed sources does not count.
    suffixes = sorted(note.text for note in notes if note.kind == reads.SUFFIX)
    for note in notes:
        seen = _SEEN.get(note.kind)
        looked_at = mine.place_of(note.text) if seen else None
        if seen is None or looked_at is None or (note.kind == OPENED and looked_at in ran):
            continue
        places = [looked_at]
        if note.kind == reads.MODULE:
            stems = (looked_at.path, os.path.join(looked_at.path, "__init__"))
            places += [Place(looked_at.base, f"{stem}{suffix}") for stem in stems for suffix in suffixes]
        for each in places:
            if mine.fingerprint(seen, each) != other.fingerprint(seen, each):
                return Compared(f"{each} differs")
    of_ran = frozenset((place, name) for place, names in ran.items() for name in names)
    return Compared("", sources, frozenset(uncalled), of_ran)


def _unfollowed(notes: list[Read], mine: SideFiles) -> str:
    """After which of the notes nobody can tell what the process reads; empty if there is none."""
    if not any(note.kind == reads.STARTED for note in notes):
        return "its calls could not be recorded"
    bound = {note.text for note in notes if note.kind == reads.BOUND}
    for note in notes:
        unknown = ""
        if note.kind == reads.UNKNOWN:
            unknown = note.text
        elif note.kind == reads.CONNECTED and note.text not in bound:
            unknown = f"a connection to {note.text}"
        elif note.kind == reads.WRITTEN and (place := mine.place_of(note.text)) and not _BYTECODE.fullmatch(place.path):
            return f"it writes {place.path}"
        if unknown:
            return f"{unknown} cannot be followed"
    return ""
