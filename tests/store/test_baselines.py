"""Stored measurements: the file format, the folder, the lock, and what an update decides."""

from __future__ import annotations

import errno
import os
import random
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import report_by_hand
from project import git
from stored_values import (
    COMMIT,
    MACHINE,
    OTHER_MACHINE,
    PYTHON,
    RECORDED,
    TEST,
    change,
    change_of,
    entries_of,
    launch,
    make_row,
    make_sample,
    ratios_of,
)
from values import read

from golden import check_golden
from pytest_ftgate.judge import values as values_module
from pytest_ftgate.judge.values import Values, stored_values
from pytest_ftgate.kit.text import split_nodeid
from pytest_ftgate.model.report import Machine
from pytest_ftgate.model.sample import Launch, LockSite, LockWaits, Sample, Timer, WorkloadError
from pytest_ftgate.model.verdict import Decision, MetricVerdict, Verdict
from pytest_ftgate.store import folder, names, recording, schema
from pytest_ftgate.store import update as unused_module
from pytest_ftgate.store.folder import SPENT_KEPT, Store
from pytest_ftgate.store.names import matches
from pytest_ftgate.store.recording import Edit
from pytest_ftgate.store.schema import RECORDINGS_KEPT, BaselineError, StoredCell, TestBaseline
from pytest_ftgate.store.update import apply_updates, differences, prunable, prune, source_is_gone, update_plan
from pytest_ftgate.targets.describe import build_key

SOURCE = str(Path(folder.__file__).parents[2])


def probed_sample(label: str = "3.14t-threads-w2") -> Sample:
    """A sample of every kind of launch, and what the workload counted."""
    made = make_sample(label)
    waits = tuple(
        LockSite(file="/opt/words.py", line=9, kind=kind, waits_for=what, contended=1, total_ns=ns, max_ns=ns)  # type: ignore[arg-type]
        for kind, what, ns in (("Lock", "lock", 5000), ("Queue", "queue", 3000))
    )
    locks = LockWaits(work_ns=20_000, ops=40, sites=waits)
    timed = tuple(
        msgspec.structs.replace(each, counters={"inserts": 3.0}, timers={"ack": Timer(count=2, total_ns=9, max_ns=5)})
        for each in made.launches
    )
    made = made.with_launches("time", timed)
    return made.with_launches("locks", [Launch(order=6, hash_seed=2, started_at=RECORDED, locks=locks)])


SINGLE = tuple(launch(order, 3000, 3300, loops=3) for order in (0, 2))
"""Of the one-worker cell beside it."""


def entry_of(changed: Edit) -> StoredCell:
    assert changed.entry is not None
    return changed.entry


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "baselines")


def files(store: Store, test: str = TEST) -> list[Path]:
    return sorted(store.path(test).iterdir())


def loaded(store: Store, test: str = TEST) -> TestBaseline:
    stored = store.load(test)
    assert stored is not None
    return stored


def contents(store: Store) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in files(store)}


# ---- node ids and file names


@pytest.mark.parametrize(
    ("nodeid", "test", "label"),
    [
        ("a/test_x.py::test_y[3.14-threads-w8]", "a/test_x.py::test_y", "3.14-threads-w8"),
        (
            "test_x.py::T::test_y[3.14t[gil=on]-serial-w1-a::b[0]]",
            "test_x.py::T::test_y",
            "3.14t[gil=on]-serial-w1-a::b[0]",
        ),
        ("odd[1]/test_x.py::test_y[3.14-serial-w1]", "odd[1]/test_x.py::test_y", "3.14-serial-w1"),
    ],
)
def test_a_node_id_splits_and_joins(nodeid: str, test: str, label: str) -> None:
    assert split_nodeid(nodeid) == (test, label)
    assert names.join_nodeid(test, label) == nodeid


def test_the_name_of_a_file_is_readable_and_of_one_run() -> None:
    assert names.folder_name(TEST) == "tests/test_words.py/TestA.test_count"
    name = names.file_name(RECORDED, COMMIT, 11, MACHINE.fingerprint)
    assert re.fullmatch(r"20260102T030405-[0-9a-f]{8}\.json", name)
    others = [(day(7), COMMIT, 11), (RECORDED, "", 11), (RECORDED, COMMIT, 12)]
    assert name not in [names.file_name(*other, MACHINE.fingerprint) for other in others]


def test_no_two_tests_share_a_file_and_none_leaves_the_folder(store: Store) -> None:
    long = "x" * 300
    tests = [
        "a.py::A::b", "a.py::A.b", "a.py::A%2Eb", "a.py::b c", "a.py::b%20c", "a.py::é", "a.py::~", "a.py::",
        "/a.py::b", "../a.py::b", "..%2Fa.py::b", "a.py::../../b", "./a.py::b", "a.py::b\\c", "a.py::b:c",
        f"a.py::{long}", f"a.py::{long}y", f"{long}/a.py::b", "a.py::\udcff", "a.py::con*?", "a.py::b\n",
    ]  # fmt: skip
    paths = [store.path(test) for test in tests]
    assert len(set(paths)) == len(tests)
    for path in paths:
        inside = path.relative_to(store.root)
        assert ".." not in inside.parts
        assert all(len(part.encode()) < 200 and part.isascii() for part in inside.parts)


