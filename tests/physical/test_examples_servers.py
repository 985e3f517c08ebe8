"""The server examples in short real runs: Granian and mod_wsgi on both builds, under wrk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bench import BUILDS
from test_examples import short_run, told

from physical import Told, confirm_each, outcome
from pytest_ftgate.model.report import Figures, Report
from pytest_ftgate.model.sample import Latency

GRANIAN = "examples/granian/test_granian.py"
MOD_WSGI = "examples/mod_wsgi/test_mod_wsgi.py"
WAIT_NS = 10e6
CLIENTS = 10
WINDOW_S = 1.0

needs_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk: apt install wrk")
needs_apache = pytest.mark.skipif(
    not (shutil.which("wrk") and shutil.which("apxs")),
    reason="needs wrk and Apache: apt install wrk apache2-bin apache2-dev",
)


def figures_of(report: Report) -> dict[str, Figures]:
    """Figures by cell."""
    return {row.cell.label: row.figures for table in report.tables for row in table.rows}


def answered(cell: Figures) -> Latency:
    """The latency of a cell, all of whose requests were answered."""
    assert cell.latency is not None
    assert cell.latency.errors == 0
    assert cell.latency.p50_ns <= cell.latency.p95_ns <= cell.latency.p99_ns <= cell.latency.max_ns
    return cell.latency


@needs_wrk
def test_granian_has_its_shape(tmp_path: Path, executables: dict[str, str]) -> None:
    contracts = {
        "server[3.14t].uss < server[3.14].uss",
        "server[3.14t].ops_per_s > 0.5 * server[3.14].ops_per_s",
    }

    def sample() -> Told:
        report = short_run(tmp_path, executables, "-k", "test_asgi_two_workers and wait", GRANIAN)
        cells = figures_of(report)
        assert set(cells) == {f"{build}-server-w2-/wait" for build in BUILDS}

        def each_waits() -> None:
            for cell in cells.values():
                assert answered(cell).p50_ns >= WAIT_NS

        return {**told(report, contracts), "each response takes its 10 ms": outcome(each_waits)}

    confirm_each(sample, decisive=10, cores=1.5)


@needs_apache
def test_mod_wsgi_has_its_shape(tmp_path: Path, executables: dict[str, str]) -> None:
    contracts = {
        "server[1x10].process_cores < 1.5",
        "server[free-1x10].process_cores > 1.1 * server[1x10].process_cores",
        "server[free-1x10].ops_per_s > 1.1 * server[1x10].ops_per_s",
        "server[free-1x10].gil_wait < 0.2 * server[1x10].gil_wait",
    }

    def sample() -> Told:
        report = short_run(tmp_path, executables, "-k", "fixed and 1x10 and not fast", MOD_WSGI)
        cells = figures_of(report)
        assert set(cells) == {"3.14-1x10", "3.14t-free-1x10"}

        def all_clients_wait() -> None:
            for cell in cells.values():
                assert cell.ops_per_s is not None
                mean_s = answered(cell).mean_ns / 1e9
                # Who has an answer asks again at once: as many requests are under way as there are clients (Little,
                # 1961). Those that are under way as the window begins and ends are not counted.
                assert cell.ops_per_s * mean_s == pytest.approx(CLIENTS, rel=0.1 + 2 * mean_s / WINDOW_S)

        return {**told(report, contracts), "all clients wait at all times": outcome(all_clients_wait)}

    confirm_each(sample, decisive=10, cores=1.5)
