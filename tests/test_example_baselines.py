"""The examples, of which nothing is measured: they run as plain tests, and each cell's baseline is committed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import collected_cells
import msgspec
import pytest
from bench import BUILDS
from stored_values import ratios_of, values_of

from pytest_ftgate.measure.machine import usable_cores
from pytest_ftgate.model.sample import Sample
from pytest_ftgate.report.json import parse
from pytest_ftgate.store import folder, names, recording, schema

ROOT = Path(__file__).parents[1]
OVERHEAD = "examples/scenario1_overhead/test_overhead.py"
SHARED_SET = "examples/scenario2_shared_set/test_shared_set.py"
SHARDED = "examples/scenario3_sharded_writers/test_sharded_writers.py"
PIPELINE = "examples/trading_pipeline/test_pipeline.py"
METHODS = ("fork", "forkserver", "spawn")
RECORDINGS = sorted((ROOT / "baselines").rglob("*.json"))
BASELINES = list(folder.Store(ROOT / "baselines").baselines())


def run_pytest(*arguments: str, **environment: str) -> list[str]:
    """The lines that pytest printed on examples; it passed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FTGATE_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments],
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.usefixtures("interpreters_on_path")
def test_the_designs_scenario_3_and_the_pipeline_run_as_plain_tests() -> None:
    chosen = "(3.14- and ((writer1 and (threads or fork)) or designs or with_the_gil)) or PROC_MS:5"
    lines = run_pytest("-k", chosen, SHARED_SET, SHARDED, PIPELINE, PIPELINE_SECONDS="0.05")
    (summary,) = (line for line in lines if " in " in line)
    assert "passed" in summary
    assert "skipped" not in summary


def stored(test: str) -> dict[str, list[schema.StoredCell]]:
    """Cell id -> entries of a committed baseline."""
    content = folder.Store(ROOT / "baselines").load(test)
    assert content is not None
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
def test_an_entry_has_figures_of_several_rounds(test: str) -> None:
    for entries in stored(test).values():
        for entry in entries:
            assert len(ratios_of(entry)) >= 3
            assert len(values_of(entry, "uss")) >= 2  # the last round may have had no time for memory


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sample]:
    """What each cell of the examples measures, on machines of any kind: no interpreter is looked for."""
    file = tmp_path_factory.mktemp("cells") / "cells.json"
    recorded_nothing = (f"--ignore=examples/{name}" for name in ("demo", "docs", "first", "tutorial"))
    places = {"PYTHONPATH": str(Path(collected_cells.__file__).parent), "COLLECTED_CELLS": str(file), "PATH": ""}
    named = ("-o", f"ftgate_python={' '.join(BUILDS)}")
    run_pytest("-p", "collected_cells", "--collect-only", *named, "examples", *recorded_nothing, **places)
    return {sample.cell.nodeid: sample for sample in msgspec.json.decode(file.read_bytes(), type=list[Sample])}


def test_the_baselines_have_every_cell_of_the_examples_and_no_other(collected: dict[str, Sample]) -> None:
    kept = {names.join_nodeid(baseline.test, label) for baseline in BASELINES for label in baseline.cells}
    assert kept == collected.keys()


def test_each_baseline_is_of_what_its_cell_measures_now(collected: dict[str, Sample]) -> None:
    entries = {
        (names.join_nodeid(baseline.test, label), baseline.machines[key.partition("/")[0]].cores): entry
        for baseline in BASELINES
        for label, builds in baseline.cells.items()
        for key, entry in builds.items()
    }
    # Of mod_wsgi's N x 1 and 1 x N the number of cores is in the command line.
    alike = {
        nodeid: entry
        for (nodeid, cores), entry in entries.items()
        if nodeid in collected and (cores == usable_cores() or "N" not in nodeid.partition("[")[2])
    }
    differing = {nodeid: recording.mismatch(entry, collected[nodeid]) for nodeid, entry in alike.items()}
    assert {nodeid: why for nodeid, why in differing.items() if why} == {}


def test_no_recording_is_of_an_edited_tree() -> None:
    """Nor of one outside of git: its commit could not be measured beside a change."""
    commits = {path: schema.decode(path.read_bytes(), path.name).commit for path in RECORDINGS}
    assert [path for path, commit in commits.items() if not commit or commit.endswith("+")] == []


def test_the_recorded_report_is_of_cells_of_the_examples(collected: dict[str, Sample]) -> None:
    report = parse((ROOT / "tests" / "recorded" / "pipeline.json").read_bytes())
    assert {row.cell.nodeid for row in report.rows} <= collected.keys()


def test_the_committed_baselines_have_the_write_ups_shape() -> None:
    def typical(test: str, label: str) -> float:
        return median(values_of(stored(test)[label][-1], "wall"))

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
            assert max(times) < 3 * min(times)  # it is the Manager that takes the time, not the start method


def test_a_baseline_file_names_no_place_of_the_machine_it_was_made_on() -> None:
    for path in RECORDINGS:
        text = path.read_text(encoding="utf-8")
        assert json.loads(text)["schema"] == schema.SCHEMA
        for word in (str(Path.home()), str(ROOT)):
            assert word not in text
