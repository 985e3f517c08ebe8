"""The files of all processes, merged; percentiles of merged histograms."""

from __future__ import annotations

import marshal
import random
from pathlib import Path

import msgspec
import pytest
from bench import SERIAL, SPAWN, TASKS, THREADS

from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.measure.watch.lock_waits import SiteRecord, lived_ns, merged, read, thread_ns
from pytest_ftgate.model.spec import BodyKind, Cell, Executor, parse_target
from pytest_ftgate.runner.locks.lifetimes import Lifetimes
from pytest_ftgate.runner.locks.sites import Book, Site, bucket_of
from pytest_ftgate.runner.protocol import MARSHAL
from pytest_ftgate.stats.histogram import percentile


def written(**changes: object) -> SiteRecord:
    site = {
        "file": "a.py",
        "line": 3,
        "kind": "Lock",
        "waits_for": "lock",
        "contended": 1,
        "total_ns": 20,
        "max_ns": 20,
    }
    return msgspec.convert({**site, "histogram": {20: 1}, **changes}, SiteRecord)


def test_the_same_line_in_two_processes_is_one_site() -> None:
    other = written(contended=2, total_ns=70, max_ns=40, acquired=9, histogram={20: 1, 40: 1})
    (site,) = merged([[written()], [other]])
    assert (site.file, site.line, site.kind, site.waits_for, site.name) == ("a.py", 3, "Lock", "lock", "")
    assert (site.contended, site.total_ns, site.max_ns, site.acquisitions) == (3, 90, 40, 9)
    assert site.histogram == {20: 2, 40: 1}


@pytest.mark.parametrize(
    "change", [{"line": 4}, {"file": "b.py"}, {"kind": "RLock"}, {"waits_for": "queue"}, {"name": "x"}]
)
def test_what_differs_in_place_kind_or_name_is_not(change: dict[str, object]) -> None:
    assert [site.contended for site in merged([[written(), written(**change)]])] == [1, 1]


@pytest.mark.parametrize("turned", [False, True])
def test_a_key_brings_the_line_kind_and_name_of_its_maker(turned: bool) -> None:
    nothing: dict[str, object] = {"contended": 0, "total_ns": 0, "max_ns": 0, "histogram": {}}
    maker = [
        written(key="/mp-1", kind="multiprocessing.Condition", **nothing),
        written(key="/mp-1", name="cache", **nothing),
    ]
    maker[1] = msgspec.structs.replace(maker[1], kind="multiprocessing.Condition")
    users = [[written(key="/mp-1", file="", line=0, kind="multiprocessing.RLock")] for _ in range(2)]
    files = [maker, *users]
    (site,) = merged(reversed(files) if turned else files)
    assert (site.file, site.line, site.kind, site.name) == ("a.py", 3, "multiprocessing.Condition", "cache")
    assert site.contended == 2


def test_a_key_whose_line_nobody_wrote_is_kept() -> None:
    (site,) = merged([[written(key="/mp-1", file="", line=0)], [written(key="/mp-1", file="", line=0)]])
    assert (site.file, site.line, site.kind, site.contended) == ("", 0, "Lock", 2)


def test_two_keys_of_one_line_are_one_site() -> None:
    maker = [written(key=key, contended=0, histogram={}) for key in ("/mp-1", "/mp-2")]
    user = [written(key=key, file="", line=0) for key in ("/mp-1", "/mp-2")]
    (site,) = merged([maker, user])
    assert site.contended == 2


def test_where_nothing_happened_there_is_no_site() -> None:
    assert merged([[written(contended=0, histogram={})]]) == ()
    (site,) = merged([[written(contended=0, histogram={}, acquired=5)]])
    assert (site.contended, site.acquisitions) == (0, 5)
    (site,) = merged([[written()]])
    assert site.acquisitions is None


def test_read_takes_what_a_book_wrote(tmp_path: Path) -> None:
    book = Book()
    book.folder = str(tmp_path)
    book.lifetimes = Lifetimes()
    book.add(1, Site("a.py", 3, "Lock", "lock")).tally().waits.extend([5, 1_000_000])
    book.write()
    (tmp_path / "window").write_bytes(b"\0")
    (site,), _ = read(tmp_path)
    assert site.histogram == {bucket_of(5): 1, bucket_of(1_000_000): 1}
    assert (site.total_ns, site.max_ns) == (1_000_005, 1_000_000)


class Word(str):
    """As a member of a StrEnum is: a text that marshal does not take."""