def test_an_odd_name_is_stored_and_found(store: Store) -> None:
    test = "é/\udcff/test_x.py::" + "y" * 300
    store.save(test, [change()])
    assert [baseline.test for baseline in store.baselines()] == [test]
    assert store.load(test) is not None


# ---- the format


def test_the_file_format_is_the_golden_one(store: Store) -> None:
    store.save(TEST, [change("3.14t-threads-w4"), change()])
    (path,) = files(store)
    text = path.read_text(encoding="utf-8")
    check_golden("baseline.json", text)
    assert schema.encode(schema.decode(text.encode(), "golden")) == text


def test_a_cell_takes_one_line(store: Store) -> None:
    store.save(TEST, [change("3.14t-threads-w4"), change()])
    (path,) = files(store)
    before = path.read_text(encoding="utf-8").splitlines()
    store.save(TEST, [change(scale=2)])
    after = path.read_text(encoding="utf-8").splitlines()
    assert len(before) == len(after)
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1


def test_a_cell_named_like_a_field_is_no_obstacle(store: Store) -> None:
    labels = ["cells", "interpreters", "machine", '[odd "label"]', "é"]
    store.save(TEST, [change(label) for label in labels])
    stored = loaded(store)
    assert sorted(stored.cells) == sorted(labels)


def test_what_names_a_place_on_the_machine_is_not_stored(store: Store) -> None:
    store.save(TEST, [change_of(probed_sample())])
    (path,) = files(store)
    assert "/opt" not in path.read_text(encoding="utf-8")


def test_a_recording_of_twelve_launches_takes_about_2_kb_a_cell(store: Store) -> None:
    made = probed_sample()

    def twelve(one: Launch) -> tuple[Launch, ...]:
        return tuple(msgspec.structs.replace(one, order=order) for order in range(12))

    many = made
    for role in ("time", "control", "locks", "memory"):
        many = many.with_launches(role, twelve(made.of(role)[0]))
    store.save(TEST, [change_of(read(many, one_worker=twelve(SINGLE[0])))])
    (path,) = files(store)
    line = next(line for line in path.read_text(encoding="utf-8").splitlines() if '"values"' in line)
    assert len(line) < 2500


# ---- what is stored


def stored_of(sample: Sample | Values, **fields: Any) -> StoredCell:
    return entry_of(change_of(sample, **fields))


@pytest.mark.parametrize("body", ["worker", "executor"])
@pytest.mark.parametrize("windows", [False, True])
def test_stored_values_are_those_of_the_run(store: Store, body: str, windows: bool) -> None:
    made = probed_sample()
    launches, single = made.launches, SINGLE
    if windows:
        launches, single = (
            tuple(msgspec.structs.replace(each, window_ns=5) for each in side) for side in (launches, single)
        )
    cell = msgspec.structs.replace(made.cell, body=body)
    made = made.with_launches("time", launches)
    of = read(msgspec.structs.replace(made, cell=cell, duration_s=1.0 if windows else None), one_worker=single)
    store.save(TEST, [change_of(of)])
    stored = store.lookup(made.cell.nodeid, MACHINE.fingerprint, build_key(PYTHON))
    assert stored == stored_of(of)
    (recorded,) = stored.recordings
    found = {name: values for name, values in stored_values(of).items() if values}
    assert set(recorded.values) == set(found)
    assert {"wall", "wall/control", "cold", "start", "uss", "rss", "lock_wait", "scaling", "cores"} < set(found)
    assert {"timer.ack", "counter.inserts"} < set(found)
    for name, values in found.items():
        assert recorded.by_order(name) == pytest.approx(values, rel=1e-5)
    assert recorded.by_order("peak.none") == {}
    assert (recorded.windows, recorded.loops, recorded.body) == (windows, 2, body)


def test_values_are_of_their_rounds(store: Store) -> None:
    made = make_sample()
    made = made.with_launches("time", made.launches[::-1])
    (recorded,) = stored_of(made).recordings
    assert recorded.orders == (0, 2, 4, 5)
    assert recorded.values["wall"] == (2050.0, 2050.0, None, None)
    assert recorded.values["uss"] == (None, None, 4_002_050.0, 4_000_000.0)  # of six digits


