"""Cells that need no measurement: notes compared on two sides, what a side has, and the check that comes first."""

from __future__ import annotations

import contextlib
import os
import re
import struct
import sys
from pathlib import Path

import msgspec
import pytest
from fake_launcher import FakeLauncher, failed
from scripted import TWO, Project

from pytest_ftgate.features.unchanged.cells import UnchangedCells
from pytest_ftgate.features.unchanged.notes import OPENED, Compared, Read, compared, read_notes
from pytest_ftgate.features.unchanged.opened_files import FileEvent, OpenedFiles
from pytest_ftgate.features.unchanged.sides import Place, SideFiles, loaded_part
from pytest_ftgate.measure.launch import Request
from pytest_ftgate.model.spec import Executor, Program
from pytest_ftgate.run.trial import Settled
from pytest_ftgate.runner import reads

BEGUN = Read(reads.STARTED, "/python")


# -- the comparison ------------------------------------------------------------------------------------------------


@pytest.fixture
def sides(tmp_path: Path) -> tuple[SideFiles, SideFiles]:
    """Two sides with empty folders."""
    made = []
    for name in ("new", "old"):
        top, environment = tmp_path / f"top-{name}", tmp_path / f"env-{name}"
        top.mkdir()
        (environment / "lib/python3.14/site-packages").mkdir(parents=True)
        made.append(SideFiles(top, environment))
    return made[0], made[1]


def write(side: SideFiles, name: str, content: str, base: str = "top") -> Path:
    path = Path(side.bases[base], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def finding(sides: tuple[SideFiles, SideFiles], *notes: Read) -> Compared:
    """`{}` in a note is the top of the changed side, which made them."""
    placed = (Read(note.kind, note.text.replace("{}", sides[0].bases["top"])) for note in notes)
    return compared([BEGUN, *placed], *sides)


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        (Read(reads.FILE, "{}/x.txt"), "x.txt differs"),
        (Read(OPENED, "{}/x.txt"), "x.txt differs"),
        (Read(reads.ASKED, "{}/x.txt"), "x.txt differs"),
        (Read(reads.ASKED, "{}/gone.py"), "gone.py differs"),
        (Read(reads.FOLDER, "{}"), "its folder differs"),
        (Read(reads.NAMES, "{}"), "its folder differs"),
        (Read(reads.MODULE, "{}/gone.py"), "gone.py differs"),
        (Read(reads.RAN, "{}/x.txt:<module>"), "x.txt differs"),
        (Read(reads.RAN, "{}/gone.py:f"), "f() in gone.py differs"),
        (Read(reads.WRITTEN, "{}/same.txt"), "it writes same.txt"),
        (Read(reads.WRITTEN, "{}/deep/__pycache__/a.nbi"), "it writes deep/__pycache__/a.nbi"),
        (Read(reads.UNKNOWN, "the program git"), "the program git cannot be followed"),
        (Read(reads.CONNECTED, "/run/db"), "a connection to /run/db cannot be followed"),
    ],
)
def test_each_kind_of_note_may_be_the_reason(sides: tuple[SideFiles, SideFiles], note: Read, reason: str) -> None:
    for side in sides:
        write(side, "x.txt", f"x = {'old' in side.bases['top']}")
    write(sides[0], "gone.py", "def f(): pass\n")
    assert finding(sides, note).reason == reason


@pytest.mark.parametrize(
    "note",
    [
        Read(reads.FILE, "/usr/lib/x"),
        Read(reads.FILE, "{}/none.txt"),
        Read(reads.RAN, "{}/none.txt:f"),
        Read(reads.ASKED, "{}/x.py"),
        Read(reads.FOLDER, "{}"),
        Read(reads.WRITTEN, "{}/__pycache__"),
        Read(reads.WRITTEN, "{}/a/__pycache__/m.cpython-314.pyc.14"),
        Read(reads.WRITTEN, "/tmp/out.txt"),
    ],
)
def test_what_is_elsewhere_or_the_same_to_its_reader_is_no_reason(
    sides: tuple[SideFiles, SideFiles], note: Read
) -> None:
    for side in sides:
        write(side, "x.py", f"x = {'old' in side.bases['top']}")
    assert finding(sides, note) == Compared("", ran=finding(sides, note).ran)


def test_a_local_socket_that_the_launch_bound_is_its_own(sides: tuple[SideFiles, SideFiles]) -> None:
    assert finding(sides, Read(reads.CONNECTED, "/tmp/s"), Read(reads.BOUND, "/tmp/s")).reason == ""


