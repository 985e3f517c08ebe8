"""Samples of tests that have ended: their launches stay encoded, and what was read of them is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import report_by_hand

from pytest_ftgate.judge import metrics
from pytest_ftgate.judge.values import Values
from pytest_ftgate.model.report import Row
from pytest_ftgate.model.sample import Sample
from pytest_ftgate.report import json, measured
from pytest_ftgate.run.folder import RunFolder
from pytest_ftgate.run.rows import RowStore

ROWS = [row for row in report_by_hand.report().rows if row.sample is not None and row.sample.launches]


def sample_of(row: Row) -> Sample:
    assert row.sample is not None
    return row.sample


def test_a_packed_sample_reads_as_it_was() -> None:
    for sample in map(sample_of, ROWS):
        packed = msgspec.structs.replace(sample, reference=sample).packed()
        assert packed.reference is not None
        for each in (packed, packed.reference):
            assert each.of("time") == sample.of("time")
            assert each.measured_ns == sample.measured_ns
            assert each.with_launches("locks", ()).all_launches == sample.with_launches("locks", ()).all_launches
            assert {name: Values(each).by_order(name) for name in metrics.TABLE} == {
                name: Values(sample).by_order(name) for name in metrics.TABLE
            }


def test_nothing_is_decoded_for_what_was_read_before() -> None:
    loaded: list[bytes] = []

    def keep(data: bytes) -> Callable[[], bytes]:
        def load() -> bytes:
            loaded.append(data)
            return data

        return load

    row, sample = ROWS[0], sample_of(ROWS[0])
    Values(sample).read_all()
    packed = msgspec.structs.replace(row, sample=sample.packed(keep))
    assert measured.properties(packed) == measured.properties(row)
    assert loaded
    assert msgspec.json.encode(sample.all_launches) not in loaded


def test_a_report_of_packed_rows_is_the_same_text() -> None:
    report = report_by_hand.report()
    tables = tuple(
        msgspec.structs.replace(
            table,
            rows=tuple(msgspec.structs.replace(row, sample=row.sample and row.sample.packed()) for row in table.rows),
        )
        for table in report.tables
    )
    assert json.render(msgspec.structs.replace(report, tables=tables)) == json.render(report)


def test_what_cannot_be_written_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    for root in (tmp_path, tmp_path / "taken"):
        rows = RowStore(RunFolder(root))
        first, second = rows.keep(b"first"), rows.keep(b"second")
        assert (second(), first(), second()) == (b"second", b"first", b"second")
