"""The examples: their shape in a short real run, and in the baselines that are committed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from conftest import BUILDS
from pytest_ftgate import baselines, figures
from pytest_ftgate.model import Figures
from pytest_ftgate.reports import json as json_report

ROOT = Path(__file__).parents[1]
OVERHEAD = "examples/scenario1_overhead/test_overhead.py"
SHARED_SET = "examples/scenario2_shared_set/test_shared_set.py"
METHODS = ("fork", "forkserver", "spawn")


def measured(tmp_path: Path, executables: dict[str, str], *options: str) -> dict[str, Figures]:
    """Cell id -> figures of a short real run of an example, where nothing is compared with a baseline."""
    report = tmp_path / "report.json"
    folders = dict.fromkeys(str(Path(path).parent) for path in executables.values())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FTGATE_", "PYTEST_"))}
    environment["PATH"] = os.pathsep.join([*folders, environment.get("PATH", "")])
    short = ("--ftgate-launches=1", f"--ftgate-baselines={tmp_path / 'none'}", f"--ftgate-report=json:{report}")
    command = [sys.executable, "-m", "pytest", "--ftgate", "-p", "no:cacheprovider", *short, *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    read = json_report.parse(report.read_text(encoding="utf-8"))
    return {row.cell.label: row.figures for table in read.tables for row in table.rows}


def value(number: float | None) -> float:
    """A figure that must be there."""
    assert number is not None
    return number


def wall(cell: Figures) -> float:
    """Mean time of an iteration or operation, ns."""
    assert cell.wall_ns is not None
    return cell.wall_ns.value


def test_scenario_1_has_its_shape(tmp_path: Path, executables: dict[str, str]) -> None:
    cells = measured(tmp_path, executables, "--ftgate-turns=5", "-k", "fresh", OVERHEAD)
    for build in BUILDS:
        threads, fork, forkserver, spawn = (cells[f"{build}-{name}-w8"] for name in ("threads", *METHODS))
        # On two cores the work weighs more than starting threads or forks: those two are told apart by the start.
        assert value(threads.start_ns) < value(fork.start_ns) < value(forkserver.start_ns) < value(spawn.start_ns)
        assert max(wall(threads), wall(fork)) < wall(spawn)
        assert value(threads.uss_bytes) < value(fork.pss_bytes)
        assert value(spawn.uss_bytes) > 3 * value(threads.uss_bytes)
    threads, fork, spawn = (cells[f"3.14t-{name}-w8"] for name in ("threads", "fork", "spawn"))
    assert wall(spawn) > 7 * wall(threads)  # one short launch; the committed baselines are held to more
    assert value(fork.uss_bytes) < value(threads.uss_bytes)


def test_scenario_1_in_a_pool_pays_the_start_once(tmp_path: Path, executables: dict[str, str]) -> None:
    options = ("--ftgate-turns=5", "--ftgate-python=3.14", "-k", "pool", OVERHEAD)
    cells = measured(tmp_path, executables, *options)
    for name in METHODS:
        pool = cells[f"3.14-{name}-w8"]
        assert value(pool.start_ns) < 0.1 * value(pool.cold_ns)
    assert wall(cells["3.14-spawn-w8"]) < 3 * wall(cells["3.14-fork-w8"])


def test_scenario_2_has_its_shape(tmp_path: Path, executables: dict[str, str]) -> None:
    cells = measured(tmp_path, executables, "--ftgate-turns=5", "-k", "w8", SHARED_SET)
    for build in BUILDS:
        threads = cells[f"{build}-threads-w8"]
        for name in METHODS:
            process = cells[f"{build}-{name}-w8"]
            assert value(threads.ops_per_s) > 10 * value(process.ops_per_s)
            assert process.timers_mean_ns["lock_wait"] > 10 * threads.timers_mean_ns["lock_wait"]
            assert 0 < process.counters_per_s["inserts"] <= value(process.ops_per_s) * 1.5


def stored(test: str) -> dict[str, list[Any]]:
    """Cell id -> entries of a committed baseline."""
    path = baselines.Store(ROOT / "baselines").path(test)
    content = baselines.decode(path.read_bytes(), str(path))
    return {label: list(builds.values()) for label, builds in content.cells.items()}


@pytest.mark.parametrize(
    "test",
    [
        f"{OVERHEAD}::test_fresh_workers",
        f"{OVERHEAD}::test_pool_of_workers",
        f"{OVERHEAD}::test_memory_profile",
        f"{SHARED_SET}::test_shared_set",
    ],
)
def test_baselines_are_committed_for_every_cell(test: str) -> None:
    cells = stored(test)
    counts = ("w2", "w8") if "shared_set" in test else ("w8",)
    expected = {f"{build}-{name}-{n}" for build in BUILDS for name in ("threads", *METHODS) for n in counts}
    assert set(cells) == expected
    for entries in cells.values():
        for entry in entries:
            assert len(baselines.wall_ratios(entry)) >= 5
            assert len(baselines.uss_bytes(entry)) >= 5


def test_the_committed_baselines_have_the_write_ups_shape() -> None:
    def typical(test: str, label: str) -> float:
        return median(baselines.wall_floors_ns(stored(test)[label][0], figures.QUANTILE))

    def fresh(label: str) -> float:
        return typical(f"{OVERHEAD}::test_fresh_workers", f"{label}-w8")

    # As the write-up has it: threads without the GIL beside processes of the GIL build; and on one build alone.
    assert fresh("3.14t-threads") < fresh("3.14-fork") < fresh("3.14-forkserver") < fresh("3.14-spawn")
    assert fresh("3.14t-threads") < fresh("3.14t-fork") < fresh("3.14t-forkserver")
    assert fresh("3.14t-spawn") > 10 * fresh("3.14t-threads")
    for build in BUILDS:
        for count in ("w2", "w8"):
            threads = typical(f"{SHARED_SET}::test_shared_set", f"{build}-threads-{count}")
            times = [typical(f"{SHARED_SET}::test_shared_set", f"{build}-{name}-{count}") for name in METHODS]
            assert min(times) > 10 * threads
            assert max(times) < 1.5 * min(times)  # it is the Manager that takes the time, not the start method


def test_a_baseline_file_names_no_place_of_the_machine_it_was_made_on() -> None:
    for path in (ROOT / "baselines").rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert json.loads(text)["schema"] == baselines.SCHEMA
        for word in (str(Path.home()), str(ROOT)):
            assert word not in text
