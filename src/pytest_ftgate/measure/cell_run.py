"""What is gathered of each cell of a tandem, and whether the cells agree on their results."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from ..model import EVERYTHING, Cell, Interpreter, Launch, Need, Sample, Spec, Struct, WorkloadError
from .launch import LaunchRole


class Limits(Struct, frozen=True, kw_only=True):
    """How much may be measured; seconds and counts. `launches` and `turns` fix what else adapts.

    `least_turns` are taken wherever the budget allows them: a tail of fewer turns says nothing.
    """

    budget_s: float = 60.0
    floor: int = 5
    at_most: int = 30
    launches: int | None = None
    iterations: int | None = None
    most_iterations: int = 50
    least_iterations: int = 0
    effect: float = 0.05
    hold_s: float = 0.25
    timeout_s: float = 60.0


class PreparedTarget(Struct, frozen=True, kw_only=True):
    """A target that can run: its description, the python of its environment, and its baseline key."""

    interpreter: Interpreter
    python: str
    key: str
    environment: dict[str, str]
    waits_unavailable: str = ""


class Entry:
    """What has been gathered of one cell."""

    def __init__(self, cell: Cell, ready: PreparedTarget, spec: Spec, reference: Entry | None = None) -> None:
        self.cell = cell
        self.ready = ready
        self.spec = spec
        self.reference = reference
        self.needs: frozenset[Need] = EVERYTHING
        self.launches: list[Launch] = []
        self.control: list[Launch] = []
        self.locks: list[Launch] = []
        self.memory: list[Launch] = []
        self.floor: list[Launch] = []
        self.growth: list[Launch] = []
        self.growth_floor: list[Launch] = []
        self.error: WorkloadError | None = None
        self.unsupported: str | None = None

    @property
    def alive(self) -> bool:
        """Whether this cell can still be measured."""
        return self.error is None and self.unsupported is None

    @property
    def parks(self) -> bool:
        """Whether its workers stop where we say, and our probes are in them: in a program they are not."""
        return self.cell.executor.program is None

    def ask(self, needs: frozenset[Need]) -> None:
        """What is still needed, as far as such launches can be: no lock probe is in a program."""
        self.needs = needs if self.parks else needs - {"locks"}

    @property
    def both(self) -> list[Entry]:
        """The cell, and its reference where it has one."""
        return [self] if self.reference is None else [self, self.reference]

    @property
    def family(self) -> tuple[str, str]:
        """What the cells of one executor and target share, whatever their worker count."""
        return self.cell.target.spec, self.cell.executor.label

    def of(self, side: LaunchRole) -> list[Launch]:
        """The launches of a side that takes turns."""
        return {"own": self.launches, "control": self.control, "locks": self.locks}[side]

    def sample(self, alone: Entry | None = None) -> Sample:
        """All of it, frozen; `alone` is the one-worker cell beside it."""
        reference = None
        if self.reference is not None:
            reference = self.reference.sample(alone.reference if alone else None)
        return Sample(
            reuse=self.spec.reuse,
            duration_s=self.spec.duration_s,
            measures=measures(self.cell, self.spec),
            cell=self.cell,
            interpreter=self.ready.interpreter,
            key=self.ready.key,
            launches=tuple(self.launches),
            control=tuple(self.control),
            locks=tuple(self.locks),
            memory=tuple(self.memory),
            floor=tuple(self.floor),
            growth=tuple(self.growth),
            growth_floor=tuple(self.growth_floor),
            single=tuple(alone.launches) if alone else (),
            error=self.error,
            unsupported=self.unsupported,
            reference=reference,
        )


def results_of(entry: Entry) -> frozenset[str]:
    """Every distinct result that the launches of a cell gave."""
    return frozenset(result for launch in entry.launches for result in launch.results)


def disagreements(entries: Sequence[Entry]) -> list[tuple[Entry, WorkloadError]]:
    """Cells whose results differ from the other cells', or from one iteration to the next.

    What most cells gave is taken as right; among equals, what the first cell gave. Cells with another number of workers
    may give another result.
    """
    counts = dict.fromkeys((entry.cell.workers, entry.cell.roles) for entry in entries)
    groups = ([entry for entry in entries if (entry.cell.workers, entry.cell.roles) == count] for count in counts)
    return [found for group in groups for found in _disagreements(group)]


def _disagreements(entries: Sequence[Entry]) -> list[tuple[Entry, WorkloadError]]:
    mend = "If it may differ, assert what must hold with @test.check, or return nothing."
    found = []
    steady = [entry for entry in entries if len(results_of(entry)) == 1]
    counted = Counter(next(iter(results_of(entry))) for entry in steady)
    right = counted.most_common(1)[0][0] if counted else None
    for entry in entries:
        results = sorted(results_of(entry))
        if len(results) > 1:
            shown = "\n".join(f"  {result}" for result in results[:4])
            reason = f"gave {len(results)} different results from one iteration to the next"
            found.append((entry, WorkloadError(reason=reason, detail=f"{shown}\n{mend}")))
        elif results and results[0] != right:
            detail = f"  here:      {results[0]}\n  elsewhere: {right}\n{mend}"
            found.append((entry, WorkloadError(reason="gave another result than the other cells", detail=detail)))
    return found


def measures(cell: Cell, spec: Spec) -> str:
    """What a cell's program is asked to do and with what, as a short digest; empty for a body that needs nothing more.

    Another command line, load or requirement is another measurement: figures of the one say nothing of the other.
    """
    program = cell.executor.program
    if program is None and not spec.requires:
        return ""
    said = [program and (program.argv, program.environment), spec.service, spec.requires, spec.window_s]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]