SURROGATE = {"file": "\udc80.py", "line": 3, "kind": "Lock", "waits_for": "lock"}


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"\xff"),
        marshal.dumps([], MARSHAL),
        marshal.dumps({"sites": [{"file": 3}]}, MARSHAL),
        marshal.dumps({"lifetimes": [3]}, MARSHAL),
        marshal.dumps({"sites": [SURROGATE]}, MARSHAL),
        marshal.dumps({"sites": []}, MARSHAL)[:-1],
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "12-0.waits").write_bytes(content)
    with pytest.raises(FtgateError, match=r"12-0\.waits"):
        read(tmp_path)


def test_an_empty_folder_has_no_sites(tmp_path: Path) -> None:
    assert read(tmp_path) == ((), [])


def test_lives_count_as_far_as_they_lie_in_the_measured_iterations(tmp_path: Path) -> None:
    for name, lives in (("1-0.waits", [(0, 100), (12, 15)]), ("2-0.waits", [(18, 35), (20, 30), (40, 50)])):
        (tmp_path / name).write_bytes(marshal.dumps({"sites": [], "lifetimes": lives}, MARSHAL))
    _, lifetimes = read(tmp_path)
    spans = [(10, 20), (30, 40)]
    assert lived_ns(lifetimes, spans) == (10 + 10) + 3 + (2 + 5)
    assert lived_ns(lifetimes, []) == 0


@pytest.mark.parametrize(
    ("executor", "body", "lived_ns", "expected"),
    [
        (THREADS, "worker", 0, 200),
        (THREADS, "worker", 196, 200),  # the workers' own, one of which ended early
        (THREADS, "worker", 900, 900),
        (SPAWN, "worker", 900, 900),
        (SERIAL, "worker", 300, 500),  # the main thread's lifetime is not noted
        (TASKS, "worker", 300, 500),
        (THREADS, "executor", 150, 300),  # the pool's threads, and the one that drives it
        (THREADS, "executor", 900, 1000),
        (SERIAL, "executor", 50, 250),
    ],
)
def test_the_time_of_threads_is_the_workers_and_that_of_what_they_start(
    executor: Executor, body: BodyKind, lived_ns: int, expected: int
) -> None:
    cell = Cell(nodeid="t", target=parse_target("3.14"), executor=executor, workers=2, body=body)
    assert thread_ns(cell, 100, lived_ns) == expected


@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_a_percentile_is_within_a_bucket_of_the_exact_one(q: float) -> None:
    draw = random.Random(4)
    waits = sorted(int(draw.lognormvariate(13, 2)) for _ in range(20_000))
    histogram: dict[int, int] = {}
    for wait_ns in waits:
        bucket = bucket_of(wait_ns)
        histogram[bucket] = histogram.get(bucket, 0) + 1
    assert percentile(histogram, q) == pytest.approx(waits[int(q * len(waits))], rel=0.0625)


def test_percentiles_at_the_ends() -> None:
    histogram = {bucket_of(10): 3, bucket_of(1_000): 1}
    assert percentile(histogram, 0) == 10
    assert percentile(histogram, 0.75) == 11  # the end of the bucket of 10 ns
    assert percentile(histogram, 1) > 1_000
    assert percentile({}, 0.5) == 0.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile(histogram, 50)


def test_a_file_that_a_full_disk_cut_is_an_error_and_one_that_was_being_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "12-0.waits.part").write_bytes(b"[")
    assert read(tmp_path)[0] == ()
    (tmp_path / "13-0.waits.broken").write_bytes(b"[")
    with pytest.raises(FtgateError, match=r"13-0\.waits\.broken: the lock waits of one process are not whole"):
        read(tmp_path)


def test_what_a_process_writes_is_read_whatever_its_names_hold(tmp_path: Path) -> None:
    names = (
        "plain",
        Word("of an enum"),
        'quo"te\\',
        "n\newline",
        "\u00fc\u20ac",
        "\U0001f600",
        "\x00",
    )
    sites = []
    for name in names:
        site = Site("".join(name), 3, "Lock", "lock", name)
        site.tally().waits += [1, 100, 5_000_000]
        site.fold()
        sites.append(site.as_dict())
    (tmp_path / "1-0.waits").write_bytes(marshal.dumps({"sites": sites}, MARSHAL))
    found, _ = read(tmp_path)
    assert {site.file for site in found} == {site.name for site in found} == set(names)
    assert all(sum(site.histogram.values()) == site.contended == 3 for site in found)