def called(*names: str) -> list[Read]:
    return [Read(reads.RAN, f"{{}}/mod.py:{name}") for name in ("<module>", *names)]


def test_of_a_source_that_ran_what_was_called_counts(sides: tuple[SideFiles, SideFiles]) -> None:
    for side, text in zip(sides, ("def f(): return 1\ndef g(): pass\n", "def f(): return 2\n"), strict=True):
        write(side, "mod.py", text)
    assert finding(sides, *called("f")).reason == "f() in mod.py differs"
    assert finding(sides, *called("f", "g")).reason == "f() in mod.py and 1 more differ"
    opened = Read(OPENED, "{}/mod.py")  # to be run, as it was
    found = finding(sides, *called(), opened)
    assert (found.reason, found.sources, found.uncalled) == ("", 1, frozenset(("mod.py: f()", "mod.py: g()")))
    assert found.ran == {(Place("top", "mod.py"), "<module>")}


def test_who_reads_the_text_of_a_source_sees_a_comment(sides: tuple[SideFiles, SideFiles]) -> None:
    for side, text in zip(sides, ("x = 1\n", "x = 1  # one\n"), strict=True):
        write(side, "mod.py", text)
    assert finding(sides, *called()) == Compared("", 1, frozenset(), frozenset({(Place("top", "mod.py"), "<module>")}))
    assert finding(sides, *called(), Read(reads.FILE, "{}/mod.py")).reason == "mod.py differs"


def test_a_path_of_the_side_itself_in_a_source_is_the_same_in_both(sides: tuple[SideFiles, SideFiles]) -> None:
    for side in sides:
        write(side, "mod.py", f"x = '{side.bases['top']}/x'{' # old' if side is sides[1] else ''}\n")
    assert finding(sides, *called()).reason == ""


def test_without_any_note_of_a_start_nothing_is_known(sides: tuple[SideFiles, SideFiles]) -> None:
    assert compared([Read(reads.FILE, "/top/a")], *sides).reason == "its calls could not be recorded"


def test_notes_are_read_whatever_a_path_holds(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    odd = "/a b\n\\c'\udcff\u00e9"
    file.write_text(f"{reads.FILE} {odd!a}\n{reads.STARTED} {'/p'!a}\n{reads.FILE} '/cut", encoding="ascii")
    assert read_notes(file) == [
        Read(reads.FILE, odd),
        Read(reads.STARTED, "/p"),
        Read(reads.UNKNOWN, "an unreadable note"),
    ]


# -- what a side has -----------------------------------------------------------------------------------------------


def same(sides: tuple[SideFiles, SideFiles], kind: str, path: str) -> bool:
    """Whether both sides have the same there, looked at anew."""
    fresh = [SideFiles(Path(side.bases["top"]), Path(side.bases["environment"])) for side in sides]
    return fresh[0].fingerprint(kind, Place("top", path)) == fresh[1].fingerprint(kind, Place("top", path))


def test_a_file_is_its_content_its_kind_and_whether_it_can_be_executed(sides: tuple[SideFiles, SideFiles]) -> None:
    for side in sides:
        write(side, "a.txt", "x")
    assert same(sides, reads.FILE, "a.txt")
    assert same(sides, reads.FILE, "none.txt")
    write(sides[0], "b.txt", "x")
    assert not same(sides, reads.FILE, "b.txt")
    Path(sides[1].bases["top"], "b.txt").mkdir()
    assert not same(sides, reads.FILE, "b.txt")
    write(sides[0], "a.txt", "y")
    assert not same(sides, reads.FILE, "a.txt")
    write(sides[0], "a.txt", "x").chmod(0o755)
    assert not same(sides, reads.FILE, "a.txt")


def test_a_path_of_the_side_itself_is_the_same_in_both(sides: tuple[SideFiles, SideFiles]) -> None:
    for side in sides:
        write(side, "conf", f"root = {side.bases['top']}/x, python = {side.bases['environment']}/bin")
    assert same(sides, reads.FILE, "conf")
    os.symlink(Path(sides[0].bases["top"], "conf"), Path(sides[0].bases["top"], "link"))
    os.symlink(Path(sides[1].bases["top"], "conf"), Path(sides[1].bases["top"], "link"))
    assert same(sides, reads.FILE, "link")
    write(sides[1], "link2", Path(sides[1].bases["top"], "conf").read_text())
    os.symlink("conf", Path(sides[0].bases["top"], "link2"))
    assert not same(sides, reads.FILE, "link2")


def library(*sections: tuple[bytes, int, int, bytes]) -> bytes:
    """A shared library (64 bits, little-endian) of sections: a name, a kind, flags and the content."""
    sections = (*sections, (b".names", 3, 0, b"\0".join(name for name, *_ in sections) + b"\0.names\0"))
    names, body, table = sections[-1][3], b"", b""
    for name, kind, flags, content in sections:
        at = names.index(name + b"\0")
        table += struct.pack("<IIQQQQIIQQ", at, kind, flags, 0, 64 + len(body), len(content), 0, 0, 1, 0)
        body += content
    head = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(body)) + bytes(10)
    return head + struct.pack("<HHH", 64, len(sections), len(sections) - 1) + body + table


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({}, False),
        ({b".text": b"other code"}, True),
        ({b".debug_line": b"/trees/old/src"}, False),
        ({b".note.gnu.build-id": b"another id"}, False),
    ],
)
def test_a_shared_library_is_what_is_loaded_of_it(
    sides: tuple[SideFiles, SideFiles], changed: dict[bytes, bytes], differs: bool
) -> None:
    contents = {b".text": b"code", b".note.gnu.build-id": b"an id", b".debug_line": b"/trees/new/src"}
    flags = {b".text": 2, b".note.gnu.build-id": 2, b".debug_line": 0}
    for side, found in zip(sides, (contents, contents | changed), strict=True):
        path = Path(side.bases["top"], "a.so")
        path.write_bytes(library(*((name, 1, flags[name], content) for name, content in found.items())))
    assert same(sides, reads.FILE, "a.so") is not differs


