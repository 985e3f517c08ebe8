"""Cells that cannot have changed: a check launch notes what they read, and all of it is the same on both sides.

The changed side alone is launched. What a cell does is decided by what it reads: where the reference has the same at
every place that was read or looked for, it goes the same way.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import stat
import struct
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import msgspec

from ...declare.plan import one_per_target
from ...hookspec import hookimpl
from ...kit.git import Checkout
from ...measure.context import PreparedTarget
from ...measure.launch import CellUnsupported, LaunchFailed, request_here
from ...measure.plan import Allowance, RoundPlan
from ...measure.watch.opened_files import OpenedFiles
from ...model.spec import Cell, Group, Spec
from ...run.run import Run
from ...run.sides import worktrees
from ...runner import reads
from ...runner.protocol import CHECK, WARMUP
from ...store import names
from . import UNCHANGED

# The two sides of a comparison as their readers find them: notes of what was read, and what each side has there.

LARGE_BYTES: Final = 64 << 20
"""A larger file is not searched for paths of its side."""
ABSENT: Final = "absent"
IS_FOLDER: Final = "folder"
OPENED: Final = "opened"
"""A kind of note, of the kernel: a file that was opened, by whatever code."""
_FILES: Final = frozenset((reads.FILE, reads.ASKED, reads.CODE, OPENED))
_PLACED: Final = _FILES | {reads.FOLDER, reads.NAMES, reads.MODULE, reads.WRITTEN}
_BYTECODE: Final = re.compile(r"(?:(.*)/)?__pycache__/([^/]+?)\.[^/.]+(?:\.opt-\d)?\.pyc(?:\.\d+)?")
_AT_START: Final = ("*.pth", "*.start", "__editable__*", "*customize.py")  # .start: since 3.15, PEP 829
_NOT_LISTED: Final = ("__pycache__", ".git")
_DOCSTRINGS: Final = (b"__doc__", b"getdoc", b"doctest")
"""A Python file with one of these may use its docstrings."""
_LOADED: Final = 2
_ZEROS: Final = 8
"""Of a section of a shared library: a flag, and a kind that has no content in the file."""


class Read(NamedTuple):
    """What a process of the check launch read or did: a kind of `runner.reads`, and a path or words."""

    kind: str
    text: str


class Place(NamedTuple):
    """A path below the `top` of a checkout or below its `environment`."""

    base: str
    path: str


class Compared(NamedTuple):
    """How many files were compared, and the first reason to measure; empty if there is none.

    Of the files so many are the same `but_for_text`: what runs of them is.
    """

    files: int
    reason: str
    but_for_text: int = 0


class Places(Protocol):
    """One of the two sides, of which both share some paths."""

    def place_of(self, path: str) -> Place | None:
        """The place of an absolute path; None for a path that both sides share."""
        ...

    def fingerprint(self, kind: str, place: Place) -> str:
        """What a reader of that kind sees there: equal texts mean that it sees no difference."""
        ...


def compare(notes: Iterable[Read], changed: Places, reference: Places, *, watched: bool = True) -> Compared:
    """Whether two sides have the same at all places of `notes`; `watched`: they have what C code opened."""

    def alike(kind: str, place: Place) -> bool:
        return changed.fingerprint(kind, place) == reference.fingerprint(kind, place)

    notes = list(dict.fromkeys(notes))
    if not any(note.kind == reads.STARTED for note in notes):
        return Compared(0, "what it reads could not be noted")
    bound, suffixes = ({note.text for note in notes if note.kind == kind} for kind in (reads.BOUND, reads.SUFFIX))
    run = {_source_place(place) for note in notes if note.kind == reads.CODE and (place := changed.place_of(note.text))}
    traced = any(note.kind == reads.TRACED for note in notes)
    files, differing = set[Place](), set[Place]()
    for note in notes:
        place = changed.place_of(note.text) if note.kind in _PLACED else None
        # After some notes nobody can tell what the process reads.
        unknown = ""
        if note.kind == reads.UNKNOWN:
            unknown = note.text
        elif note.kind == reads.CONNECTED and note.text not in bound:
            unknown = f"a connection to {note.text}"
        elif note.kind == reads.NATIVE and not watched and "/lib-dynload/" not in note.text:
            unknown = f"what {os.path.basename(note.text)} reads"
        if unknown:
            return Compared(len(files), f"{unknown} cannot be followed")
        if place is None:
            continue
        if note.kind == reads.WRITTEN:
            if _BYTECODE.fullmatch(place.path) or os.path.basename(place.path) == "__pycache__":
                continue
            return Compared(len(files), f"it writes {place.path}")
        # A search is about all that it may find, bytecode about its source.
        places = [_source_place(place)]
        if note.kind == reads.MODULE:
            stems = (place.path, os.path.join(place.path, "__init__"))
            found = (Place(place.base, f"{stem}{suffix}") for stem in stems for suffix in sorted(suffixes))
            places = [place, *found]
        kind = reads.FILE if note.kind in _FILES else note.kind
        for each in places:
            if not alike(kind, each):
                # Who asks about a source, or opens it to run it, does not see its text.
                blind = note.kind in (reads.ASKED, reads.CODE) or (note.kind == OPENED and each in run)
                if traced or not blind or not alike(reads.CODE, each):
                    return Compared(len(files), f"{each.path or 'its folder'} differs")
                differing.add(each)
            if kind == reads.FILE and changed.fingerprint(kind, each) not in (ABSENT, IS_FOLDER):
                files.add(each)
    return Compared(len(files), "", len(differing))


def _source_place(place: Place) -> Place:
    """The source file of bytecode; any other place as it is."""
    bytecode = _BYTECODE.fullmatch(place.path)
    return Place(place.base, os.path.join(bytecode[1] or "", f"{bytecode[2]}.py")) if bytecode else place


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


class Side:
    """The files of one side: the top of its checkout, and the environment of one target."""

    def __init__(self, top: Path, environment: Path) -> None:
        self.bases = {"top": str(top), "environment": str(environment)}
        spelled = {(name, path) for name, base in self.bases.items() for path in (base, os.path.realpath(base))}
        self._spelled = sorted(spelled, key=lambda each: -len(each[1]))
        self._found: dict[tuple[str, Place], str] = {}

    def place_of(self, path: str) -> Place | None:
        """The place of an absolute path, also through a link; None outside."""
        for spelling in (path, os.path.realpath(path)):
            for name, base in self._spelled:
                if spelling == base or spelling.startswith(f"{base}/"):
                    return Place(name, spelling[len(base) + 1 :])
        return None

    def fingerprint(self, kind: str, place: Place) -> str:
        """See Places; a path of this side within a file counts as the same path of the other."""
        if (kind, place) not in self._found:
            try:
                found = self._seen(kind, os.path.join(self.bases[place.base], place.path))
            except (FileNotFoundError, NotADirectoryError):
                found = ABSENT
            except OSError as error:
                found = f"error {error.errno}"
            self._found[kind, place] = found
        return self._found[kind, place]

    def _seen(self, kind: str, path: str) -> str:
        """What a reader of that kind learns of a path. Raises OSError."""
        if kind == reads.NAMES:
            return repr(sorted(name for name in os.listdir(path) if name not in _NOT_LISTED))
        if kind == reads.MODULE:
            return IS_FOLDER if stat.S_ISDIR(os.stat(path).st_mode) else "file"
        if kind == reads.FOLDER:
            # Names, kinds and sizes: a reader learns all of them without an event. The comments of a Python source are
            # part of its size, and count where it is read, if they do.
            listed = []
            with os.scandir(path) as entries:
                for each in entries:
                    if each.name not in _NOT_LISTED:
                        sized = not each.is_dir() and not each.name.endswith(".py")
                        size = each.stat(follow_symlinks=False).st_size if sized else 0
                        listed.append((each.name, each.is_dir(), size))
            return repr(sorted(listed))
        link = f"link to {self._neutral(os.fsencode(os.readlink(path)))!r} " if os.path.islink(path) else ""
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return link + IS_FOLDER
        if not stat.S_ISREG(status.st_mode):
            return f"{link}special {status.st_mode}"
        with open(path, "rb") as file:
            if status.st_size > LARGE_BYTES:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            else:
                content = file.read()
                if path.endswith(".dist-info/METADATA"):  # its body is the project's README
                    content = content.partition(b"\n\n")[0]
                part = run_part if kind == reads.CODE and path.endswith(".py") else loaded_part
                digest = hashlib.sha256(self._neutral(part(content))).hexdigest()
        return f"{link}{digest} {'executable' if status.st_mode & stat.S_IXUSR else ''}"

    def _neutral(self, content: bytes) -> bytes:
        for name, path in self._spelled:
            content = content.replace(os.fsencode(path), name.encode())
        return content

    def differing_package(self, other: Side) -> str:
        """The first distribution, or file that runs when an interpreter starts, that is not the same; empty for none.

        Distributions installed from a folder are left out: their files are compared where they are read.
        """
        mine, theirs = self._packages, other._packages
        return next((name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)), "")

    @cached_property
    def _packages(self) -> dict[str, str]:
        environment = Path(self.bases["environment"])
        sites = [*environment.glob("lib/python*/site-packages"), environment / "Lib/site-packages"]
        found = {}
        for distribution in metadata.distributions(path=[str(site) for site in sites]):
            if "file://" not in (distribution.read_text("direct_url.json") or ""):
                files = sorted((distribution.read_text("RECORD") or "").splitlines())
                kept = [line for line in files if not line.startswith("..") and ".dist-info/" not in line]
                digest = hashlib.sha256("\n".join(kept).encode()).hexdigest()
                found[distribution.metadata["Name"] or "?"] = f"{distribution.version} {digest}"
        for path in (path for site in sites for name in _AT_START for path in site.glob(name)):
            place = Place("environment", str(path.relative_to(environment)))
            found[path.name] = self.fingerprint(reads.FILE, place)
        return found


class _Run(ast.NodeTransformer):
    """Removes the expressions that the compiler drops: constants that nobody uses, such as docstrings."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """None for a constant."""
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)


def run_part(content: bytes) -> bytes:
    """Of a Python source what runs: no comments, layout or docstrings; of one that may use its docstrings these, too.

    One that this interpreter cannot parse as it is.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            tree: ast.AST = ast.parse(content)
        if not any(word in content for word in _DOCSTRINGS):
            tree = _Run().visit(tree)
        return ast.dump(tree).encode(errors="surrogatepass")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return content


