"""Functions that take the added time where no lock can be named, measured through real launches on real builds."""

from __future__ import annotations

from pathlib import Path

import msgspec
from bench import THREADS, Bench
from report_by_hand import FREE_THREADED

from physical import confirmed
from pytest_ftgate.judge import explain
from pytest_ftgate.model.report import Part
from pytest_ftgate.model.sample import Launch, Profile, Sample
from pytest_ftgate.model.spec import Cell, Target
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

BUILD = "3.14t"
PAIRS, TURNS, PROFILED = 3, 10, 40
ENOUGH = 2 * explain.LEAST_SAMPLES

COPIES = """
    import time

    class Shared:
        pass

    ONE = Shared()

    def prepare():
        return sum(range(60_000))

    def copy(what):
        items = [what] * 1000
        for _ in range(400):
            held = items[:]
            del held

    @ftgate.compare(threads)
    def test_it(worker):
        prepare()
        copy(WHAT)
"""
"""Every copy of the list takes 1000 references, and gives them back."""


def pair_of(bench: Bench, before: str, after: str) -> list[Bench]:
    """A folder for each side."""
    sides = []
    for source in (before, after):
        folder = bench.folder / f"side {len(list(bench.folder.iterdir()))}"
        folder.mkdir()
        sides.append(Bench(folder, bench.executables))
        sides[-1].write(source)
    return sides


def timed(sides: list[Bench], order: int) -> list[Launch]:
    """A timing launch of each side, interleaved."""
    handles = [side.start(THREADS, build=BUILD) for side in sides]
    for handle in handles:
        handle.ready()
        handle.iteration(COLD)
        handle.iteration(WARMUP)
    for _ in range(TURNS):
        for handle in handles:
            handle.iteration(MEASURED)
    return [msgspec.structs.replace(handle.finish(), order=order) for handle in handles]


def profiled(side: Bench) -> Profile:
    """The samples of as many profile launches as it takes: on a busy machine one gives few."""
    profiles: list[Profile] = []
    while sum(each.count for profile in profiles for each in profile.samples) < ENOUGH and len(profiles) < 10:
        profiles.append(profiled_once(side))
    return explain.joined(profiles)


def profiled_once(side: Bench) -> Profile:
    """The samples of a profile launch; a file has the same name on both sides."""
    handle = side.start(THREADS, build=BUILD, side="profile", sampling_ns=500_000)
    handle.ready()
    for kind in (COLD, WARMUP, *[MEASURED] * PROFILED):
        handle.iteration(kind)
    profile = handle.finish().profile
    assert profile is not None
    replace = msgspec.structs.replace
    return replace(profile, functions=tuple(replace(each, file=Path(each.file).name) for each in profile.functions))


def named(bench: Bench, before: str, after: str) -> tuple[Part, ...]:
    """The functions that take the added time."""
    sides = pair_of(bench, before, after)
    pairs = [timed(sides, order) for order in range(PAIRS)]
    cell = Cell(nodeid="test_it[x]", target=Target(spec=BUILD, request=BUILD), executor=THREADS, workers=2)
    then, now = (
        Sample(cell=cell, interpreter=FREE_THREADED, key="", all_launches=launches)
        for launches in zip(*pairs, strict=True)
    )
    added = explain.added_time(now, then)
    assert added is not None
    assert added.grew
    found = explain.slower_functions(profiled(sides[0]), profiled(sides[1]), added)
    assert found.parts, found
    return found.parts


@confirmed
def test_reference_counts_that_threads_share_are_named_by_the_function_that_takes_them(bench: Bench) -> None:
    """There is no lock to name: the function does the same and takes longer."""
    found = named(bench, COPIES.replace("WHAT", "Shared()"), COPIES.replace("WHAT", "ONE"))
    assert [each.name for each in found] == ["copy"]