def test_several_recordings_are_read_in_the_order_of_time(store: Store) -> None:
    days = [f"2026-01-{day:02}T03:04:05+00:00" for day in (9, 2, 30)]
    for day in days:
        store.save(TEST, [change(recorded_at=day, append=True)])
    found = store.lookup(f"{TEST}[3.14t-threads-w2]", MACHINE.fingerprint, build_key(PYTHON))
    assert found is not None
    assert [each.recorded_at for each in found.recordings] == sorted(days)
    assert {(each.commit, each.seed) for each in found.recordings} == {(COMMIT, 11)}
    assert len(ratios_of(found)) == 6
    assert len(files(store)) == 3


def test_a_run_that_is_recorded_again_is_one_recording(store: Store) -> None:
    store.save(TEST, [change()])
    store.save(TEST, [change("other", append=True), change(append=True)])
    assert len(files(store)) == 1
    stored = loaded(store)
    assert [len(entry.recordings) for builds in stored.cells.values() for entry in builds.values()] == [1, 1]


@pytest.mark.parametrize("broken", [{"error": WorkloadError(reason="it hung")}, {"all_launches": ()}])
def test_a_sample_without_figures_is_no_baseline(store: Store, broken: dict[str, object]) -> None:
    row = make_row(msgspec.structs.replace(make_sample(), **broken))
    assert values_module.entries_of(report_by_hand.report(), [row]) == {}
    assert [each.action for each in update_plan(["all"], [row], {}, store, fingerprint="x")] == ["skip"]


def test_a_mismatch_says_what_changed() -> None:
    entry = entry_of(change())
    assert recording.mismatch(entry, make_sample()) == ""
    assert '(reuse was fresh, is pool): write reuse="fresh" in the test, or record it again' in recording.mismatch(
        entry, make_sample(reuse="pool")
    )
    windows = msgspec.structs.replace(make_sample(), duration_s=5.0)
    assert "body was iterations=, is duration=" in recording.mismatch(entry, windows)
    asked = stored_of(msgspec.structs.replace(make_sample(), measures="0123"))
    said = "another command line, load, window, requirement, environment or pinning"
    assert said in recording.mismatch(asked, make_sample())
    # A plain workload that gets an environment is another measurement too.
    assert said in recording.mismatch(entry, msgspec.structs.replace(make_sample(), measures="0123"))
    assert recording.mismatch(asked, msgspec.structs.replace(make_sample(), measures="0123")) == ""


# ---- the folder


def test_nothing_is_there_at_first_and_looking_creates_nothing(store: Store) -> None:
    assert store.load(TEST) is None
    assert store.lookup(f"{TEST}[x]", MACHINE.fingerprint, "build") is None
    assert list(store.baselines()) == []
    assert list(store.root.parent.iterdir()) == []


def test_an_update_leaves_other_cells_machines_and_builds_as_they_were(store: Store) -> None:
    store.save(TEST, [change("other"), change(), change(machine=OTHER_MACHINE)])
    before = loaded(store)
    store.save(TEST, [change(scale=3)])
    after = loaded(store)
    assert after.cells["other"] == before.cells["other"]
    assert set(after.machines) == {MACHINE.fingerprint, OTHER_MACHINE.fingerprint}
    key = names.entry_key(OTHER_MACHINE.fingerprint, build_key(PYTHON))
    assert after.cells["3.14t-threads-w2"][key] == before.cells["3.14t-threads-w2"][key]
    assert after.cells["3.14t-threads-w2"] != before.cells["3.14t-threads-w2"]


def day(number: int) -> str:
    return f"2026-{1 + number // 28:02}-{1 + number % 28:02}T03:04:05+00:00"


def days_of(store: Store, label: str = "3.14t-threads-w2") -> list[str]:
    """When the recordings that count were made."""
    stored = loaded(store)
    (entry,) = stored.cells[label].values()
    return [each.recorded_at for each in entry.recordings]


def test_what_is_recorded_anew_takes_the_place_of_the_old(store: Store) -> None:
    for number in range(3):
        store.save(
            TEST, [change(recorded_at=day(number), append=True), change("other", recorded_at=day(number), append=True)]
        )
    before = contents(store)
    store.save(TEST, [change(recorded_at=day(3)), change("other", recorded_at=day(3), append=True)])
    assert days_of(store) == [day(3)]
    assert days_of(store, "other") == [day(number) for number in range(4)]
    assert before.items() < contents(store).items()  # no file that holds another cell was touched
    store.save(TEST, [change(recorded_at=day(4), append=True)])
    assert days_of(store) == [day(3), day(4)]


def test_the_newest_recordings_count_and_the_others_are_removed_together(store: Store) -> None:
    most = RECORDINGS_KEPT + SPENT_KEPT
    for number in range(most):
        store.save(TEST, [change(recorded_at=day(number), append=True)])
        assert days_of(store) == [day(each) for each in range(number + 1)][-RECORDINGS_KEPT:]
    assert len(files(store)) == most
    store.save(TEST, [change(recorded_at=day(most), append=True)])
    assert len(files(store)) == RECORDINGS_KEPT
    assert days_of(store)[-1] == day(most)