def loaded_part(content: bytes) -> bytes:
    """Of a shared library what is loaded into memory, without the id of its build; any other content as it is.

    The rest is debugging information, and both name the folder in which the library was built.
    """
    if content[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        return content
    try:
        (table,) = struct.unpack_from("<Q", content, 0x28)
        size, count, names_at = struct.unpack_from("<HHH", content, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", content, table + index * size) for index in range(count)]
        names = content[sections[names_at][4] :]
    except (struct.error, IndexError):
        return content
    parts = [content[:0x28]]
    for name_at, kind, flags, address, offset, length in sections:
        name = names[name_at:].split(b"\0", 1)[0]
        if flags & _LOADED and name != b".note.gnu.build-id":
            data = b"" if kind == _ZEROS else content[offset : offset + length]
            parts.append(b"%s %d %d %d %d " % (name, kind, flags, address, length) + data)
    return b"".join(parts)


SHORT_NS: Final = 1e9
"""An iteration shorter than this is followed by a second one: what a body reads only then counts as well."""
LOAD_NS: Final = 1_000_000_000
"""How long a server gets load at most."""


class Checked(NamedTuple):
    """What is the same for each cell that need not be compared, by node id, and why another one must be.

    Neither where nothing was checked.
    """

    same: Mapping[str, str] = MappingProxyType({})
    why: str = ""


BEGUN: Final = Read(reads.STARTED, "")


class Sides(NamedTuple):
    """A target on both sides, and why both can be told apart before anything is launched; empty if they cannot."""

    target: PreparedTarget
    changed: Side
    reference: Side
    differs: str


class UnchangedCells:
    """Finds the cells of a comparison that need no measurement."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._sides: dict[tuple[str, str], Side] = {}

    @hookimpl(specname="ftgate_settle")
    def check(self, group: Group, cells: Sequence[Cell], pair: worktrees.Pair) -> Checked:
        """All `cells` of a group that run Python in our runner, or none: they are compared with each other.

        Each program by itself. Two versions of a distribution are a change.
        """
        lacking = (worktrees.lacks(pair.reference, names.split_nodeid(cell.nodeid)[0]) for cell in cells)
        if UNCHANGED.of(self.run.config) != "skip" or not pair.reference.commit or any(lacking):
            return Checked()
        same, why = dict[str, str](), ""
        try:
            # What can be compared before a launch is: also, a build for one target may leave files that another lists.
            sides = {cell.target.spec: self._prepared(group, cell, pair) for cell in one_per_target(cells)}
            spec = self.run.references.relocated(group.spec, pair.changed)
            source = [Read(reads.CODE, spec.source.path), BEGUN]
            for each in sides.values():
                if reason := each.differs or compare(source, each.changed, each.reference).reason:
                    return Checked(why=reason)
            for cell in sorted(cells, key=lambda each: each.executor.program is not None):
                try:
                    finding = self._finding(cell, spec, sides[cell.target.spec])
                except CellUnsupported:
                    continue
                except LaunchFailed:
                    if cell.executor.program is None:
                        return Checked()  # the measurement finds the error again, and reports it
                    finding = Compared(0, "its check launch failed")
                if not finding.reason:
                    files, text = finding.files, finding.but_for_text
                    what = "file that it reads is" if files == 1 else f"{files} files that it reads are"
                    some = f"{text} of them " if files > text else ""
                    but = f", {some}but for comments, docstrings or layout" if text else ""
                    same[cell.nodeid] = f"the {what} the same at {pair.reference.label}{but}"
                elif cell.executor.program is None:
                    return Checked(why=finding.reason)
                else:
                    why = why or f"{cell.label}: {finding.reason}"
        except Exception:  # noqa: BLE001
            return Checked()
        return Checked(same, why)

    def _prepared(self, group: Group, cell: Cell, pair: worktrees.Pair) -> Sides:
        """Both sides of a cell's target. Raises FtgateError where one cannot be prepared."""
        requires = group.spec.packages
        target = self.run.targets.prepared(cell, requires, pair.changed)
        other = self.run.targets.prepared(cell, requires, pair.reference)
        changed, reference = self._side(pair.changed, target), self._side(pair.reference, other)
        package = changed.differing_package(reference)
        differs = "the interpreter" if target.interpreter != other.interpreter else package
        return Sides(target, changed, reference, f"{differs} differs" if differs else "")

    def _side(self, checkout: Checkout, target: PreparedTarget) -> Side:
        key = (checkout.root, target.python)
        if key not in self._sides:
            self._sides[key] = Side(checkout.top(checkout.project), Path(target.python).parent.parent)
        return self._sides[key]

    def _finding(self, cell: Cell, spec: Spec, sides: Sides) -> Compared:
        """What the check launch of a cell finds. Raises LaunchFailed, CellUnsupported and OSError.

        Of a program the kernel alone tells what it opens. What it looks for in vain is not heard of, so the folders in
        which it opens files must hold the same names.
        """
        program = cell.executor.program is not None
        with OpenedFiles.watching(map(Path, sides.changed.bases.values())) as watch:
            if program and watch is None:
                return Compared(0, "what a program reads cannot be followed here")
            notes = self._notes(cell, spec, sides.target)
            events = watch.events() if watch else []
        if events is None:
            notes.append(Read(reads.UNKNOWN, "a launch that opens so many files"))
        notes += [Read(reads.WRITTEN if event.changed else OPENED, event.path) for event in events or ()]
        if program:
            notes += [Read(reads.NAMES, os.path.dirname(note.text)) for note in notes if note.kind == OPENED]
        return compare(notes, sides.changed, sides.reference, watched=watch is not None)

    def _notes(self, cell: Cell, spec: Spec, target: PreparedTarget) -> list[Read]:
        """The check launch: it starts, imports the workload, runs an iteration or two, and ends."""
        self.run.listener.advance(cell.label, "checking what is read by", 0, 0, None)
        plan = RoundPlan(spec, Allowance(timeout_s=self.run.config.timeout), time.monotonic)
        program = cell.executor.program is not None
        with tempfile.TemporaryDirectory(prefix="ftgate-") as folder:
            file = Path(folder, "reads")
            file.touch()
            request = msgspec.structs.replace(
                request_here(cell, spec, target.python, spec.timeout_s or self.run.config.timeout),
                expect_gil=cell.target.settings.gil == "on" or not target.interpreter.free_threaded,
                environment=target.environment,
                copies=target.copies,
                reads="" if program else str(file),
            )
            handle = self.run.launcher.start(request)
            try:
                handle.ready()
                if program:
                    handle.iteration(WARMUP, 1, min(plan.window_ns, LOAD_NS))
                elif handle.iteration(CHECK, 1, plan.window_ns).wall_ns < SHORT_NS:
                    handle.iteration(WARMUP, 1, plan.window_ns)
                handle.finish()
            finally:
                handle.kill()
            return [BEGUN] if program else read_notes(file)
