"""The files that this package reads and others may have written: a real one of each kind, and what reads it."""

from __future__ import annotations

import contextlib
import json
import marshal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import report_by_hand
from stored_values import TEST, change, make_sample

from pytest_ftgate.features.baseline import render_list
from pytest_ftgate.features.decide import rank
from pytest_ftgate.features.history.series import series
from pytest_ftgate.judge import comparisons
from pytest_ftgate.judge.values import Values
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.measure.launchers import command, load, workload
from pytest_ftgate.measure.watch import lock_waits
from pytest_ftgate.model.report import Report
from pytest_ftgate.report import json as formats
from pytest_ftgate.report import json as report_json
from pytest_ftgate.report import terminal
from pytest_ftgate.runner.protocol import MARSHAL, PROTOCOL
from pytest_ftgate.store.folder import assembled, changed
from pytest_ftgate.store.schema import decode, encode


class Kind(NamedTuple):
    """A kind of file: `read` says whether a content was taken for one; it raises what must not be."""

    name: str
    seed: bytes
    read: Callable[[bytes], bool]
    binary: bool = False


def _ours(read: Callable[[bytes], object]) -> Callable[[bytes], bool]:
    """Whether it can be read; our own errors say that it cannot."""

    def tried(content: bytes) -> bool:
        try:
            read(content)
        except FtgateError:
            return False
        return True

    return tried


def _used(report: Report) -> None:
    terminal.render(report, width=100, color=False, unicode=True, verbosity=2)
    rank.of_report(report)
    for form in ("html", "md", "bmf", "openmetrics"):
        "".join(formats.rendered(form, report))


def read_baseline(content: bytes) -> None:
    """Decode a file, list it, and compare a sample with each of its cells."""
    run = decode(content, "baselines/test_words.json")
    baseline = assembled(run.test, {"file.json": run})
    render_list([baseline])
    values = Values(make_sample())
    for label, places in baseline.cells.items():
        for key, entry in places.items():
            comparisons.with_stored(values, entry)
            series(entry.recordings, "wall", fingerprint=key, build=label)


def _read_result(content: bytes) -> bool:
    try:
        workload.result_of(content)
    except ValueError:
        return False
    return True


def _read_program(content: bytes) -> bool:
    try:
        return command.program_output(content.decode(errors="replace")) is not None
    except ValueError:
        return False


def _read_load(content: bytes) -> None:
    load.parse("oha", content.decode(errors="replace"))


def _read_locks(content: bytes) -> bool:
    try:
        file = lock_waits.file_of(content)
    except ValueError:
        return False
    lock_waits.merged([file.sites])
    return True


def small_report() -> Report:
    """A report of one row, with its sample and its figures."""
    whole = report_by_hand.report()
    row = msgspec.structs.replace(next(row for row in whole.rows if row.verdict.metrics), sample=make_sample())
    table = msgspec.structs.replace(whole.tables[0], rows=(row,))
    return msgspec.structs.replace(whole, tables=(table,), interpreters=())


def baseline_file() -> bytes:
    """A baseline of one cell."""
    (run,) = changed(TEST, {}, [change()]).values()
    return encode(run).encode()


def result_file() -> bytes:
    """What a runner leaves of a launch."""
    launch = msgspec.to_builtins(make_sample().launches[0])
    content = {"protocol": PROTOCOL, "launch": launch, "error": None, "spans": [(1, 2)]}
    return marshal.dumps(json.loads(json.dumps(content)), MARSHAL)


def _read_report(content: bytes) -> bool:
    """Read a report; one of forty is also shown in every form, which takes a hundred times as long."""
    try:
        report = report_json.parse(content)
    except FtgateError:
        return False
    if zlib.crc32(content) % 40 == 0:
        with contextlib.suppress(Exception):  # `ftgate` names the file: see cli.main
            _used(report)
    return True


SITE = {"file": "w.py", "line": 7, "kind": "Lock", "waits_for": "lock", "contended": 2, "total_ns": 9, "max_ns": 5}
LOCKS = marshal.dumps({"sites": [SITE]}, MARSHAL)
PROGRAM = b'{"counters":{"inserts":5},"timers":{"ack":{"count":1,"total_ns":5,"max_ns":5}},"peaks":{"depth":3}}'
OHA = (Path(__file__).parents[1] / "golden" / "oha.json").read_bytes()
KINDS = (
    Kind("baseline", baseline_file(), _ours(read_baseline)),
    Kind("report", msgspec.json.encode(small_report()), _read_report),
    Kind("result", result_file(), _read_result, binary=True),
    Kind("locks", LOCKS, _read_locks, binary=True),
    Kind("program", PROGRAM, _read_program),
    Kind("load", OHA, _ours(_read_load)),
)
