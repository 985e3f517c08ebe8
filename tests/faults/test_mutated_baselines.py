"""Stored baselines, mutated: an error of ours, or figures that still tell code that became ten times as slow."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import msgspec
import pytest
from fake_launcher import GIL, MIB, MS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import mutate, mutate_text
from values import held, probed, timed

from pytest_ftgate import cli
from pytest_ftgate.judge import metrics
from pytest_ftgate.judge.judge import ComparedWith, Judge, Policy
from pytest_ftgate.judge.values import TAIL_OF_CONTROL, WALL_OF_CONTROL, Values
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.model.sample import Sample
from pytest_ftgate.model.spec import Cell, Executor, Source, Spec, Target
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.stats import alpha_spending
from pytest_ftgate.store.folder import assembled
from pytest_ftgate.store.schema import POSITIVE, Recording, StoredRun, decode, encode

ROOT = Path(__file__).parents[2]
SLOWER = 10.0
METHODS = ("fork", "forkserver", "spawn")
POLICY = Policy(metrics=metrics.GATING, cli=(), ini=(), alpha=0.01, beta=alpha_spending.BETA, probe_cost=0.25)


class Stored(NamedTuple):
    """A file of this repository with one cell, and that cell."""

    content: bytes
    test: str
    label: str
    recording: Recording


@cache
def stored() -> tuple[Stored, ...]:
    """Of each test of our examples that measures executors of Python, the first cell: a mutation is cheap, and hits."""
    found = []
    for path in sorted((ROOT / "baselines").rglob("*.json")):
        run = decode(path.read_bytes(), path.name)
        kinds = (*METHODS, "threads", "serial")
        chosen = (item for item in run.cells.items() if not item[1].windows and item[1].executor in kinds)
        label, cell = next(chosen, ("", None))
        if cell is not None:
            builds = {cell.build: run.interpreters[cell.build]}
            one = msgspec.structs.replace(run, cells={label: cell}, interpreters=builds)
            found.append(Stored(encode(one).encode(), run.test, label, cell))
    return tuple(found)


def slower(of: Stored) -> Sample:
    """A sample of that cell, ten times as slow over its control, and as large as it was."""
    cell = of.recording
    by_order = [value for value in cell.values[WALL_OF_CONTROL] if value is not None]
    wall_ns = round(2 * MS * SLOWER * median(by_order))
    uss = round(next((each for each in cell.values.get("uss", ()) if each), 20 * MIB))
    kind: Any = "processes" if cell.executor in METHODS else cell.executor
    method: Any = cell.executor if cell.executor in METHODS else None
    rounds = range(12)
    sample = Sample(
        cell=Cell(
            nodeid=f"{of.test}[{of.label}]",
            target=Target(spec="3.14", request="3.14"),
            executor=Executor(kind=kind, method=method),
            workers=cell.workers,
            body=cell.body,
        ),
        interpreter=GIL,
        key="k",
        all_launches=tuple(timed(order, [wall_ns + order] * 12) for order in rounds),
        reuse=cell.reuse,
        measures=cell.measures,
    )
    sample = sample.with_launches("control", (timed(order, [2 * MS + order] * 12) for order in rounds))
    sample = sample.with_launches("memory", (held(order, uss) for order in rounds))
    return sample.with_launches("locks", (probed(order, 0.0, cell.workers) for order in rounds))


def judged(sample: Sample, run: StoredRun) -> list[tuple[Decision, Recording]]:
    """The decision on the sample by each stored cell of a file, and what it was compared with."""
    found = []
    source = Source(path="x.py", line=1, module="x", qualname="x")
    cell = sample.cell
    spec = Spec(
        nodeid="x", source=source, body=cell.body, executors=(cell.executor,), workers=(cell.workers,), reuse="fresh"
    )
    for builds in assembled(run.test, {"file.json": run}).cells.values():
        for entry in builds.values():
            compared_with = {cell.nodeid: ComparedWith(basis="stored", entry=entry)}
            verdict = Judge(spec, POLICY, compared_with, 12).verdict(Values(sample))
            found.append((verdict.decision, entry.recordings[-1]))
    return found


def check(content: bytes, of: Stored) -> bool:
    """Whether it was decoded; what passes the slow sample holds times that are as slow."""
    try:
        run = decode(content, "file.json")
    except FtgateError:
        return False
    for decision, recording in judged(slower(of), run):
        if decision in (Decision.PASSED, Decision.IMPROVED):
            was, now = (median(each.by_order(WALL_OF_CONTROL).values()) for each in (of.recording, recording))
            assert now > SLOWER / 1.5 * was
    return True


def mutated(random: Random, of: Stored) -> bytes:
    """The file with values of another kind or size; one of four with another text."""
    content = json.dumps(mutate(json.loads(of.content), random.randrange)).encode()
    return content if random.randrange(4) else mutate_text(content, random.randrange)


@settings(max_examples=150, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False), number=st.integers(0, 100))
def test_a_mutated_baseline_never_passes_what_is_ten_times_as_slow(random: Random, number: int) -> None:
    of = stored()[number % len(stored())]
    check(mutated(random, of), of)


@pytest.mark.long
def test_nor_does_any_of_many(capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred times as many, and how many of them were decoded."""
    decoded = 0
    for seed in range(15_000):
        of = stored()[seed % len(stored())]
        decoded += check(mutated(Random(seed), of), of)
    with capsys.disabled():
        print(f" {decoded} of 15000 were decoded", end="")