def test_what_only_begins_like_a_shared_library_is_compared_whole() -> None:
    for content in (b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + bytes(200), b"\x7fELF\x01\x01 and more", b"text"):
        assert loaded_part(content) == content


def test_who_looks_for_names_does_not_see_sizes(sides: tuple[SideFiles, SideFiles]) -> None:
    for side, text in zip(sides, ("one", "three"), strict=True):
        write(side, "data/a.txt", text)
    assert same(sides, reads.NAMES, "data")
    write(sides[1], "data/b.txt", "")
    assert not same(sides, reads.NAMES, "data")


def test_a_folder_is_its_names_kinds_and_sizes_without_bytecode(sides: tuple[SideFiles, SideFiles]) -> None:
    for side in sides:
        write(side, "data/a.txt", "one")
    write(sides[0], "data/__pycache__/a.pyc", "x")
    assert same(sides, reads.FOLDER, "data")
    write(sides[0], "data/a.txt", "two")
    assert same(sides, reads.FOLDER, "data")
    write(sides[0], "data/a.txt", "three")
    assert not same(sides, reads.FOLDER, "data")
    write(sides[0], "data/a.txt", "one")
    write(sides[1], "data/b.txt", "")
    assert not same(sides, reads.FOLDER, "data")
    write(sides[0], "more/a.py", "")
    write(sides[1], "more/a.py", "# a comment\n")
    assert same(sides, reads.FOLDER, "more")


SEARCHED = (Read(reads.SUFFIX, ".py"), Read(reads.SUFFIX, ".cpython-314-x.so"))


@pytest.mark.parametrize(
    ("added", "differs"),
    [
        ("mod.py", "mod.py"),
        ("mod.cpython-314-x.so", "mod.cpython-314-x.so"),
        ("mod/x.py", "mod"),
        ("mod.cpython-314t-x.so", ""),
        ("mod.c", ""),
        ("other.py", ""),
        ("mode.py", ""),
    ],
)
def test_a_search_sees_only_what_may_be_that_module(
    sides: tuple[SideFiles, SideFiles], added: str, differs: str
) -> None:
    changed, reference = sides
    write(reference, added, "")
    notes = (BEGUN, *SEARCHED, Read(reads.MODULE, f"{changed.bases['top']}/mod"))
    found = compared(notes, changed, reference)
    assert found.reason == (f"{differs} differs" if differs else "")


def test_a_folder_that_becomes_a_package_is_found_by_a_search(sides: tuple[SideFiles, SideFiles]) -> None:
    changed, reference = sides
    for side in sides:
        write(side, "mod/x.py", "")
    write(reference, "mod/__init__.py", "")
    notes = (BEGUN, *SEARCHED, Read(reads.MODULE, f"{changed.bases['top']}/mod"))
    found = compared(notes, changed, reference)
    assert found.reason == "mod/__init__.py differs"