def test_recordings_of_something_else_do_not_count(store: Store) -> None:
    """As after the merge of a branch that still measured it in the old way."""
    for number, reuse in enumerate(("fresh", "pool", "pool")):
        sample = make_sample(reuse=reuse)  # type: ignore[arg-type]
        store.save(TEST, [change_of(sample, recorded_at=day(number), append=True)])
    assert days_of(store) == [day(1), day(2)]


MOST = RECORDINGS_KEPT + SPENT_KEPT


@pytest.mark.parametrize("before", [0, 1, MOST - 2, MOST - 1])
def test_recordings_of_two_branches_merge(store: Store, before: int) -> None:
    """Also where one of them removes what does not count any more."""
    root, rng = store.root.parent, random.Random(before)
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "empty")

    def recorded(label: str, number: int) -> Edit:
        made = make_sample(label)
        timed = tuple(launch(order, *(rng.randrange(10**6, 10**7) for _ in range(3))) for order in range(4))
        made = made.with_launches("time", timed).with_launches("control", timed)
        return change_of(made, recorded_at=day(number), append=True)

    def save(number: int) -> None:
        store.save(TEST, [recorded(label, number) for label in ("3.14t-threads-w2", "other")])

    def record(number: int, branch: str) -> None:
        git(root, "checkout", "-q", branch)
        save(number)
        git(root, "add", "-A", "baselines")
        git(root, "commit", "-q", "-m", f"recorded {number}")

    for number in range(before):
        save(number)
    git(root, "add", "-A", ".")
    git(root, "commit", "-q", "--allow-empty", "-m", "recorded before")
    git(root, "branch", "topic")
    record(61, "main")
    record(60, "topic")
    record(62, "topic")
    git(root, "merge", "-q", "main")
    every = [day(number) for number in (*range(before), 60, 61, 62)]
    assert days_of(store) == days_of(store, "other") == every[-RECORDINGS_KEPT:]
    record(63, "topic")
    assert days_of(store)[-1] == day(63)


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
@pytest.mark.parametrize("kind", ["device", "pipe", "large"])
def test_what_is_no_baseline_is_named_and_not_read(store: Store, kind: str) -> None:
    """A commit may hold a link to a device, and a file of zeros that git stores in a few bytes."""
    store.save(TEST, [change()])
    path = store.path(TEST) / "20260102T030405-00000000.json"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(folder.FILE_BYTES + 1)
    why = "it is larger than 64.0 MiB" if kind == "large" else "it is not a regular file"
    for reading in (lambda: store.load(TEST), lambda: list(store.baselines()), lambda: store.save(TEST, [change()])):
        with pytest.raises(BaselineError, match=f"{path.name}: cannot be read: {why}; restore it from version control"):
            reading()


def test_the_last_cell_takes_its_file_and_folders_along(store: Store) -> None:
    store.save(TEST, [change()])
    store.save(TEST, [msgspec.structs.replace(change(), entry=None, machine=None)])
    assert store.root.is_dir()
    assert list(store.root.iterdir()) == []


