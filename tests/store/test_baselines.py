"""Stored measurements: the file format, the folder, the lock, and what an update decides."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest
from stored_values import (
    COMMIT,
    MACHINE,
    OTHER_MACHINE,
    PYTHON,
    RECORDED,
    TEST,
    change,
    held,
    iteration,
    launch,
    make_row,
    make_sample,
    ratios_of,
    values_of,
)

from golden import check_golden
from pytest_ftgate.judge import comparisons, metrics
from pytest_ftgate.model import (
    Barrier,
    Decision,
    Launch,
    LockSite,
    LockWaits,
    Sample,
    WorkloadError,
)
from pytest_ftgate.pythons import build_key
from pytest_ftgate.store import (
    file_format,
    folder,
    names,
    recording,
)
from pytest_ftgate.store import (
    unused as unused_module,
)
from pytest_ftgate.store.folder import Store
from pytest_ftgate.store.recording import Change
from pytest_ftgate.store.schema import BaselineError, StoredCell, TestBaseline
from pytest_ftgate.store.unused import prunable, prune, source_is_gone
from pytest_ftgate.store.update import apply_updates, differences, matches, update_plan

SOURCE = str(Path(folder.__file__).parents[2])


ROOT = PurePosixPath("/opt/someone/project")


def lock_site(line: int, *, file: str = f"{ROOT}/src/words.py", waits: int = 3, **fields: Any) -> LockSite:
    made: dict[str, Any] = {"kind": "Lock", "waits_for": "lock", "total_ns": 1000 * waits, "max_ns": 2000}
    histogram = {95: waits - 1, 7: 1} if waits else {}
    return LockSite(file=file, line=line, contended=waits, histogram=histogram, **(made | fields))


def contended_sample(label: str = "3.14t-threads-w2") -> Sample:
    """A sample with everything that is stored in addition to timing: a one-worker cell, barriers, lock launches."""
    waits = LockWaits(
        work_ns=20_000,
        ops=40,
        sites=(
            lock_site(9, waits=4, name="cache"),
            lock_site(9, waits=0),
            lock_site(5, waits_for="queue", kind="Queue"),
            lock_site(3, file="/opt/python/lib/python3.14t/logging/__init__.py", waits=1),
        ),
    )
    points = held(0, 4_000_000, None, 4_100_000).memory
    fixed = msgspec.structs.replace(held(4, 5_000_000), barriers=tuple(Barrier(ops=2, point=each) for each in points))
    return msgspec.structs.replace(
        make_sample(label),
        single=tuple(launch(order, 3000, 3300, loops=3) for order in (0, 2)),
        memory=(fixed,),
        locks=(
            Launch(order=7, hash_seed=1, started_at=RECORDED, locks=waits),
            Launch(order=6, hash_seed=2, started_at=RECORDED, locks=LockWaits(work_ns=20_000, ops=40)),
            Launch(order=8, hash_seed=2, started_at=RECORDED, locks=LockWaits(work_ns=0, ops=0)),
            Launch(order=9, hash_seed=2, started_at=RECORDED),
        ),
    )


def contended_change() -> Change:
    return recording.change_of(
        contended_sample(), recorded_at=RECORDED, commit=COMMIT, seed=11, machine=MACHINE, root=ROOT
    )


def entry_of(changed: Change) -> StoredCell:
    assert changed.entry is not None
    return changed.entry


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "baselines")


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
    assert names.split_nodeid(nodeid) == (test, label)
    assert names.join_nodeid(test, label) == nodeid


def test_a_file_name_is_readable() -> None:
    assert names.file_name(TEST) == "tests/test_words.py/TestA.test_count.json"


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
    store.save(TEST, [change("3.14t-threads-w4"), change(), change(machine=OTHER_MACHINE)])
    text = store.path(TEST).read_text(encoding="utf-8")
    check_golden("baseline.json", text)
    assert file_format.encode(file_format.decode(text.encode(), "golden")) == text


def test_a_launch_takes_one_line_so_that_diffs_stay_small(store: Store) -> None:
    store.save(TEST, [change("3.14t-threads-w4"), change()])
    before = store.path(TEST).read_text(encoding="utf-8").splitlines()
    store.save(TEST, [change(scale=2)])
    after = store.path(TEST).read_text(encoding="utf-8").splitlines()
    assert len(before) == len(after)
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 2


def test_a_cell_named_like_a_field_is_no_obstacle(store: Store) -> None:
    labels = ["launches", "interpreter", "machines", '[odd "label"]', "é"]
    store.save(TEST, [change(label) for label in labels])
    stored = store.load(TEST)
    assert stored is not None
    assert sorted(stored.cells) == sorted(labels)


def test_what_names_a_place_on_the_machine_is_not_stored(store: Store) -> None:
    store.save(TEST, [change()])
    assert "/opt/" not in store.path(TEST).read_text(encoding="utf-8")


def test_several_recordings_are_read_in_their_order(store: Store) -> None:
    entry = entry_of(change())
    older, newer = (msgspec.structs.replace(entry.recordings[0], seed=seed) for seed in (1, 2))
    both = msgspec.structs.replace(change(), entry=msgspec.structs.replace(entry, recordings=(older, newer)))
    store.save(TEST, [both])
    cell = f"{TEST}[3.14t-threads-w2]"
    assert [found.seed for found in store.recordings(cell, MACHINE.fingerprint, build_key(PYTHON))] == [1, 2]
    found = store.lookup(cell, MACHINE.fingerprint, build_key(PYTHON))
    assert found is not None
    assert len(ratios_of(found, 0.25)) == 4


# ---- the judge's numbers


def stored_of(sample: Sample) -> StoredCell:
    return entry_of(recording.change_of(sample, recorded_at=RECORDED, commit="", seed=0, machine=MACHINE, root=ROOT))


def test_a_wall_value_is_the_ratio_of_the_floors_per_iteration() -> None:
    entry = entry_of(change())
    assert ratios_of(entry, 0.0) == pytest.approx((2.0, 2.0))
    assert ratios_of(entry, 0.5) == pytest.approx((2.0, 2.0))
    assert values_of(entry, "wall") == pytest.approx((2050.0, 2050.0))


def test_new_and_stored_values_are_the_same_numbers(store: Store) -> None:
    sample = make_sample()
    store.save(TEST, [change()])
    stored = store.lookup(sample.cell.nodeid, MACHINE.fingerprint, build_key(PYTHON))
    assert stored is not None
    assert ratios_of(stored, 0.25) == comparisons.control_ratios(sample, 0.25)
    assert values_of(stored, "uss") == tuple(metrics.row("uss").read(sample).values())


def test_a_launch_is_compared_with_the_control_of_its_own_order() -> None:
    slow_first = (launch(0, 3000), launch(2, 1000))
    sample = msgspec.structs.replace(make_sample(), control=slow_first[::-1])
    assert ratios_of(stored_of(sample), 0.0) == pytest.approx((2000 / 3000, 2.0))


def test_a_launch_without_a_control_gives_no_ratio() -> None:
    sample = msgspec.structs.replace(make_sample(), control=(launch(2, 1000),))
    assert ratios_of(stored_of(sample), 0.0) == pytest.approx((2.0,))
    sample = msgspec.structs.replace(sample, control=())
    assert ratios_of(stored_of(sample), 0.0) == ()


def test_a_duration_is_compared_by_the_time_of_an_operation() -> None:
    def window(order: int, *rates: float) -> Launch:
        iterations = tuple(iteration(50_000_000, ops=int(rate) // 20, rate=rate) for rate in rates)
        return Launch(order=order, hash_seed=1, started_at=RECORDED, window_ns=50_000_000, iterations=iterations)

    sample = msgspec.structs.replace(
        make_sample(),
        launches=(window(0, 5000.0, 10000.0, 0.0),),  # one without an operation keeps its place, and its neighbour's
        control=(window(0, 20000.0, 40000.0, 1.0),),
        duration_s=1.0,
    )
    entry = stored_of(sample)
    assert values_of(entry, "wall") == pytest.approx((125_000.0,))
    assert ratios_of(entry, 0.0) == pytest.approx((4.0,))


def test_uss_is_the_median_of_a_launch_and_none_where_there_is_none() -> None:
    assert values_of(entry_of(change()), "uss") == (4_002_048.0, 4_000_000.0)
    blind = stored_of(msgspec.structs.replace(make_sample(), memory=(held(0, None, None),)))
    assert values_of(blind, "uss") == ()


# ---- contention and footprint


def test_a_lock_share_is_of_the_workers_time_and_apart_from_queues() -> None:
    assert values_of(entry_of(contended_change()), "lock_wait_share") == pytest.approx((0.0, 5000 / (2 * 20_000)))
    assert values_of(entry_of(change()), "lock_wait_share") == ()


def test_a_scaling_is_the_work_done_in_the_time_of_one_worker() -> None:
    # Two workers, 1000 ns alone, 2000 ns together.
    assert values_of(entry_of(contended_change()), "scaling") == pytest.approx((1.0, 1.0))
    assert values_of(entry_of(change()), "scaling") == ()


@pytest.mark.parametrize("body", ["worker", "executor"])
@pytest.mark.parametrize("windows", [False, True])
def test_stored_values_are_those_of_the_run(store: Store, body: str, windows: bool) -> None:
    made = contended_sample()
    launches, single = made.launches, made.single
    if windows:
        launches, single = (
            tuple(msgspec.structs.replace(each, window_ns=5) for each in side) for side in (launches, single)
        )
    cell = msgspec.structs.replace(made.cell, body=body)
    made = msgspec.structs.replace(
        made, cell=cell, launches=launches, single=single, duration_s=1.0 if windows else None
    )
    changed = recording.change_of(made, recorded_at=RECORDED, commit="", seed=0, machine=MACHINE, root=ROOT)
    store.save(TEST, [changed])
    stored = store.lookup(made.cell.nodeid, MACHINE.fingerprint, build_key(PYTHON))
    assert stored is not None
    assert stored.recordings[0] == entry_of(changed).recordings[0]
    for name in ("wall", "cold", "start", "uss", "rss", "lock_wait_share", "queue_wait_share", "scaling", "cores"):
        there = tuple(metrics.row(name).read(made).values())
        assert values_of(stored, name) == pytest.approx(there)
        assert there
    assert len(values_of(stored, "scaling")) == 2


def test_a_lock_launch_takes_one_line_and_names_no_place_on_the_machine(store: Store) -> None:
    store.save(TEST, [contended_change()])
    text = store.path(TEST).read_text(encoding="utf-8")
    assert "/opt" not in text
    lines = [
        line.strip().rstrip(",")
        for line in text.splitlines()
        if line.rstrip(",").endswith(f'"started_at": "{RECORDED}"}}') and '"locks"' in line
    ]
    first, second = lines
    assert "sites" not in first
    expected = (
        '{"hash_seed": 1, "locks": {"ops": 40, "sites": ['
        '{"contended": 1, "file": "lib/python3.14t/logging/__init__.py", "histogram": {"7": 1}, "kind": "Lock", '
        '"line": 3, "max_ns": 2000, "total_ns": 1000, "waits_for": "lock"}, '
        '{"contended": 3, "file": "src/words.py", "histogram": {"7": 1, "95": 2}, "kind": "Queue", '
        '"line": 5, "max_ns": 2000, "total_ns": 3000, "waits_for": "queue"}, '
        '{"contended": 4, "file": "src/words.py", "histogram": {"7": 1, "95": 3}, "kind": "Lock", '
        '"line": 9, "max_ns": 2000, "name": "cache", "total_ns": 4000, "waits_for": "lock"}], '
        f'"work_ns": 20000}}, "order": 7, "started_at": "{RECORDED}"}}'
    )
    assert second == expected


def test_barriers_are_stored_with_the_samples(store: Store) -> None:
    store.save(TEST, [contended_change()])
    (line,) = (line for line in store.path(TEST).read_text(encoding="utf-8").splitlines() if '"barriers"' in line)
    assert line.strip() == (
        '{"barriers": {"ops": [2, 2, 2], "point": {"processes": [1, 1, 1], "pss_bytes": [null, null, null], '
        '"rss_bytes": [90000, 90000, 90000], "uss_bytes": [4000000, null, 4100000]}}, "hash_seed": 3, '
        '"memory": {"processes": [1], "pss_bytes": [null], "rss_bytes": [90000], "uss_bytes": [5000000]}, '
        f'"order": 4, "started_at": "{RECORDED}"}}'
    )
    stored = store.load(TEST)
    assert stored is not None
    assert values_of(entry_of(contended_change()), "uss") == (5_000_000.0,)


@pytest.mark.parametrize(
    ("file", "kept"),
    [
        ("/opt/someone/project/src/words.py", "src/words.py"),
        ("/opt/someone/project/.venv/lib/python3.14/site-packages/a/b.py", "lib/python3.14/site-packages/a/b.py"),
        ("/opt/someone/projects/words.py", "words.py"),
        ("/usr/lib/python3.14t/queue.py", "lib/python3.14t/queue.py"),
        ("/usr/lib64/python3.14/queue.py", "lib64/python3.14/queue.py"),
        ("/a/lib/python3.13/b/lib/python3.14/c.py", "lib/python3.14/c.py"),
        ("/a/mylib/python3.14/c.py", "c.py"),
        ("/usr/lib/python3/words.py", "words.py"),
        ("tests/words.py", "tests/words.py"),
        ("../elsewhere/words.py", "words.py"),
        ("<string>", "<string>"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("", ""),
    ],
)
def test_a_portable_name_is_told_from_the_project_or_the_installation(file: str, kept: str) -> None:
    assert recording.portable(file, ROOT) == kept
    assert "someone" not in recording.portable(file, None)


def test_a_project_inside_an_installation_is_still_the_project() -> None:
    root = PurePosixPath("/usr/lib/python3.14/site-packages/project")
    assert recording.portable(f"{root}/words.py", root) == "words.py"


@pytest.mark.parametrize("broken", [{"error": WorkloadError(reason="it hung")}, {"launches": ()}])
def test_a_sample_without_figures_is_no_baseline(broken: dict[str, object]) -> None:
    sample = msgspec.structs.replace(make_sample(), **broken)
    with pytest.raises(BaselineError, match=r"test_count\[3\.14t-.*\]: cannot be recorded.*(hung|no timing launch)"):
        recording.change_of(sample, recorded_at=RECORDED, commit="", seed=0, machine=MACHINE)


def test_a_mismatch_says_what_changed() -> None:
    entry = entry_of(change())
    assert recording.mismatch(entry, make_sample()) == ""
    assert "reuse was fresh, is pool" in recording.mismatch(entry, make_sample(reuse="pool"))
    windows = msgspec.structs.replace(make_sample(), duration_s=5.0)
    assert "body was iterations=, is duration=" in recording.mismatch(entry, windows)
    asked = msgspec.structs.replace(entry, measures="0123")
    assert "another command line, load, window or requirement" in recording.mismatch(asked, make_sample())
    assert recording.mismatch(asked, msgspec.structs.replace(make_sample(), measures="0123")) == ""


# ---- the folder


def test_nothing_is_there_at_first_and_looking_creates_nothing(store: Store) -> None:
    assert store.load(TEST) is None
    assert store.lookup(f"{TEST}[x]", MACHINE.fingerprint, "build") is None
    assert list(store.baselines()) == []
    assert list(store.root.parent.iterdir()) == []


def test_an_update_leaves_other_cells_machines_and_builds_as_they_were(store: Store) -> None:
    store.save(TEST, [change("other"), change(), change(machine=OTHER_MACHINE)])
    before = store.load(TEST)
    store.save(TEST, [change(scale=3)])
    after = store.load(TEST)
    assert before is not None
    assert after is not None
    assert after.cells["other"] == before.cells["other"]
    assert set(after.machines) == {MACHINE.fingerprint, OTHER_MACHINE.fingerprint}
    key = names.entry_key(OTHER_MACHINE.fingerprint, build_key(PYTHON))
    assert after.cells["3.14t-threads-w2"][key] == before.cells["3.14t-threads-w2"][key]
    assert after.cells["3.14t-threads-w2"] != before.cells["3.14t-threads-w2"]


def test_the_last_cell_takes_its_file_and_folders_along(store: Store) -> None:
    store.save(TEST, [change()])
    store.save(TEST, [msgspec.structs.replace(change(), entry=None, machine=None)])
    assert store.root.is_dir()
    assert list(store.root.iterdir()) == []


def test_the_lock_stands_outside_the_folder_and_is_ignored_by_git(store: Store) -> None:
    store.save(TEST, [change()])
    assert [path.name for path in store.root.rglob("*") if path.is_file()] == ["TestA.test_count.json"]
    assert (store.root.parent / ".ftgate" / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_a_symlinked_file_is_followed(store: Store, tmp_path: Path) -> None:
    store.save(TEST, [change()])
    portable = tmp_path / "elsewhere.json"
    store.path(TEST).rename(portable)
    store.path(TEST).symlink_to(portable)
    store.save(TEST, [change("more")])
    assert store.path(TEST).is_symlink()
    assert b"more" in portable.read_bytes()


def test_two_tests_that_a_file_system_confuses_do_not_overwrite_each_other(store: Store) -> None:
    store.save(TEST, [change()])
    content = store.path(TEST).read_bytes()
    other = TEST.replace("test_count", "test_Count")
    store.path(TEST).rename(store.path(other))
    with pytest.raises(BaselineError, match=r"holds .*test_count and stands where .*test_Count belongs"):
        store.save(other, [change()])
    assert store.path(other).read_bytes() == content
    with pytest.raises(BaselineError, match="belongs in"):
        list(store.baselines())


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


WALLS = "[4000, 4400, 4200]"
ENTRY = r'\$\.cells\["3\.14t-threads-w2"\]\["linux.*"\]'
FIRST_WALL = ENTRY + r"\.recordings\[0\]\.launches\[0\]\.iterations\.wall_ns"
FIRST_ITERATION = ENTRY + r"\.recordings\[0\]\.launches\[0\]\.iterations\[0\]"
NO_RECORDING = '{"schema": 2, "statistic": 1, "test": "t", "machines": {}, "cells": {"c": {"f/b": {"recordings": []}}}}'
BROKEN: dict[str, tuple[Damage, str]] = {
    "empty": (whole(""), r"line 1, column 1: the file is cut off"),
    "truncated": (lambda text: text[: len(text) // 2].rstrip(" ,"), r"line \d+, column \d+: .*; restore"),
    "no last brace": (lambda text: text[:-3], r"line \d+, column \d+: the file is cut off"),
    "conflict": (
        swap('      "', '<<<<<<< HEAD\n      "'),
        r"line \d+, column 1: a merge conflict is not resolved .*git checkout --ours",
    ),
    "not json": (swap('"cells": {', '"cells": ('), r"line 2, column 12: is not JSON"),
    "a list": (whole("[]"), r"\$\.schema: a version number is missing"),
    "newer": (swap('"schema": 2', '"schema": 3'), r"\$\.schema: version 3 is newer.*upgrade"),
    "older": (swap('"schema": 2', '"schema": 0'), r"\$\.schema: version 0 is older.*record it again"),
    "newer statistic": (swap('"statistic": 1', '"statistic": 7'), r"\$\.statistic: version 7 is newer"),
    "true": (swap('"schema": 2', '"schema": true'), r"\$\.schema: a version number"),
    "nan": (swap(WALLS, "[4000, NaN, 4200]"), FIRST_WALL + r"\[1\]: NaN is not a number"),
    "infinity": (swap(WALLS, "[-Infinity, 4400, 4200]"), FIRST_WALL + r"\[0\]: -Infinity is not"),
    "too large": (swap(WALLS, "[1e999, 4400, 4200]"), FIRST_WALL + r"\[0\]: Infinity is not"),
    "endless": (swap(WALLS, f"[{'9' * 5000}]"), r"\$: is not a baseline"),
    "deep": (swap('"cells": {', '"cells": ' + "[" * 100_000), r"\$: is not a baseline"),
    "text": (swap(WALLS, '["4000", 4400, 4200]'), FIRST_ITERATION + r"\.wall_ns: Expected `int`, got `str`"),
    "negative": (swap(WALLS, "[-4000, 4400, 4200]"), FIRST_ITERATION + r"\.wall_ns: Expected `int` >= 0"),
    "no loops": (swap('"loops": 2', '"loops": 0'), r"loops: Expected `int` >= 1"),
    "unknown": (swap('"commit"', '"comit"'), ENTRY + r"\.recordings\[0\]: .*comit"),
    "missing": (swap(f'"test": "{TEST}"', '"machine": {}'), r"\$: Object contains unknown field `machine`"),
    "twice": (swap('"order": 2', '"order": 2, "order": 1'), r'control\[1\]: the key "order" stands twice'),
    "twice above": (swap('"schema": 2', '"schema": 2, "schema": 2'), r'\$: the key "schema" stands twice'),
    "uneven": (swap(WALLS, "[4000, 4400]"), r"launches\[0\]\.iterations\.\w+: its length is not that of cpu_ns, 3"),
    "no machine": (
        swap('    "linux-x86_64-2c-1a2b3c4d": {"arch"', '    "gone": {"arch"'),
        r'\$\.machines has no "linux',
    ),
    "no build": (swap("2c-1a2b3c4d/", "2c-1a2b3c4d-"), r"the key is not `<fingerprint>/<build key>`"),
    "no recording": (whole(NO_RECORDING), r'\$\.cells\.c\["f/b"\]'),
}


BROKEN_LAUNCHES: dict[str, tuple[Damage, str]] = {
    "uneven single": (
        swap('[3000, 3300], "work_ns"', '[3000], "work_ns"'),
        r"single\[0\]\.iterations\.wall_ns: its length is not that of rate, 2",
    ),
    "no array": (
        swap('[3000, 3300], "work_ns"', '3000, "work_ns"'),
        r"single\[0\]\.iterations\.wall_ns: is not an array",
    ),
    "uneven barriers": (
        swap('"ops": [2, 2, 2], "point"', '"ops": [2, 2], "point"'),
        r"memory\[0\]\.barriers\.point: its length is not that of ops, 2",
    ),
    "uneven samples": (
        swap('"uss_bytes": [5000000]', '"uss_bytes": [5000000, 1]'),
        r"memory\[0\]\.memory\.uss_bytes: its length is not that of processes, 1",
    ),
    "lost waits": (
        swap('{"7": 1, "95": 2}', '{"7": 1}'),
        r"locks\[1\]\.locks\.sites\[1\]\.histogram: its waits are 1, not 3",
    ),
    "waits for": (swap('"waits_for": "queue"', '"waits_for": "godot"'), r"Invalid enum value 'godot'"),
    "no time": (swap('"work_ns": 20000', '"work_ns": 0'), r"locks\[0\]\.locks\.work_ns: is not a time at work"),
}


@pytest.mark.parametrize("name", list(BROKEN_LAUNCHES))
def test_a_broken_launch_is_named_with_its_place(store: Store, name: str) -> None:
    damage, place = BROKEN_LAUNCHES[name]
    store.save(TEST, [contended_change()])
    path = store.path(TEST)
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(BaselineError, match=place):
        store.load(TEST)


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_file_is_named_with_its_place_and_never_written_over(store: Store, name: str) -> None:
    damage, place = BROKEN[name]
    store.save(TEST, [change()])
    path = store.path(TEST)
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    content = path.read_bytes()
    for read in (lambda: store.load(TEST), lambda: list(store.baselines()), lambda: store.save(TEST, [change()])):
        with pytest.raises(BaselineError, match=place) as raised:
            read()
        assert str(raised.value).startswith(str(path))
    assert path.read_bytes() == content
    assert [left.name for left in path.parent.iterdir()] == [path.name]


def test_bytes_that_are_no_text_are_named_by_their_place(store: Store) -> None:
    store.save(TEST, [change()])
    store.path(TEST).write_bytes(b'{"test": "\xff"}')
    with pytest.raises(BaselineError, match="byte 10: is not UTF-8"):
        store.load(TEST)


def test_a_nan_is_refused_before_anything_is_written(store: Store) -> None:
    store.save(TEST, [change()])
    content = store.path(TEST).read_bytes()
    entry = entry_of(change())
    first = entry.recordings[0].launches[0]
    bad = msgspec.structs.replace(first, iterations=(iteration(4000, rate=float("nan")), *first.iterations[1:]))
    recording = msgspec.structs.replace(entry.recordings[0], launches=(bad,))
    broken = msgspec.structs.replace(entry, recordings=(recording,))
    with pytest.raises(BaselineError, match=r"iterations\.rate\[0\]: NaN is not a number"):
        store.save(TEST, [msgspec.structs.replace(change(), entry=broken)])
    assert store.path(TEST).read_bytes() == content


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_whole(store: Store, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store.save(TEST, [change()])
    content = store.path(TEST).read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(BaselineError, match=r"TestA\.test_count\.json: cannot be written: No space left"):
        store.save(TEST, [change(scale=2)])
    monkeypatch.undo()
    assert store.path(TEST).read_bytes() == content
    assert [path.name for path in store.path(TEST).parent.iterdir()] == ["TestA.test_count.json"]


CHILD = """
import sys
from pathlib import Path, PurePosixPath
from typing import Any
import msgspec
from pytest_ftgate.store.recording import Change
from pytest_ftgate.store.folder import Store
from pytest_ftgate.model import Machine