def test_a_place_is_found_through_links_and_outside_there_is_none(
    sides: tuple[SideFiles, SideFiles], tmp_path: Path
) -> None:
    side = sides[0]
    os.symlink(side.bases["top"], tmp_path / "alias")
    assert side.place_of(f"{side.bases['top']}/a/b") == Place("top", "a/b")
    assert side.place_of(str(tmp_path / "alias" / "a")) == Place("top", "a")
    assert side.place_of(f"{side.bases['environment']}/lib") == Place("environment", "lib")
    assert side.place_of(f"{side.bases['top']}-more/a") is None
    assert side.place_of("/usr/lib/x") is None


def install(side: SideFiles, name: str, version: str, *, record: str = "mod.py,sha256=1,1", url: str = "") -> None:
    info = f"lib/python3.14/site-packages/{name}-{version}.dist-info"
    write(side, f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "environment")
    write(side, f"{info}/RECORD", f"{record}\n{name}.dist-info/RECORD,,\n../../../bin/x,sha256={side}\n", "environment")
    if url:
        write(side, f"{info}/direct_url.json", f'{{"url": "{url}"}}', "environment")


def test_two_environments_differ_by_distributions_and_by_what_runs_at_the_start(
    sides: tuple[SideFiles, SideFiles],
) -> None:
    def differing() -> str:
        fresh = [SideFiles(Path(side.bases["top"]), Path(side.bases["environment"])) for side in sides]
        return " ".join(fresh[0].differing_packages(fresh[1]))

    for side in sides:
        install(side, "dep", "1.0")
        install(side, "mine", "0.1" if side is sides[0] else "0.2", url=f"file://{side.bases['top']}")
        write(side, "lib/python3.14/site-packages/mine.pth", side.bases["top"], "environment")
    assert differing() == ""
    write(sides[0], "lib/python3.14/site-packages/mine.pth", f"{sides[0].bases['top']}/src", "environment")
    assert differing() == "mine.pth"
    write(sides[1], "lib/python3.14/site-packages/mine.pth", f"{sides[1].bases['top']}/src", "environment")
    write(sides[0], "lib/python3.14/site-packages/mine.start", "mine:begin\n", "environment")
    assert differing() == "mine.start"
    write(sides[1], "lib/python3.14/site-packages/mine.start", "mine:begin\n", "environment")
    install(sides[0], "dep", "1.0", record="mod.py,sha256=2,1")
    assert differing() == "dep"
    install(sides[0], "dep", "1.0")
    install(sides[1], "more", "1.0")
    assert differing() == "more"


# -- the check -----------------------------------------------------------------------------------------------------