def test_the_lock_stands_outside_the_folder_and_is_ignored_by_git(store: Store) -> None:
    store.save(TEST, [change()])
    assert [path.name for path in store.root.rglob("*") if path.is_file()] == [files(store)[0].name]
    assert (store.root.parent / ".ftgate" / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_a_symlinked_file_is_followed(store: Store, tmp_path: Path) -> None:
    store.save(TEST, [change()])
    portable = tmp_path / "elsewhere.json"
    (path,) = files(store)
    path.rename(portable)
    path.symlink_to(portable)
    store.save(TEST, [change("more")])
    assert path.is_symlink()
    assert b"more" in portable.read_bytes()


def test_two_tests_that_a_file_system_confuses_do_not_overwrite_each_other(store: Store) -> None:
    store.save(TEST, [change()])
    other = TEST.replace("test_count", "test_Count")
    store.path(TEST).rename(store.path(other))
    (path,) = files(store, other)
    content = path.read_bytes()
    with pytest.raises(BaselineError, match=r"holds .*test_count and stands where .*test_Count belongs"):
        store.save(other, [change()])
    assert path.read_bytes() == content
    with pytest.raises(BaselineError, match="belongs in"):
        list(store.baselines())


def test_a_copy_of_a_recording_is_not_another_one(store: Store) -> None:
    store.save(TEST, [change()])
    (path,) = files(store)
    path.with_name("copy.json").write_bytes(path.read_bytes())
    for reading in (lambda: store.load(TEST), lambda: list(store.baselines())):
        with pytest.raises(BaselineError, match=rf"copy\.json: .* belongs in {path}; move or delete the file"):
            reading()


NAMED = "[project]\nname = 'x'\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "baselines"),
        ({"pyproject.toml": NAMED}, "tests/baselines"),
        ({"pyproject.toml": f"{NAMED}[tool.setuptools]\npackages = ['x']\n"}, "baselines"),
        ({"pyproject.toml": NAMED, "setup.cfg": "[options]\npackages = x\n"}, "baselines"),
        ({"pyproject.toml": NAMED, "setup.cfg": "[options]\npython_requires = >=3.9\n"}, "tests/baselines"),
        ({"pyproject.toml": NAMED, "setup.py": "setup(packages=['x'])"}, "baselines"),
        ({"pyproject.toml": NAMED, "src/x/__init__.py": ""}, "baselines"),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'hatchling.build'\n"}, "baselines"),
        ({"pyproject.toml": "[tool.ruff]\n", "setup.cfg": "nonsense"}, "baselines"),
    ],
)
def test_setuptools_does_not_take_them_for_a_package(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert folder.default_folder(tmp_path) == expected


# ---- what must never be trusted nor lost


Damage = Callable[[str], str]


def swap(old: str, new: str) -> Damage:
    """Puts one text in the place of another's first occurrence."""

    def damage(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return damage


def whole(text: str) -> Damage:
    return lambda _: text


WALLS = '"wall":[2050,2050,null,null]'
CELL = r'\$\.cells\["3\.14t-threads-w2"\]'
WALL = CELL + r"\.values\.wall"
NO_CELLS = '{"schema": 4, "statistic": 3, "test": "t"}'
BROKEN: dict[str, tuple[Damage, str]] = {
    "empty": (whole(""), r"line 1, column 1: the file is cut off"),
    "truncated": (lambda text: text[: len(text) // 2].rstrip(" ,"), r"line \d+, column \d+: .*; restore"),
    "no last brace": (lambda text: text[:-3], r"line \d+, column \d+: the file is cut off"),
    "conflict": (
        swap('    "', '<<<<<<< HEAD\n    "'),
        r"line \d+, column 1: a merge conflict is not resolved .*git checkout --ours",
    ),
    "not json": (swap('"cells": {', '"cells": ('), r"line 2, column 12: is not JSON"),
    "a list": (whole("[]"), r"\$\.schema: a version number is missing"),
    "newer": (swap('"schema": 4', '"schema": 5'), r"\$\.schema: version 5 is newer.*upgrade"),
    "older": (swap('"schema": 4', '"schema": 0'), r"\$\.schema: version 0 is older.*record it again"),
    "newer statistic": (swap('"statistic": 3', '"statistic": 7'), r"\$\.statistic: version 7 is newer"),
    "older statistic": (swap('"statistic": 3', '"statistic": 1'), r"\$\.statistic: version 1 is older"),
    "true": (swap('"schema": 4', '"schema": true'), r"\$\.schema: a version number"),
    "nan": (swap(WALLS, '"wall":[2050,NaN,null,null]'), r"\$: is not a baseline: NaN is not a number"),
    "infinity": (swap(WALLS, '"wall":[-Infinity,2050,null,null]'), r"\$: is not a baseline: -Infinity is not"),
    "too large": (swap(WALLS, '"wall":[1e999,2050,null,null]'), CELL + r"\.values\[...\]\[0\]: Expected `float`"),
    "endless": (swap(WALLS, f'"wall":[{"9" * 5000}]'), r"\$: is not a baseline"),
    "deep": (swap('"cells": {', '"cells": ' + "[" * 100_000), r"\$: is not a baseline"),
    "text": (swap(WALLS, '"wall":["2050",2050,null,null]'), CELL + r"\.values\[...\]\[0\]: Expected `float.*got `str`"),
    "negative": (swap(WALLS, '"wall":[-2050,2050,null,null]'), CELL + r"\.values\[...\]\[0\]: Expected `.*` >= 0"),
    "no loops": (swap('"loops":2', '"loops":0'), r"loops: Expected `int` >= 1"),
    "unknown": (swap('"executor"', '"exekutor"'), CELL + r": .*exekutor"),
    "missing": (swap(f'"test": "{TEST}"', '"tets": ""'), r"\$: Object contains unknown field `tets`"),
    "twice": (swap('"loops":2', '"loops":2,"loops":1'), r'the key "loops" stands twice'),
    "twice above": (
        swap('"schema": 4', '"schema": 4, "schema": 4'),
        r'\$: is not a baseline: the key "schema" stands twice',
    ),
    "uneven": (swap(WALLS, '"wall":[2050,null,null]'), WALL + r": its length is not that of orders, 4"),
    "a round twice": (swap('"orders":[0,2,4,5]', '"orders":[0,2,4,4]'), r"orders: a round stands twice"),
    "no build": (swap('"build":"', '"build":"x'), CELL + r'\.build: \$\.interpreters has no "x'),
    "not text": (whole('{"test": "\udcff"}'), r"byte 10: is not UTF-8"),
    "no cells": (whole(NO_CELLS), r"\$: Object missing required field"),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_file_is_named_with_its_place_and_never_written_over(store: Store, name: str) -> None:
    damage, place = BROKEN[name]
    store.save(TEST, [change()])
    (path,) = files(store)
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8", errors="surrogateescape")
    content = path.read_bytes()
    for reading in (lambda: store.load(TEST), lambda: list(store.baselines()), lambda: store.save(TEST, [change()])):
        with pytest.raises(BaselineError, match=place) as raised:
            reading()
        assert str(raised.value).startswith(str(path))
    assert contents(store) == {path: content}


def test_a_nan_is_refused_before_anything_is_written(store: Store) -> None:
    store.save(TEST, [change()])
    before = contents(store)
    entry = entry_of(change(recorded_at=day(9)))
    bad = msgspec.structs.replace(entry.recordings[0], values={"wall": (1.0, float("nan"), None, None)})
    broken = msgspec.structs.replace(entry, recordings=(bad,))
    with pytest.raises(BaselineError, match="NaN is not a number"):
        store.save(TEST, [msgspec.structs.replace(change(), entry=broken)])
    assert contents(store) == before


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_files_whole(store: Store, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store.save(TEST, [change()])
    before = contents(store)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    for recorded_at in (RECORDED, day(9)):
        with pytest.raises(BaselineError, match=r"TestA\.test_count/.*\.json: cannot be written: No space left"):
            store.save(TEST, [change(scale=2, recorded_at=recorded_at)])
    monkeypatch.undo()
    assert contents(store) == before


CHILD = """
import sys
from pathlib import Path, PurePosixPath
from typing import Any
import msgspec
from pytest_ftgate.store.recording import Edit
from pytest_ftgate.store.folder import Store
from pytest_ftgate.model.report import Machine

root, prefix, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
template = msgspec.json.decode(sys.stdin.buffer.read(), type=Edit)
for number in range(count):
    Store(root).save("t.py::test_t", [msgspec.structs.replace(template, label=f"{prefix}-{number}")])
"""


def _child(store: Store, prefix: str, count: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(store.root), prefix, str(count)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


def test_runs_that_update_at_once_lose_nothing(store: Store) -> None:
    children = [_child(store, prefix, 15) for prefix in ("a", "b", "c")]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(msgspec.json.encode(change()))
        child.stdin.close()
        child.stdin = None
    for child in children:
        assert child.communicate()[1] == b""
        assert child.returncode == 0
    stored = loaded(store, "t.py::test_t")
    assert len(stored.cells) == 45


def test_a_lock_that_is_not_given_is_an_error_that_says_who_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "LOCK_TIMEOUT_S", 0.05)
    patient = Store(store.root)
    with store._locked(), pytest.raises(BaselineError, match=r"baselines\.lock: another run has held it for 0\.05 s"):
        patient.save(TEST, [change()])
    patient.save(TEST, [change()])


def test_what_a_killed_run_left_is_cleared_by_the_next(store: Store) -> None:
    store.save(TEST, [change()])
    left_over = store.path(TEST) / ".ftgate-0123.tmp"
    left_over.write_text("half", encoding="utf-8")
    store.save(TEST, [change(scale=2)])
    assert not left_over.exists()


# ---- what is no longer there


@pytest.fixture
def project(tmp_path: Path) -> Path:
    source = tmp_path / TEST.partition("::")[0]
    source.parent.mkdir()
    source.write_text("class TestA:\n    def test_count(self): ...\n", encoding="utf-8")
    return tmp_path


def unused_on(machine: Machine, store: Store, collected: Sequence[str], rootdir: Path) -> list[tuple[str, str]]:
    return unused_module.unused(store, collected, fingerprint=machine.fingerprint, rootdir=rootdir)


def test_a_cell_that_is_not_collected_any_more_is_unused(store: Store, project: Path) -> None:
    (project / "other.py").write_text("def test_o(): ...", encoding="utf-8")
    store.save(TEST, [change("3.14-threads-w2"), change("3.14-fork-w2"), change("3.13-threads-w2")])
    store.save("other.py::test_o", [change()])
    collected = [f"{TEST}[3.14-threads-w2]", f"{TEST}[3.14-threads-w4]"]
    # Of the other file and the other target this run knows nothing.
    assert unused_on(MACHINE, store, collected, project) == [(TEST, "3.14-fork-w2")]
    assert unused_on(OTHER_MACHINE, store, collected, project) == []
    store.save(TEST, [change("3.14-fork-w2", machine=OTHER_MACHINE)])
    for machine in (MACHINE, OTHER_MACHINE):
        assert unused_on(machine, store, collected, project) == [(TEST, "3.14-fork-w2")]


@pytest.mark.parametrize(
    ("source", "gone"),
    [
        (None, True),
        ("def test_else(): ...", True),
        ("def test_counts(): ...", True),
        ("def test_count(): ...", False),
        ("from base import *", False),
        ("test_count = make()", False),
    ],
)
def test_a_source_is_gone_only_when_nothing_can_bring_it_in(tmp_path: Path, source: str | None, gone: bool) -> None:
    if source is not None:
        (tmp_path / "test_x.py").write_text(source, encoding="utf-8")
    assert source_is_gone("test_x.py::test_count", tmp_path) is gone


def test_the_tests_of_a_file_that_is_gone_are_unused(store: Store, project: Path) -> None:
    store.save(TEST, [change()])
    store.save("gone.py::test_g", [change()])
    assert unused_on(MACHINE, store, [], project) == [("gone.py::test_g", "3.14t-threads-w2")]


def test_only_what_a_run_called_unused_can_be_pruned(store: Store, project: Path) -> None:
    store.save(TEST, [change("a"), change("b"), change("c")])
    store.save("tests/test_words.py::TestA::test_other", [change()])
    store.save("gone.py::test_g", [change()])
    rows = [make_row(make_sample("a"))]
    unused = [f"{TEST}[a]", f"{TEST}[b]", "tests/test_words.py::TestA::test_other[3.14t-threads-w2]"]
    cells = prunable(store, rows, unused, project)
    assert cells == [("gone.py::test_g", "3.14t-threads-w2"), (TEST, "b")]
    prune(store, cells)
    stored = loaded(store)
    assert sorted(stored.cells) == ["a", "c"]


# ---- updates

OPEN = Verdict(
    decision=Decision.INCONCLUSIVE,
    metrics=(MetricVerdict(metric="wall", decision=Decision.INCONCLUSIVE, launches=3, beyond=True),),
)


def plan_of(store: Store, *modes: str) -> dict[str, tuple[str, str]]:
    """Label (or unknown name) -> action and reason, for a run of every kind of cell."""
    store.save(TEST, [change(label) for label in ("old", "bad", "open", "odd", "meant")])
    rows = [
        msgspec.structs.replace(make_row(make_sample("open", scale=2)), verdict=OPEN),
        make_row(make_sample("new"), Decision.NO_BASELINE),
        make_row(make_sample("old", scale=2)),
        make_row(make_sample("bad", scale=2), Decision.REGRESSED),
        make_row(make_sample("odd", reuse="pool"), Decision.NO_BASELINE),
        make_row(make_sample("meant", scale=2), Decision.ACCEPTED),
        make_row(make_sample("ill", error=WorkloadError(reason="it hung")), Decision.ERROR),
    ]
    updates = update_plan(modes, rows, entries_of(rows), store, fingerprint=MACHINE.fingerprint)
    return {split_nodeid(plan.nodeid)[1] or plan.nodeid: (plan.action, plan.reason) for plan in updates}


THERE, CHANGED, NEW = ("skip", "has a baseline"), ("record", "changed"), ("record", "new")
ODD = ("skip", "the baseline measured something else (reuse was fresh, is pool): ")
ILL = ("skip", "not measured: it hung")


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (("new",), {"new": NEW, "old": THERE, "bad": THERE, "open": THERE, "odd": ODD, "meant": THERE, "ill": ILL}),
        (
            ("all",),
            {
                "new": NEW,
                "old": CHANGED,
                "bad": ("refuse", "regressed"),
                "open": ("refuse", "inconclusive"),
                "odd": CHANGED,
                "ill": ILL,
            },
        ),
        *(
            ((name,), {"new": NEW, "old": THERE, "bad": ("record", "named")})
            for name in (f"{TEST}[bad]", f"{TEST}[b?d]", f"{TEST}[b*", "*[bad]")
        ),
        ((TEST,), dict.fromkeys(("new", "old", "bad", "open", "odd", "meant"), ("record", "named"))),
        (("all", "nowhere.py::test_n"), {"nowhere.py::test_n": ("skip", "no cell of this run has that name")}),
    ],
)
def test_an_update_takes_new_cells_all_that_did_not_regress_or_those_that_are_named(
    store: Store, modes: tuple[str, ...], expected: dict[str, tuple[str, str]]
) -> None:
    plan = plan_of(store, *modes)
    for label, (action, reason) in expected.items():
        assert plan[label][0] == action, label
        assert plan[label][1].startswith(reason), label


def test_an_update_of_all_takes_what_a_commit_accepts_in_place_of_what_is_stored(store: Store) -> None:
    """Its reason was reviewed; and its older recordings are of other code."""
    assert plan_of(store, "all")["meant"] == CHANGED
    store.save(TEST, [change("meant")])
    judged = (
        MetricVerdict(metric="wall", decision=Decision.ACCEPTED),
        MetricVerdict(metric="uss", decision=Decision.PASSED),
    )
    row = make_row(make_sample("meant", scale=2), Decision.ACCEPTED)
    row = msgspec.structs.replace(row, verdict=Verdict(decision=Decision.ACCEPTED, metrics=judged))
    (update,) = update_plan(["all"], [row], entries_of([row]), store, fingerprint=MACHINE.fingerprint)
    assert (update.action, update.append) == ("record", False)


@pytest.mark.parametrize(
    ("decision", "adds"),
    [
        (Decision.IMPROVED, True),  # the machine may be faster today
        (Decision.PASSED, True),
        (Decision.INCONCLUSIVE, True),
        (Decision.REGRESSED, False),
        (Decision.ACCEPTED, False),
    ],
)
def test_a_recording_is_added_unless_it_became_worse(store: Store, decision: Decision, adds: bool) -> None:
    store.save(TEST, [change()])
    row = make_row(make_sample(scale=2), decision)
    (update,) = update_plan([row.cell.nodeid], [row], entries_of([row]), store, fingerprint=MACHINE.fingerprint)
    assert (update.action, update.append) == ("record", adds)


def test_launches_of_a_pair_are_not_recorded(store: Store) -> None:
    """They have no control workload beside them, by which stored times are compared."""
    row = make_row(msgspec.structs.replace(make_sample(), reference=make_sample()))
    (update,) = update_plan(["new"], [row], entries_of([row]), store, fingerprint=MACHINE.fingerprint)
    assert update.action == "skip"
    assert update.reason.startswith("measured beside its reference")
    assert f"--ftgate-update='{row.cell.nodeid}'" in update.reason


WALL_PASSED = MetricVerdict(metric="wall", decision=Decision.PASSED, launches=3)


@pytest.mark.parametrize(
    ("other", "action"),
    [
        (MetricVerdict(metric="contract", contract="wall < 1 s", decision=Decision.BROKEN, launches=3), "record"),
        (MetricVerdict(metric="uss", decision=Decision.INCONCLUSIVE), "record"),  # it was not judged
        (MetricVerdict(metric="uss", decision=Decision.INCONCLUSIVE, launches=3), "record"),
        (MetricVerdict(metric="uss", decision=Decision.INCONCLUSIVE, launches=3, beyond=True), "refuse"),
        (MetricVerdict(metric="uss", decision=Decision.REGRESSED), "refuse"),
        (MetricVerdict(metric="uss", decision=Decision.REGRESSED, launches=3), "refuse"),
    ],
)
def test_what_was_judged_against_the_baseline_decides_on_an_update(
    store: Store, other: MetricVerdict, action: str
) -> None:
    store.save(TEST, [change()])
    verdict = Verdict(decision=other.decision, metrics=(WALL_PASSED, other))
    row = msgspec.structs.replace(make_row(make_sample(scale=2)), verdict=verdict)
    (update,) = update_plan(["all"], [row], entries_of([row]), store, fingerprint=MACHINE.fingerprint)
    assert update.action == action


def test_a_regressed_cell_whose_baseline_is_gone_is_not_taken_as_new(store: Store) -> None:
    rows = [make_row(make_sample(), Decision.REGRESSED)]
    (update,) = update_plan(["new"], rows, entries_of(rows), store, fingerprint=MACHINE.fingerprint)
    assert update.action == "refuse"


def test_brackets_in_a_name_are_plain_text() -> None:
    nodeid = "t.py::test_t[3.14t[gil=on]-threads-w1]"
    assert matches(nodeid, nodeid)
    assert matches("t.py::test_t[3.14t[gil=on]*", nodeid)
    assert not matches("t.py::test_t[3.14]", nodeid)
    assert not matches("t.py::test", nodeid)


def test_a_plan_writes_nothing_and_its_application_what_it_says(store: Store) -> None:
    rows = [make_row(make_sample("new")), make_row(make_sample("bad"), Decision.REGRESSED)]
    plan = update_plan(["all"], rows, entries_of(rows), store, fingerprint=MACHINE.fingerprint)
    assert not store.root.exists()
    apply_updates(plan, store, MACHINE)
    stored = loaded(store)
    assert list(stored.cells) == ["new"]
    assert stored.machines == {MACHINE.fingerprint: MACHINE}
    cells = {"new": {change().key: entry_of(change())}}
    assert stored == TestBaseline(test=TEST, machines=stored.machines, cells=cells)


def test_a_difference_holds_both_sides(store: Store) -> None:
    store.save(TEST, [change()])
    rows = [make_row(make_sample(scale=2, uss=5_000_000))]
    (found,) = differences(rows, entries_of(rows), store, fingerprint=MACHINE.fingerprint)
    assert found == (rows[0], entry_of(change()), entries_of(rows)[rows[0].cell.nodeid], "")
    ((_, elsewhere, _, _),) = differences(rows, entries_of(rows), store, fingerprint="another")
    assert elsewhere is None
