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
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from ..declare.plan import one_per_target
from ..hookspec import hookimpl
from ..kit.git import Checkout
from ..measure.context import PreparedTarget
from ..measure.launch import CellUnsupported, LaunchFailed, request_here
from ..measure.plan import Allowance, IterationPlan
from ..measure.watch.opened_files import OpenedFiles
from ..model.spec import Cell, Group, Spec
from ..run.run import Run
from ..run.sides import worktrees
from ..runner import reads
from ..runner.protocol import CHECK, WARMUP
from ..store import names

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
_CANNOT: Final = "cannot be followed"


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


Fingerprint = Callable[[str, Place], str]
"""What a side has at a place, for a kind of note: equal texts mean that a reader sees no difference."""


def compare(
    notes: Iterable[Read],
    place_of: Callable[[str], Place | None],
    changed: Fingerprint,
    reference: Fingerprint,
    *,
    watched: bool,
) -> Compared:
    """Whether two sides have the same at all places of `notes`.

    `place_of` returns None for a path that both sides share. `watched` says that the notes have what C code opened.
    """
    notes = list(dict.fromkeys(notes))
    if not any(note.kind == reads.STARTED for note in notes):
        return Compared(0, "what it reads could not be noted")
    bound, suffixes = ({note.text for note in notes if note.kind == kind} for kind in (reads.BOUND, reads.SUFFIX))
    run = {_source_place(place) for note in notes if note.kind == reads.CODE and (place := place_of(note.text))}
    traced = any(note.kind == reads.TRACED for note in notes)
    files, differing = set[Place](), set[Place]()
    for note in notes:
        place = place_of(note.text) if note.kind in _PLACED else None
        if reason := _not_followed(note, place, bound, watched):
            return Compared(len(files), reason)
        kind = reads.FILE if note.kind in _FILES else note.kind
        for each in _compared(note, place, suffixes):
            found = changed(kind, each)
            if found != reference(kind, each):
                # Who asks about a source, or opens it to run it, does not see its text.
                blind = note.kind in (reads.ASKED, reads.CODE) or (note.kind == OPENED and each in run)
                if traced or not blind or changed(reads.CODE, each) != reference(reads.CODE, each):
                    return Compared(len(files), f"{each.path or 'its folder'} differs")
                differing.add(each)
            if kind == reads.FILE and found not in (ABSENT, IS_FOLDER):
                files.add(each)
    return Compared(len(files), "", len(differing))


def _compared(note: Read, place: Place | None, suffixes: Iterable[str]) -> list[Place]:
    """The places that a note is about: of a search all that it may find, of bytecode the source."""
    if place is None or note.kind == reads.WRITTEN:
        return []
    if note.kind != reads.MODULE:
        return [_source_place(place)]
    package = os.path.join(place.path, "__init__")
    files = (f"{path}{suffix}" for path in (place.path, package) for suffix in sorted(suffixes))
    return [place, *(Place(place.base, path) for path in files)]


def _not_followed(note: Read, place: Place | None, bound: set[str], watched: bool) -> str:
    """Why nobody can tell what a process reads after this; empty if that is known."""
    if note.kind == reads.UNKNOWN:
        return f"{note.text} {_CANNOT}"
    if note.kind == reads.CONNECTED and note.text not in bound:
        return f"a connection to {note.text} {_CANNOT}"
    if note.kind == reads.NATIVE and not watched and "/lib-dynload/" not in note.text:
        return f"what {os.path.basename(note.text)} reads {_CANNOT}"
    if note.kind == reads.WRITTEN and place is not None:
        bytecode = _BYTECODE.fullmatch(place.path) or os.path.basename(place.path) == "__pycache__"
        return "" if bytecode else f"it writes {place.path}"
    return ""


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
        """See Fingerprint; a path of this side within a file counts as the same path of the other."""
        if (kind, place) not in self._found:
            looks = {reads.FOLDER: self._listed, reads.NAMES: _names_in, reads.MODULE: _kind_of, reads.CODE: self._code}
            try:
                found = looks.get(kind, self._content)(os.path.join(self.bases[place.base], place.path))
                self._found[kind, place] = found
            except (FileNotFoundError, NotADirectoryError):
                self._found[kind, place] = ABSENT
            except OSError as error:
                self._found[kind, place] = f"error {error.errno}"
        return self._found[kind, place]

    def _code(self, path: str) -> str:
        return self._content(path, run_part if path.endswith(".py") else loaded_part)

    def _content(self, path: str, part: Callable[[bytes], bytes] | None = None) -> str:
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
                digest = hashlib.sha256(self._neutral((part or loaded_part)(content))).hexdigest()
        return f"{link}{digest} {'executable' if status.st_mode & stat.S_IXUSR else ''}"

    def _neutral(self, content: bytes) -> bytes:
        for name, path in self._spelled:
            content = content.replace(os.fsencode(path), name.encode())
        return content

    def _listed(self, path: str) -> str:
        """Names, kinds and sizes: a reader learns all of them without an event. See `_size` for Python sources."""
        with os.scandir(path) as entries:
            seen = sorted(
                (entry.name, entry.is_dir(), _size(entry)) for entry in entries if entry.name not in _NOT_LISTED
            )
        return repr(seen)

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


