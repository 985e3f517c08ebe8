"""Whatever a launch raises, in any of its methods, is the error of its cell: once, and of that cell alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import msgspec
import pytest
from fake_launcher import MIB, At, BrokenTest, FakeLauncher, group_of, measurement_of, memory_of

from pytest_ftgate.kit.values import Struct
from pytest_ftgate.measure.launch import LaunchRole
from pytest_ftgate.measure.round_plan import Allowance
from pytest_ftgate.model.sample import Sample
from pytest_ftgate.runner.protocol import BARRIER, CHECK, COLD, HOLD, MEASURED, WARMUP

LABELS = ("3.14-threads-w2", "3.14-fork-w2", "3.14-spawn-w2")
AT_FAULT = LABELS[1]


def refused() -> Exception:
    """What msgspec raises for a message of another shape."""
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert("a text", type=Struct)
    return raised.value


ERRORS: dict[str, Callable[[], Exception]] = {
    "OSError": lambda: OSError(24, "Too many open files"),
    "ValueError": lambda: ValueError("40 is not a valid Signals"),
    "KeyError": lambda: KeyError("event"),
    "ValidationError": refused,
}
METHODS = ("start", "ready", COLD, MEASURED, CHECK, HOLD, BARRIER, "close", "finish", "kill")
ROLES: dict[LaunchRole, tuple[str, ...]] = {
    "own": METHODS,
    "control": ("start", "ready", COLD, WARMUP, MEASURED, "close", "finish", "kill"),
    "locks": ("start", "ready", COLD, WARMUP, MEASURED, "close", "finish", "kill"),
    "empty": ("start", "ready", BARRIER, "finish", "kill"),
}


class Outcome(Struct, frozen=True, kw_only=True):
    """The samples of a run by label, and how many launches of each kind were started."""

    samples: dict[str, Sample]
    starts: Counter[tuple[str, LaunchRole, bool]]
    raised: int


def outcome_of(trouble: Callable[[At], BaseException | None], *, paired: bool = False) -> Outcome:
    """Two rounds of three cells."""
    launcher, raised = FakeLauncher(), Counter[str]()

    def scripted(at: At) -> BaseException | None:
        error = trouble(at)
        raised["here"] += error is not None
        return error

    launcher.trouble = scripted
    launcher.memory = lambda _: memory_of(20 * MIB)
    group = group_of("threads", "fork", "spawn")
    run = measurement_of(launcher, group, Allowance(launches=2, iterations=2), paired=paired)
    samples = {sample.cell.label: sample for sample in run.measure()}
    assert not launcher.alive
    return Outcome(samples=samples, starts=launcher.starts, raised=raised["here"])


@cache
def without_faults(paired: bool) -> Outcome:
    return outcome_of(lambda _: None, paired=paired)


def check_one_cell_errs(found: Outcome, error: str, *, paired: bool, role: LaunchRole = "own") -> None:
    sound = without_faults(paired)
    assert found.raised, "the fault was never tried"
    own = {launch: count for launch, count in found.starts.items() if launch[1] != "empty"}  # which all cells share
    assert all(count <= sound.starts[launch] for launch, count in own.items()), "measured twice"
    for label in LABELS:
        sample = found.samples[label]
        if label != AT_FAULT:
            assert (sample.error, sample.locks_error) == (None, None)
            assert len(sample.launches) == len(sound.samples[label].launches) == 2
            assert len(sample.of("memory")) == len(sound.samples[label].of("memory"))
            continue
        failed = sample.locks_error if role == "locks" else sample.error
        if failed is None and sample.reference is not None:
            failed = sample.reference.error
        assert failed is not None
        assert error in failed.reason
        assert ("a mistake of pytest-ftgate: " in failed.reason) == (error != "OSError")
        assert error in failed.detail.splitlines()[-1]
        assert (sample.error is None) == (role == "locks" or failed is not sample.error)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("role", "method"), [(role, method) for role, methods in ROLES.items() for method in methods])
def test_whatever_a_launch_raises_is_the_error_of_its_cell_alone(role: LaunchRole, method: str, error: str) -> None:
    def trouble(at: At) -> Exception | None:
        return ERRORS[error]() if (at.label, at.side, at.event) == (AT_FAULT, role, method) else None

    check_one_cell_errs(outcome_of(trouble), error, paired=False, role=role)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_so_it_is_of_either_side_of_a_pair(method: str, reference: bool, error: str) -> None:
    def trouble(at: At) -> Exception | None:
        here = (at.label, at.event, at.reference) == (AT_FAULT, method, reference) and at.side == "own"
        return ERRORS[error]() if here else None

    check_one_cell_errs(outcome_of(trouble, paired=True), error, paired=True)


def test_a_broken_test_is_no_error_of_a_cell() -> None:
    with pytest.raises(BrokenTest):
        outcome_of(lambda at: BrokenTest() if at.event == MEASURED else None)