root, prefix, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
template = msgspec.json.decode(sys.stdin.buffer.read(), type=Change)
if prefix == "full":
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
for number in range(count):
    Store(root).save("t.py::test_t", [msgspec.structs.replace(template, label=f"{prefix}-{number}")])
"""


def _child(store: Store, prefix: str, count: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(store.root), prefix, str(count)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )


@pytest.mark.skipif(os.name != "posix", reason="a limit on the size of files is POSIX")
def test_a_write_that_the_system_cuts_short_leaves_the_old_file_whole(store: Store) -> None:
    store.save("t.py::test_t", [change()])
    content = store.path("t.py::test_t").read_bytes()
    child = _child(store, "full", 1)
    _, said = child.communicate(msgspec.json.encode(change()))
    assert child.returncode == 1
    assert b"BaselineError" in said
    assert b"cannot be written" in said
    assert store.path("t.py::test_t").read_bytes() == content
    assert [path.name for path in store.path("t.py::test_t").parent.iterdir()] == ["test_t.json"]


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
    stored = store.load("t.py::test_t")
    assert stored is not None
    assert len(stored.cells) == 45


def test_a_lock_that_is_not_given_is_an_error_that_says_who_waits(store: Store) -> None:
    patient = Store(store.root, lock_timeout_s=0.05)
    with store._locked(), pytest.raises(BaselineError, match=r"baselines\.lock: another run has held it for 0\.05 s"):
        patient.save(TEST, [change()])
    patient.save(TEST, [change()])


def test_what_a_killed_run_left_is_cleared_by_the_next(store: Store) -> None:
    store.save(TEST, [change()])
    left_over = store.path(TEST).with_name(".ftgate-0123.tmp")
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


def test_a_cell_that_is_not_collected_any_more_is_unused(store: Store) -> None:
    store.save(TEST, [change("3.14-threads-w2"), change("3.14-fork-w2"), change("3.13-threads-w2")])
    store.save("other.py::test_o", [change()])
    collected = [f"{TEST}[3.14-threads-w2]", f"{TEST}[3.14-threads-w4]"]
    # Of the other file and the other target this run knows nothing.
    assert unused_module.unused(store, collected) == [(TEST, "3.14-fork-w2")]
    assert unused_module.unused(store, collected, fingerprint=MACHINE.fingerprint) == [(TEST, "3.14-fork-w2")]
    assert unused_module.unused(store, collected, fingerprint=OTHER_MACHINE.fingerprint) == []


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
    assert unused_module.unused(store, [], rootdir=project) == [("gone.py::test_g", "3.14t-threads-w2")]


def test_only_what_a_run_called_unused_can_be_pruned(store: Store, project: Path) -> None:
    store.save(TEST, [change("a"), change("b"), change("c")])
    store.save("tests/test_words.py::TestA::test_other", [change()])
    rows = [make_row(make_sample("a"))]
    unused = [f"{TEST}[a]", f"{TEST}[b]", "tests/test_words.py::TestA::test_other[3.14t-threads-w2]"]
    cells = prunable(store, rows, unused, project)
    assert cells == [(TEST, "b")]
    prune(store, cells)
    stored = store.load(TEST)
    assert stored is not None
    assert sorted(stored.cells) == ["a", "c"]


# ---- updates


def plan_of(store: Store, *modes: str) -> dict[str, tuple[str, str]]:
    """Label (or unknown name) -> action and reason, for a run of every kind of cell."""
    store.save(TEST, [change("old"), change("bad"), change("odd")])
    rows = [
        make_row(make_sample("new"), Decision.NO_BASELINE),
        make_row(make_sample("old", scale=2)),
        make_row(make_sample("bad", scale=2), Decision.REGRESSED),
        make_row(make_sample("odd", reuse="pool"), Decision.NO_BASELINE),
        make_row(make_sample("ill", error=WorkloadError(reason="it hung")), Decision.ERROR),
    ]
    updates = update_plan(modes, rows, store, fingerprint=MACHINE.fingerprint)
    return {names.split_nodeid(plan.nodeid)[1] or plan.nodeid: (plan.action, plan.reason) for plan in updates}


def test_an_update_takes_new_cells_alone(store: Store) -> None:
    plan = plan_of(store, "new")
    assert plan["new"] == ("record", "new")
    assert plan["old"] == plan["bad"] == ("skip", "has a baseline")
    assert plan["odd"][0] == "skip"
    assert "reuse was fresh, is pool" in plan["odd"][1]
    assert plan["ill"] == ("skip", "not measured: it hung")


def test_an_update_of_all_refuses_what_regressed(store: Store) -> None:
    plan = plan_of(store, "all")
    assert plan["new"] == ("record", "new")
    assert plan["old"] == plan["odd"] == ("record", "changed")
    assert plan["bad"] == ("refuse", "regressed")
    assert plan["ill"][0] == "skip"


@pytest.mark.parametrize("name", [f"{TEST}[bad]", f"{TEST}[b?d]", f"{TEST}[b*", "*[bad]"])
def test_a_regressed_cell_is_taken_by_its_name(store: Store, name: str) -> None:
    plan = plan_of(store, name)
    assert plan["bad"] == ("record", "named")
    assert plan["old"] == ("skip", "has a baseline")
    assert plan["new"] == ("record", "new")


def test_the_name_of_a_test_names_all_its_cells(store: Store) -> None:
    plan = plan_of(store, TEST)
    assert {action for label, (action, _) in plan.items() if label != "ill"} == {"record"}


def test_a_name_that_no_cell_has_is_said(store: Store) -> None:
    plan = plan_of(store, "all", "nowhere.py::test_n")
    assert plan["nowhere.py::test_n"] == ("skip", "no cell of this run has that name")


def test_a_regressed_cell_whose_baseline_is_gone_is_not_taken_as_new(store: Store) -> None:
    rows = [make_row(make_sample(), Decision.REGRESSED)]
    (update,) = update_plan("new", rows, store, fingerprint=MACHINE.fingerprint)
    assert update.action == "refuse"


def test_brackets_in_a_name_are_plain_text() -> None:
    nodeid = "t.py::test_t[3.14t[gil=on]-threads-w1]"
    assert matches(nodeid, nodeid)
    assert matches("t.py::test_t[3.14t[gil=on]*", nodeid)
    assert not matches("t.py::test_t[3.14]", nodeid)
    assert not matches("t.py::test", nodeid)


def test_a_plan_writes_nothing_and_its_application_what_it_says(store: Store) -> None:
    rows = [make_row(make_sample("new")), make_row(make_sample("bad"), Decision.REGRESSED)]
    plan = update_plan(["all"], rows, store, fingerprint=MACHINE.fingerprint)
    assert not store.root.exists()
    apply_updates(plan, store, machine=MACHINE, recorded_at=RECORDED, commit=COMMIT, seed=11)
    stored = store.load(TEST)
    assert stored is not None
    assert list(stored.cells) == ["new"]
    assert stored.machines == {MACHINE.fingerprint: MACHINE}
    assert stored == TestBaseline(
        schema=2, statistic=1, test=TEST, machines=stored.machines, cells={"new": {change().key: entry_of(change())}}
    )


def test_what_an_update_writes_names_files_from_the_root(store: Store) -> None:
    plan = update_plan("new", [make_row(contended_sample())], store, fingerprint=MACHINE.fingerprint)
    apply_updates(plan, store, machine=MACHINE, recorded_at=RECORDED, commit=COMMIT, seed=11, root=ROOT)
    stored = store.load(TEST)
    assert stored is not None
    assert stored.cells["3.14t-threads-w2"][contended_change().key] == entry_of(contended_change())


def test_a_difference_holds_both_sides(store: Store) -> None:
    store.save(TEST, [change()])
    rows = [make_row(make_sample(scale=2, uss=5_000_000))]
    (found,) = differences(rows, store, fingerprint=MACHINE.fingerprint)
    assert found.old is not None
    assert found.new is not None
    assert found.new == rows[0].sample
    assert found.old == entry_of(change())
    (portable,) = differences([make_row(make_sample())], store, fingerprint="another")
    assert portable.old is None
