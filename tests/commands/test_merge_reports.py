"""`ftgate merge`: JSON reports of shards, what they make together, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import report_by_hand
from report_by_hand import part_of

from pytest_ftgate import cli
from pytest_ftgate.features.decide import rank
from pytest_ftgate.model.report import Report
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.report import json

REPORT = report_by_hand.report()
PLANNED = tuple(row.cell.nodeid for row in REPORT.rows)
Write = Callable[..., list[str]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes reports `1.json`, `2.json`, ..., by default those of the three shards."""
    monkeypatch.chdir(tmp_path)

    def written(*reports: Report) -> list[str]:
        names = []
        for number, report in enumerate(reports or map(part_of, (1, 2, 3)), start=1):
            (tmp_path / f"{number}.json").write_text(json.render(report), encoding="utf-8")
            names.append(f"{number}.json")
        return names

    return written


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["merge", *arguments, "-o", "all.json"]) == 2
    assert not Path("all.json").exists()
    return capsys.readouterr().err


def test_three_shards_are_one_report_in_the_order_of_the_plan(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    names = write()
    kinds = ["html:all.html", "md:all.md", "bmf:all.bmf"]
    targets = [word for kind in kinds for word in ("--to", kind)]
    assert cli.main(["merge", *reversed(names), "-o", "all.json", *targets]) == 1
    said = capsys.readouterr().out
    joined = json.parse(Path("all.json").read_bytes())
    assert [table.title for table in joined.tables] == [table.title for table in REPORT.tables]
    assert joined.tables[0].note.startswith("measured by shard 1/3")
    assert joined.rows == REPORT.rows
    assert (joined.shard, joined.partial, joined.commit) == (None, "", REPORT.commit)
    assert joined.command == "ftgate merge 3.json 2.json 1.json"
    assert said.count(REPORT.machine.cpu) == 1, "all shards ran on the same machine"
    assert "split over the hypotheses of the whole run" in said.splitlines()[-1]
    assert {Path(kind.partition(":")[2]).stat().st_size > 0 for kind in kinds} == {True}
    for text in (said, *(Path(name).read_text("utf-8") for name in ("all.html", "all.md"))):
        assert all(f"measured by shard {part}/3" in text for part in (1, 2, 3))


def test_machines_that_differ_are_named_and_advise_by_their_own_cores(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = msgspec.structs.replace(REPORT.machine, fingerprint="another", cpu="Another CPU", cores=96)
    kinds = [word for kind in ("html", "md") for word in ("--to", f"{kind}:all.{kind}")]
    cli.main(["merge", *write(part_of(1), part_of(2, machine=other), part_of(3)), "-o", "all.json", *kinds])
    joined = json.parse(Path("all.json").read_bytes())
    assert [joined.machine_of(table) for table in joined.tables] == [REPORT.machine, other, REPORT.machine]
    for text in (capsys.readouterr().out, *(Path(f"all.{kind}").read_text("utf-8") for kind in ("html", "md"))):
        assert REPORT.machine.cpu in text
        assert "Another CPU" in text
    cores, advise = list[int](), rank.of_candidates

    def advised(test: str, source: str, sides: Any, cores_there: int, weights: Any) -> rank.Advice:
        cores.append(cores_there)
        return advise(test, source, sides, cores_there, weights)

    monkeypatch.setattr(rank, "of_candidates", advised)
    rank.of_report(joined)
    assert cores == [REPORT.machine.cores, 96, REPORT.machine.cores]


def all_of(decision: Decision, number: int, **changed: Any) -> Report:
    report = part_of(number, failing=frozenset(), **changed)
    verdict = Verdict(decision=decision)
    rows = tuple(msgspec.structs.replace(row, verdict=verdict, error=None) for row in report.tables[0].rows)
    return msgspec.structs.replace(report, tables=(msgspec.structs.replace(report.tables[0], rows=rows),))


def test_the_exit_code_is_that_of_a_run(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    passed = [all_of(Decision.PASSED, number) for number in (1, 2, 3)]
    assert cli.main(["merge", *write(*passed)]) == 0
    assert cli.main(["merge", *write(*passed[:2], all_of(Decision.PASSED, 3, partial="interrupted"))]) == 3
    assert "this report is partial: shard 3/3: interrupted" in capsys.readouterr().out
    assert cli.main(["merge", *write(*(all_of(Decision.UNSUPPORTED, number) for number in (1, 2, 3)))]) == 3
    assert f"no cell was judged: {len(PLANNED)} unsupported" in capsys.readouterr().out
    strict = msgspec.structs.replace(passed[0], failing=frozenset({PLANNED[0]}))
    assert cli.main(["merge", *write(strict, *passed[1:])]) == 1, "by the run's own --ftgate-fail-on"


def test_a_missing_shard_is_named(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    names = write(*(all_of(Decision.PASSED, number) for number in (1, 3)))
    cells = len(REPORT.tables[1].rows)
    missing = f"shard 2/3 is missing: {cells} of {len(PLANNED)} cells"
    assert f"{missing}; --partial joins the others" in refused(capsys, *names)
    assert cli.main(["merge", "--partial", *names, "-o", "all.json"]) == 3
    joined = json.parse(Path("all.json").read_bytes())
    assert (joined.partial, len(joined.tables)) == (missing, 2)
    Path("all.json").unlink()
    assert "shards 2/3 and 3/3 are missing" in refused(capsys, names[0])


def test_a_shard_that_ended_before_its_tests_is_missing(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    lost = part_of(2, shard=None, tables=(), partial="interrupted: 1 error during collection")
    names = write(part_of(1), lost, part_of(3))
    assert "2.json has no cells: interrupted: 1 error during collection" in refused(capsys, *names)
    assert cli.main(["merge", "--partial", *names]) == 1
    assert "this report is partial: shard 2/3 is missing" in capsys.readouterr().out
    assert "no shard came as far as its first test" in refused(capsys, "--partial", "2.json")


COMMIT = "b" * 40


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (part_of(2, commit=COMMIT), f"the commit is {REPORT.commit} and {COMMIT}"),
        (part_of(2, version="9.9"), f"the version of pytest-ftgate is {REPORT.version} and 9.9"),
        (part_of(2, alpha=0.05), "ftgate_alpha is 0.01 and 0.05"),
        (part_of(2, options={}), "ftgate_alpha is 0.01 and at its default"),
        (part_of(2, options={"ftgate_alpha": "0.01", "--ftgate-metrics": "x\x1b[31m"}), "is at its default and x"),
        (part_of(2, parts=4), "the number of shards is 3 and 4"),
        (part_of(2, planned=(*PLANNED, "test_new.py::test_new[a]")), "did not select the same cells: test_new.py"),
        (part_of(1), "1.json and 2.json are both shard 1/3: leave one of them out"),
        (part_of(2, places=tuple(range(len(PLANNED)))), "measured twice, in 1.json and 2.json: tests/test_words.py"),
        (msgspec.structs.replace(part_of(2), tables=()), None),
        (msgspec.structs.replace(part_of(2), shard=None), "2.json is the report of a whole run: ftgate merge joins"),
        (part_of(2, places=(10_000,)), "2.json contradicts itself: shard 2/3 of"),
        (part_of(2, part=7), "2.json contradicts itself: shard 7/3 of"),
        (part_of(2, tables=REPORT.tables[:1]), "2.json is shard 2/3 and has cells that are not in that: tests/test_wo"),
        (part_of(2, tables=(REPORT.tables[1], REPORT.tables[1])), "2.json has a cell twice"),
        (part_of(2, hypotheses=3), "have 2.00 times its level: 12 in 1.json, 3 in 2.json, 12 in 3.json; measure all"),
    ],
)
def test_what_is_not_of_one_run_is_refused(
    write: Write, capsys: pytest.CaptureFixture[str], second: Report, said: str | None
) -> None:
    names = write(part_of(1), second, part_of(3))
    if said is None:  # a shard whose tests are all skipped has its part all the same
        assert cli.main(["merge", *names]) == 1
    else:
        found = refused(capsys, *names)
        assert "ftgate: error: " in found
        assert said in found
        assert "\x1b" not in found


def test_cells_that_no_shard_has_are_named(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    one = part_of(1)
    assert one.shard is not None
    fewer = msgspec.structs.replace(one.shard, places=one.shard.places[1:])
    rows = one.tables[0].rows[1:]
    one = msgspec.structs.replace(one, shard=fewer, tables=(msgspec.structs.replace(one.tables[0], rows=rows),))
    found = refused(capsys, *write(one, part_of(2), part_of(3)))
    assert f"no shard measured {PLANNED[0]}: the machines did not split the tests in the same way" in found


def test_sources_that_cannot_be_read_are_named(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    names = write()
    assert "1.json is given twice" in refused(capsys, *names, names[0])
    assert "gone.json: cannot be read: No such file or directory" in refused(capsys, *names, "gone.json")
    Path("endless.json").symlink_to("/dev/zero")
    assert "endless.json: cannot be read: it is not a regular file" in refused(capsys, *names, "endless.json")
    Path("cut.json").write_text('{"schema": 6, "tables": [', encoding="utf-8")
    assert "cut.json is not JSON" in refused(capsys, *names[:2], "cut.json")
    Path("folder").mkdir()
    assert "1.json is a JSON report, folder is a folder" in refused(capsys, *names, "folder")


def test_the_order_of_tests_may_differ(write: Write) -> None:
    """As with pytest-randomly: the order is that of the first shard."""
    two = part_of(2)
    assert two.shard is not None
    planned = PLANNED[::-1]
    places = tuple(len(PLANNED) - 1 - place for place in two.shard.places)
    two = msgspec.structs.replace(two, shard=msgspec.structs.replace(two.shard, planned=planned, places=places))
    assert cli.main(["merge", *write(part_of(1), two, part_of(3)), "-o", "all.json"]) == 1
    joined = json.parse(Path("all.json").read_bytes())
    assert [table.title for table in joined.tables] == [table.title for table in REPORT.tables]
