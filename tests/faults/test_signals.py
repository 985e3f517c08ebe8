"""A random signal to a random process of a run, at a random moment: one cell errs, and nothing else is lost."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from bench import FORK, SERIAL, THREADS, Bench
from fake_launcher import GIL, Quiet, measurement_of

from pytest_ftgate.measure.cell_run import PreparedTarget
from pytest_ftgate.measure.launch import Handle, Request
from pytest_ftgate.measure.launchers import workload
from pytest_ftgate.measure.round_plan import Allowance
from pytest_ftgate.model.sample import Sample
from pytest_ftgate.model.spec import Cell, Group, Source, Spec, Target

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for what is left in /proc")

EXECUTORS = (SERIAL, THREADS, FORK)
WORKLOAD = """
    @ftgate.compare(threads, workers=[2])
    def test_it(worker):
        return sum(range(20_000))
"""
FAST = 3
# A launch that is stopped by its signal takes so long; a busy machine keeps a sound one waiting, too.
STOPPED_S = 30.0
SOUND_S = 120.0


class Outcome(msgspec.Struct):
    samples: dict[str, Sample]
    starts: Counter[tuple[str, str]]
    events: int


class Sender(Quiet):
    """At one of the events of a run, sends a signal to one of the processes that are there a moment later."""

    def __init__(self, chance: random.Random | None = None, event: int = 0) -> None:
        super().__init__()
        self.chance = chance
        self.event = event
        self.events = 0
        self.sent = ""
        self.sending = threading.Lock()
        self.timers: list[threading.Timer] = []

    def advance(self, label: str, phase: str, number: int, of: int, left_s: float | None) -> None:
        self.events += 1
        if self.chance is not None and self.events >= self.event and not self.sent:
            self.timers.append(threading.Timer(self.chance.choice((0.0, 0.002, 0.02)), self.send))
            self.timers[-1].start()

    def send(self) -> None:
        assert self.chance is not None
        with self.sending:
            below = sorted(psutil.Process().children(recursive=True), key=lambda each: each.pid)
            if below and not self.sent:
                process, number = self.chance.choice(below), self.chance.randrange(1, 65)
                with contextlib.suppress(psutil.Error, OSError):
                    name = " ".join(process.cmdline())[-60:]
                    os.kill(process.pid, number)
                    self.sent = f"signal {number} to {name!r} at event {self.events}"


class Counting:
    """Counts the launches of each kind."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.starts: Counter[tuple[str, str]] = Counter()

    def start(self, request: Request) -> Handle:
        self.starts[request.cell.label, request.role] += 1
        handle = self.bench.launcher.start(request)
        self.bench.started.append(handle)
        return handle


def outcome_of(bench: Bench, python: str, sender: Sender, timeout_s: float) -> Outcome:
    """One round of three cells."""
    path = bench.write(WORKLOAD)
    source = Source(path=str(path), line=1, module="test_workload", qualname="test_it", sys_path=(str(bench.folder),))
    spec = Spec(nodeid="test_it", source=source, body="worker", executors=EXECUTORS, workers=(2,), reuse="fresh")
    target = Target(spec="3.14", request="3.14")
    cells = tuple(
        Cell(nodeid=f"test_it[3.14-{executor.label}-w2]", target=target, executor=executor, workers=2)
        for executor in EXECUTORS
    )
    prepared = PreparedTarget(interpreter=GIL, python=python, key="build", environment={})
    launcher = Counting(bench)
    run = measurement_of(
        launcher,
        Group(key="test_it", spec=spec, cells=cells),
        Allowance(launches=1, iterations=2, timeout_s=timeout_s),
        targets={"3.14": prepared},
        listener=sender,
    )
    for cell_run in run.cell_runs:
        cell_run.require(frozenset({"time", "control", "locks"}))
    samples = {sample.cell.label: sample for sample in run.measure()}
    for timer in sender.timers:
        timer.join()
    return Outcome(samples, launcher.starts, sender.events)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, executables: dict[str, str]) -> Outcome:
    """A run without faults."""
    found = outcome_of(Bench(tmp_path_factory.mktemp("sound"), executables), executables["3.14"], Sender(), SOUND_S)
    errors = {label: error for label, sample in found.samples.items() if (error := sample.error or sample.locks_error)}
    assert errors == {}
    return found


@pytest.fixture
def unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for temporary files of its own is as it was; others run beside this test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long if seed >= FAST else ()) for seed in range(200)]
)
def test_a_random_signal_costs_one_cell(
    bench: Bench, executables: dict[str, str], sound: Outcome, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "START_TIMEOUT_S", STOPPED_S)
    chance = random.Random(seed)
    sent = ""
    while not sent:  # else the launches were ending
        sender = Sender(chance, chance.randrange(1, sound.events + 1))
        found = outcome_of(bench, executables["3.14"], sender, STOPPED_S)
        sent = sender.sent
    assert all(count <= sound.starts[launch] for launch, count in found.starts.items()), sent
    erring = {label: error for label, sample in found.samples.items() if (error := sample.error or sample.locks_error)}
    assert len(erring) <= 1, (sent, erring)
    for label, sample in found.samples.items():
        if label not in erring:
            whole = sound.samples[label]
            assert len(sample.launches) == len(whole.launches), sent
            assert len(sample.of("locks")) == len(whole.of("locks")), sent
    for error in erring.values():
        assert "a mistake of pytest-ftgate" not in error.reason, (sent, error)