def _size(entry: os.DirEntry[str]) -> int:
    """The size of a file; 0 for a folder, and for a Python source, whose comments count elsewhere if they do."""
    return 0 if entry.is_dir() or entry.name.endswith(".py") else entry.stat(follow_symlinks=False).st_size


def _names_in(path: str) -> str:
    return repr(sorted(name for name in os.listdir(path) if name not in _NOT_LISTED))


def _kind_of(path: str) -> str:
    """What the import system asks of a path. Raises OSError."""
    return IS_FOLDER if stat.S_ISDIR(os.stat(path).st_mode) else "file"


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

    def compare(self, notes: Sequence[Read], watched: bool = True) -> Compared:
        """See `sides.compare`."""
        changed, reference = self.changed, self.reference
        return compare(notes, changed.place_of, changed.fingerprint, reference.fingerprint, watched=watched)


@hookimpl
def ftgate_begin(run: Run) -> None:
    """What is read of both sides is kept for the whole run."""
    run.plugins.register(UnchangedCells(run))


class UnchangedCells:
    """Finds the cells of a comparison that need no measurement."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._sides: dict[tuple[str, str], Side] = {}

    @hookimpl
    def ftgate_settle(self, group: Group, cells: Sequence[Cell], pair: worktrees.Pair) -> Checked:
        """Those of a test."""
        return self.check(group, cells, pair)

    def check(self, group: Group, cells: Sequence[Cell], pair: worktrees.Pair) -> Checked:
        """All `cells` of a group that run Python in our runner, or none: they are compared with each other.

        Each program by itself.
        """
        if not self._may_be_unchanged(cells, pair):
            return Checked()
        same, why = dict[str, str](), ""
        try:
            # What can be compared before a launch is: also, a build for one target may leave files that another lists.
            sides = {cell.target.spec: self._prepared(group, cell, pair) for cell in one_per_target(cells)}
            spec = self.run.references.relocated(group.spec, pair.changed)
            for each in sides.values():
                if reason := each.differs or each.compare([Read(reads.CODE, spec.source.path), BEGUN]).reason:
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
                    same[cell.nodeid] = _same(finding, pair.reference)
                elif cell.executor.program is None:
                    return Checked(why=finding.reason)
                else:
                    why = why or f"{cell.label}: {finding.reason}"
        except Exception:  # noqa: BLE001
            return Checked()
        return Checked(same, why)

    def _may_be_unchanged(self, cells: Sequence[Cell], pair: worktrees.Pair) -> bool:
        """Two versions of a distribution are a change."""
        return (
            self.run.config.unchanged == "skip"
            and bool(pair.reference.commit)
            and not any(worktrees.lacks(pair.reference, names.split_nodeid(cell.nodeid)[0]) for cell in cells)
        )

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
            heard = _heard(watch)
        if program:
            heard += [Read(reads.NAMES, os.path.dirname(note.text)) for note in heard if note.kind == OPENED]
        return sides.compare([*notes, *heard], watched=watch is not None)

    def _notes(self, cell: Cell, spec: Spec, target: PreparedTarget) -> list[Read]:
        """The check launch: it starts, imports the workload, runs an iteration or two, and ends."""
        self.run.listener.advance(cell.label, "checking what is read by", 0, 0, None)
        plan = IterationPlan(spec, Allowance(timeout_s=self.run.config.timeout))
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


def _heard(watch: OpenedFiles | None) -> list[Read]:
    """What the kernel says of the same launch."""
    if watch is None:
        return []
    events = watch.events()
    if events is None:
        return [Read(reads.UNKNOWN, "a launch that opens so many files")]
    return [Read(reads.WRITTEN if event.changed else OPENED, event.path) for event in events]


def _same(finding: Compared, reference: Checkout) -> str:
    files, text = finding.files, finding.but_for_text
    what = "file that it reads is" if files == 1 else f"{files} files that it reads are"
    but = f", {f'{text} of them ' if files > text else ''}but for comments, docstrings or layout" if text else ""
    return f"the {what} the same at {reference.label}{but}"