def test_the_files_as_they_are_show_it() -> None:
    assert len(stored()) >= 2
    for of in stored():
        run = decode(of.content, "file.json")
        assert {decision for decision, _ in judged(slower(of), run)} == {Decision.REGRESSED}


# -- what was found


def edited(path: str, value: Any) -> bytes:
    """The first file with a value in place of the one at a path."""
    content = json.loads(stored()[0].content)
    *folders, last = path.replace("CELL", stored()[0].label).split(">")
    place = content
    for name in folders:
        place = place[name]
    place[last] = value
    return json.dumps(content).encode()


CELL = "cells>CELL"


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (f"{CELL}>values>wall", [0, 0, 0], "values.wall: is 0, which no launch can give"),
        (f"{CELL}>values>wall", [None, None, None], "values.wall: holds no number"),
        (f"{CELL}>values>wall", [], "its length is not that of orders"),
        (f"{CELL}>values>wall", [10**400, 1, 1], "out of range"),
        (f"{CELL}>values>wall", [1e40, 1, 1], "<= 1e+30"),
        (f"{CELL}>values>cores", [5e-324, 1, 1], "is closer to 0 than 1e-30"),
        (f"{CELL}>values", {}, "of length >= 1"),
        (f"{CELL}>orders", [], "orders: Expected `array` of length >= 1"),
        (f"{CELL}>body", "\udc80", "is not Unicode"),
        (f"{CELL}>loops", 0, "loops: Expected `int` >= 1"),
        ("commit", "HEAD", "$.commit: is not of the form"),
        ("commit", "41fee1f", "$.commit: is not of the form"),
        ("recorded_at", "2026-01-02", "$.recorded_at: is not a time"),
        ("recorded_at", "9026-01-02T00:00:00+00:00", "$.recorded_at: is not a time"),
        ("seed", 10**400, "$.seed: Expected `int`"),
        ("machine>fingerprint", "../x", "$.machine.fingerprint: is not of the form"),
        ("cells", {}, "$.cells: holds no cell"),
    ],
)
def test_what_means_nothing_is_an_error_that_names_file_field_and_fix(path: str, value: Any, fault: str) -> None:
    if isinstance(value, list):  # as long as the recording
        value = value * len(stored()[0].recording.orders)
        value = value[: len(stored()[0].recording.orders)]
    with pytest.raises(FtgateError) as raised:
        decode(edited(path, value), "file.json")
    assert fault in str(raised.value)
    assert str(raised.value).startswith("file.json: ")
    assert "--ftgate-update" in str(raised.value)


def test_a_whole_commit_is_one_of_either_length() -> None:
    for commit in ("", "a" * 40, "b" * 64, "c" * 40 + "+"):
        assert decode(edited("commit", commit), "file.json").commit == commit


def test_a_baseline_without_the_time_cannot_pass_by_the_rest() -> None:
    """What is as large as before, and ten times as slow, is open: it says that the time is not stored."""
    of = stored()[0]
    content = json.loads(of.content)
    for name in (WALL_OF_CONTROL, TAIL_OF_CONTROL):
        content["cells"][of.label]["values"].pop(name, None)
    ((decision, _),) = judged(slower(of), decode(json.dumps(content).encode(), "file.json"))
    assert decision is Decision.INCONCLUSIVE


def test_what_is_never_zero_is_so_in_the_table_of_metrics() -> None:
    table = {name for name in POSITIVE if name in metrics.TABLE}
    assert table == {"wall", "tail", "uss", "pss", "rss", "scaling"}
    assert not any(metrics.row(name).may_be_zero for name in table)


def test_a_command_names_the_file_and_does_not_say_regressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "baselines" / "x.py" / "test_x"
    folder.mkdir(parents=True)
    for content in (edited(f"{CELL}>orders", []), edited("seed", 10**400), b"[" * 100_000):
        (folder / "20260102T030405-00000000.json").write_bytes(content)
        assert cli.main(["baseline", "list"]) == 2
        assert "20260102T030405-00000000.json" in capsys.readouterr().err
