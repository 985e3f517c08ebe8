"""What loaded launches hold and import, on real interpreters of both builds: lines, modules, times."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import FORK, FORKSERVER, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build

from pytest_ftgate.measure import loads as reading
from pytest_ftgate.model.sample import Held, Loads
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner.explain import HERE
from pytest_ftgate.runner.loads import STANDARD, line_of
from pytest_ftgate.runner.protocol import COLD

KIB, MIB = 1 << 10, 1 << 20
HELD_MS = 100
HOLDS = """
    BALLAST = b"x" * (8 << 20)
    HELD = []

    @ftgate.compare(threads)
    {kind} test_it(worker):
        HELD.append(b"x" * (64 << 10))
"""


def loaded(bench: Bench, executor: Executor, build: str = "3.14", *, barriers: int = 0, **options: object) -> Loads:
    """What one launch of `test_it` loads, whose workers are kept."""
    handle = bench.start(executor, build=build, side="loaded", reuse="pool", **options)  # type: ignore[arg-type]
    handle.ready()
    handle.iteration(COLD)
    handle.measure_held(HELD_MS * 1_000_000, sampled=False, one_ns=1e6)
    for _ in range(barriers):
        handle.barrier(2, 0, collects=True)
    found = handle.finish().loads
    assert found is not None
    return found


def line(found: Loads, beginning: str) -> Held:
    (one,) = (each for each in found.lines if each.text.startswith(beginning))
    return one


@each_on_a_build((SERIAL, THREADS, TASKS, FORK, SPAWN, FORKSERVER))
def test_lines_hold_what_they_allocated_in_all_processes_and_leave_what_each_call_adds(
    bench: Bench, executor: Executor, build: str
) -> None:
    bench.write(HOLDS.format(kind="async def" if executor == TASKS else "def"))
    workers = 1 if executor == SERIAL else 2
    found = loaded(bench, executor, build, barriers=3, workers=workers)
    ballast, left = line(found, "BALLAST"), line(found, "HELD.append")
    assert (ballast.line, Path(ballast.file).name) == (3, "test_workload.py")
    # A forked worker has its parent's; each other one imports the module itself, as the main process does.
    copies = 1 + workers * (executor in (SPAWN, FORKSERVER))
    assert ballast.bytes == pytest.approx(copies * 8 * MIB, rel=0.01)
    assert ballast.left == 0
    assert left.bytes > 64 * KIB
    assert left.left == pytest.approx(workers * 64 * KIB, rel=0.05)
    assert "pytest_ftgate" in found.modules
    assert not any(each.file.startswith(HERE) for each in found.lines)
    assert found.imports == ()


def test_what_a_call_holds_while_it_works_is_seen(bench: Bench) -> None:
    bench.write("""
        import time

        @ftgate.compare(threads)
        def test_it(worker):
            scratch = bytearray(4 << 20)
            time.sleep(0.2)
            del scratch
    """)
    assert line(loaded(bench, THREADS, workers=1), "scratch").bytes > 2 * MIB


@each_on_a_build((SPAWN, THREADS), both=())
def test_imports_are_timed_with_what_imported_them(bench: Bench, executor: Executor, build: str) -> None:
    bench.write("import time\ntime.sleep(0.05)\n", "slow_tables.py")
    bench.write("""
        import slow_tables

        @ftgate.compare(threads)
        def test_it(worker):
            pass
    """)
    found = loaded(bench, executor, build, loads="imports")
    times = {each.name: each for each in found.imports}
    slow = times["slow_tables"]
    assert slow.importer == "test_workload"
    assert slow.all_ns >= slow.own_ns >= 50_000_000
    own = times["test_workload"]
    rounded_ns = 2  # each is a mean over the workers
    assert own.own_ns <= own.all_ns - slow.all_ns + rounded_ns, "what it imports is not its own"
    assert "slow_tables" in found.modules
    assert found.lines == ()


def test_an_allocation_is_of_the_innermost_line_that_is_no_library_s() -> None:
    own, site = ("/project/work.py", 3), (f"{STANDARD}site-packages/lib/a.py", 9)
    standard, frozen, ours = (f"{STANDARD}json/decoder.py", 1), ("<frozen importlib>", 2), (f"{HERE}worker.py", 4)
    assert line_of((standard, frozen, own, ours)) == own
    assert line_of((standard, site, own)) == site
    assert line_of((standard, frozen)) == standard
    assert line_of((frozen, ours)) is None


def test_what_is_half_written_does_not_count_and_what_is_not_ours_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "held.1.7.part").write_bytes(b"half")
    (tmp_path / "holds").touch()
    assert reading.read(tmp_path, 7, [], lambda _: None) == Loads()
    (tmp_path / "held.1.7").write_bytes(b"junk")
    with pytest.raises(ValueError, match="Expected"):
        reading.read(tmp_path, 7, [], lambda _: ["no", "such", "thing"])


def test_processes_that_do_not_write_are_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "WRITTEN_S", 0.05)
    with reading.written(tmp_path, [1, None]):
        assert (tmp_path / "holds").exists()
    assert not (tmp_path / "holds").exists()