class Checks(Project):
    """Two checkouts of one test, both with an environment, and a launcher that notes what it is told."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.launcher = FakeLauncher()
        self.launcher.on_start = self.note
        self.notes = [BEGUN]
        self.notes_of_reference: list[Read] | None = None
        self.sides = self.pair(self.label, self.commit)
        self.group = TWO
        for side in (self.sides.reference, self.sides.changed):
            (side.project / "3.14").mkdir(parents=True)
            for name in ("test_work.py", "helper.py"):
                (side.project / name).write_text("def test_work(worker): pass\n")

    def runs(self, *names: str, reference: bool = False) -> None:
        """Both sides run these, each its own; with `reference` they are what that one runs instead."""
        sides = (self.sides.changed, self.sides.reference)
        new, old = ([BEGUN, *(Read(reads.RAN, f"{side.root}/{name}") for name in names)] for side in sides)
        self.notes, self.notes_of_reference = (self.notes if reference else new), old

    def note(self, request: Request) -> None:
        of_reference = request.python.startswith(self.sides.reference.root)
        notes = self.notes_of_reference if of_reference and self.notes_of_reference is not None else self.notes
        lines = [f"{note.kind} {note.text!a}\n" for note in notes]
        if request.reads:
            Path(request.reads).write_text("".join(lines), encoding="ascii")

    def check(self, unchanged: str = "skip") -> Settled:
        run = self.session(self.launcher, self.group, against="main", unchanged=unchanged)
        run.launcher = self.launcher
        return UnchangedCells(run).check(self.group, self.group.cells, self.sides)


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checks:
    return Checks(tmp_path, monkeypatch)


UNCHANGED = "nothing that it runs or reads differs at main (1eb3b87)"


def test_cells_that_run_and_read_the_same_are_unchanged(checks: Checks) -> None:
    checks.notes.append(Read(reads.FILE, f"{checks.sides.changed.root}/helper.py"))
    assert checks.check() == Settled({cell.nodeid: UNCHANGED for cell in checks.group.cells})


def test_a_source_that_differs_but_not_where_it_ran_means_a_launch_of_the_reference(checks: Checks) -> None:
    (checks.sides.changed.project / "helper.py").write_text("# why\ndef test_work(worker): pass\ndef new(): pass\n")
    checks.runs("helper.py:<module>", "helper.py:test_work")
    assert set(checks.check().same.values()) == {f"{UNCHANGED}: 1 changed function is never called"}
    launched = [(request.cell, request.spec.source.path, request.python) for request in checks.launcher.requests]
    roots = (checks.sides.changed.root, checks.sides.reference.root)
    assert launched == [
        (cell, f"{root}/test_work.py", f"{root}/3.14/bin/python") for cell in checks.group.cells for root in roots
    ]


@pytest.mark.parametrize(
    ("reference_runs", "why"),
    [
        (["helper.py:old"], "old() in helper.py differs"),
        (["test_work.py:test_work"], "test_work in test_work.py runs on one side only"),
    ],
)
def test_what_the_reference_runs_counts_as_well(checks: Checks, reference_runs: list[str], why: str) -> None:
    with (checks.sides.reference.project / "helper.py").open("a") as file:
        file.write("def old(): pass\n")
    checks.runs("helper.py:<module>")
    checks.runs("helper.py:<module>", *reference_runs, reference=True)
    file_name, _, name = reference_runs[0].partition(":")
    assert checks.check() == Settled(why=why, changed={(file_name, name)})


def test_the_changed_side_alone_is_launched_once_a_cell_and_ended(checks: Checks) -> None:
    checks.check()
    requests = checks.launcher.requests
    assert [request.cell for request in requests] == list(checks.group.cells)
    for request in requests:
        assert request.spec.source.path == f"{checks.sides.changed.root}/test_work.py"
        assert request.python == f"{checks.sides.changed.root}/3.14/bin/python"
        assert not request.reference
        assert request.expect_gil
    assert checks.launcher.alive == frozenset()
    assert [event.at.event for event in checks.launcher.of("check", "warmup", "measured")] == ["check", "warmup"] * 2


def test_a_long_iteration_is_run_once(checks: Checks) -> None:
    checks.launcher.wall_ns = lambda _: 2e9
    assert checks.check().same
    assert checks.launcher.of("warmup") == []


def test_one_cell_that_reads_a_change_means_measuring_its_group(checks: Checks) -> None:
    (checks.sides.reference.project / "helper.py").write_text("other")
    begun = []

    def note(request: Request) -> None:
        begun.append(request.cell)
        checks.notes = (
            [BEGUN, Read(reads.FILE, f"{checks.sides.changed.root}/helper.py")] if len(begun) == 2 else [BEGUN]
        )
        checks.note(request)

    checks.launcher.on_start = note
    assert checks.check() == Settled(why="helper.py differs")
    assert checks.launcher.alive == frozenset()


def test_of_a_test_file_what_runs_counts(checks: Checks) -> None:
    (checks.sides.reference.project / "test_work.py").write_text("def test_work(worker): return 2\n")
    assert checks.check().same
    checks.runs("test_work.py:<module>", "test_work.py:test_work")
    changed = {("test_work.py", "test_work")}
    assert checks.check() == Settled(why="test_work() in test_work.py differs", changed=changed)


def test_what_runs_at_the_start_of_an_interpreter_is_always_reached(checks: Checks) -> None:
    changed = SideFiles(checks.sides.changed.project, checks.sides.changed.project / "3.14")
    write(changed, "lib/python3.14/site-packages/a.pth", "x", "environment")
    assert checks.check() == Settled(why="a.pth differs")


@pytest.mark.parametrize(
    ("imported", "why"),
    [
        (("emit.py",), "emit differs"),
        (("emit.py", "typed.py", "same.py"), "emit and 1 more differ"),
        (("same.py",), "colour and 2 more differ, and nothing of it is imported"),
        (("colour-2.dist-info/METADATA",), "colour and 2 more differ, and nothing of it is imported"),
    ],
)
def test_of_distributions_that_differ_one_that_the_cell_imports_is_named(
    checks: Checks, imported: tuple[str, ...], why: str
) -> None:
    """One launch tells it; which functions of it ran and differ is said, too."""
    for number, checkout in enumerate((checks.sides.reference, checks.sides.changed), start=1):
        side = SideFiles(checkout.project, checkout.project / "3.14")
        for name in ("colour", "emit", "typed"):
            install(side, name, str(number), record=f"{name}.py,sha256={number},1")
        install(side, "same", "1", record="same.py,sha256=1,1")
        write(side, "lib/python3.14/site-packages/emit.py", f"def emit(): return {number}\n", "environment")
    folder = checks.sides.changed.project / "3.14/lib/python3.14/site-packages"
    checks.notes += [Read(reads.FILE, f"{folder}/{name}") for name in imported if name != "emit.py"]
    if "emit.py" in imported:
        checks.notes.append(Read(reads.RAN, f"{folder}/emit.py:emit"))
    changed = {("emit.py", "emit")} if "emit.py" in imported else set()
    assert checks.check() == Settled(why=why, changed=changed)
    assert [request.cell for request in checks.launcher.requests] == [checks.group.cells[0]]


def test_another_build_needs_no_launch(checks: Checks) -> None:
    checks.sides = msgspec.structs.replace(
        checks.sides, reference=msgspec.structs.replace(checks.sides.reference, python="3.13")
    )
    assert checks.check() == Settled(why="the interpreter differs")


def test_without_notes_a_cell_is_measured(checks: Checks) -> None:
    checks.notes = []
    assert checks.check() == Settled(why="its calls could not be recorded")


def test_a_check_that_fails_means_measuring_and_leaves_no_launch(checks: Checks) -> None:
    checks.launcher.trouble = lambda at: failed("it broke") if at.event == "check" else None
    assert checks.check() == Settled()
    assert checks.launcher.requests
    assert checks.launcher.alive == frozenset()
    checks.uninstallable = {checks.label}
    assert checks.check() == Settled()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(KeyError("ours"), "a mistake of pytest-ftgate: KeyError: 'ours'"), (OSError("too many"), "OSError: too many")],
)
def test_a_check_that_fails_by_itself_is_said_once(
    checks: Checks, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    """Nothing else would tell: the cells are measured, and nothing is ever unchanged."""

    def mistaken(*_: object) -> str:
        raise error

    monkeypatch.setattr(SideFiles, "differing_packages", mistaken)
    cells = UnchangedCells(checks.session(checks.launcher, checks.group, against="main", unchanged="skip"))
    first, second = (cells.check(checks.group, checks.group.cells, checks.sides) for _ in range(2))
    assert re.fullmatch(
        rf"whether it changed could not be checked: {re.escape(reason)}, in test_unchanged\.py:\d+", first.why
    )
    assert second == Settled()


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize("told", ["opened", "changed", "lost"])
def test_what_the_kernel_tells_counts_too(checks: Checks, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (checks.sides.reference.project / "helper.py").write_text("other")
    event = FileEvent(f"{checks.sides.changed.root}/helper.py", changed=told == "changed")
    monkeypatch.setattr(OpenedFiles, "events", lambda _: None if told == "lost" else [event])
    assert (
        checks.check().why
        == {
            "opened": "helper.py differs",
            "changed": "it writes helper.py",
            "lost": "a launch that opens so many files cannot be followed",
        }[told]
    )


@pytest.mark.parametrize("case", ["option", "distribution", "new"])
def test_some_cells_are_not_even_checked(checks: Checks, case: str) -> None:
    match case:
        case "distribution":
            reference = msgspec.structs.replace(checks.sides.reference, commit="")
            checks.sides = msgspec.structs.replace(checks.sides, reference=reference)
        case "new":
            reference = msgspec.structs.replace(checks.sides.reference, label="without it")
            checks.sides = msgspec.structs.replace(checks.sides, reference=reference)
    assert checks.check("measure" if case == "option" else "skip") == Settled()
    assert checks.launcher.requests == []


def test_where_the_kernel_does_not_tell_what_is_opened_cells_are_measured(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenedFiles, "watching", lambda _: contextlib.nullcontext())
    assert checks.check() == Settled(why="the system does not tell which files are opened")
    assert checks.launcher.requests == []


def test_programs_are_measured_and_keep_no_other_cell_from_being_unchanged(checks: Checks) -> None:
    executor = Executor(kind="command", program=Program(name="rust", argv=("true",)))
    python, program = checks.group.cells[0], msgspec.structs.replace(checks.group.cells[1], executor=executor)
    checks.group = msgspec.structs.replace(checks.group, cells=(python, program))
    assert checks.check().same.keys() == {python.nodeid}
    checks.launcher.requests.clear()
    checks.group = msgspec.structs.replace(checks.group, cells=(program,))
    assert checks.check() == Settled()
    assert checks.launcher.requests == []
