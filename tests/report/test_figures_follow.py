"""Every figure that a report prints of a cell follows from the launches in its JSON, by what docs/judging.md says."""

from __future__ import annotations

import json
import math
import random
import re
from statistics import fmean, median, stdev
from typing import Any

import msgspec
import numpy as np
import pytest
import report_by_hand
from fake_launcher import group_of, memory_of, spec_of
from scipy.special import stdtrit
from values import read, sample_of

from pytest_ftgate.features import markdown
from pytest_ftgate.features.html import page as html_page
from pytest_ftgate.judge import metrics
from pytest_ftgate.judge.figures import figures
from pytest_ftgate.judge.judge import ComparedWith, Judge, Policy
from pytest_ftgate.kit import units
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import Report, Row, Table
from pytest_ftgate.model.sample import Iteration, Launch, LockSite, LockWaits, Sample, Timer
from pytest_ftgate.model.verdict import Decision, Verdict
from pytest_ftgate.report import json as json_report
from pytest_ftgate.report import said, terminal

ROUNDS, LOOPS, SECOND = 6, 3, 1e9
SINGLE, TWO = (group_of(spec=spec_of("threads", workers=count)).cells[0] for count in (1, 2))


def timed(order: int, rng: random.Random, work_ns: float, calls: int) -> Launch:
    """A launch whose phases, CPU time, counters and timers all vary."""

    def iteration(loops: int) -> Iteration:
        start, work, join = (round(part * loops * work_ns * rng.lognormvariate(0, 0.05)) for part in (0.3, 1.0, 0.1))
        wall = start + work + join
        rate = calls * loops * SECOND / work
        return Iteration(
            start_ns=start, work_ns=work, join_ns=join, wall_ns=wall, cpu_ns=work, ops=calls * loops, rate=rate
        )

    return Launch(
        order=order,
        loops=LOOPS,
        cold=iteration(1),
        iterations=tuple(iteration(LOOPS) for _ in range(12)),
        counters={"rows": rng.uniform(900, 1100)},
        timers={"put": Timer(count=7, total_ns=rng.randrange(60_000, 80_000), max_ns=20_000)},
        peaks={"depth": rng.uniform(3, 9)},
    )


def locked(order: int, rng: random.Random, share: float) -> Launch:
    waited = round(share * 2 * 1e6 * rng.lognormvariate(0, 0.1))
    site = LockSite(file="w.py", line=3, kind="Lock", waits_for="lock", contended=3, total_ns=waited, max_ns=waited)
    return msgspec.structs.replace(
        timed(order, rng, 5e6, 2), locks=LockWaits(work_ns=1_000_000, ops=2, counted_ops=2, sites=(site,))
    )


def side(seed: str, slower: float, **fields: Any) -> Sample:
    rng = random.Random(seed)
    return sample_of(
        [timed(order, rng, 5e6 * slower, 2) for order in range(ROUNDS)],
        TWO,
        memory=[
            Launch(order=order, memory=memory_of(round(2e7 * slower * rng.lognormvariate(0, 0.01)), samples=1))
            for order in range(ROUNDS)
        ],
        locks=[locked(order, rng, 0.05 * slower) for order in range(ROUNDS)],
        control=[timed(order, rng, 2e6, 2) for order in range(ROUNDS)],
        **fields,
    )


def alone(seed: str, **fields: Any) -> Sample:
    """The one-worker cell beside it."""
    rng = random.Random(f"{seed} alone")
    return sample_of([timed(order, rng, 4e6, 1) for order in range(ROUNDS)], SINGLE, **fields)


@pytest.fixture(scope="module")
def report() -> Report:
    """A cell that is 1.4 times as slow as its reference, judged and shown as a run does it."""
    sample, one = side("new", 1.4, reference=side("old", 1.0)), alone("new", reference=alone("old"))
    values = read(sample, one)
    shown = figures(values, reference=values)
    policy = Policy(
        metrics=(*metrics.GATING, "scaling", "cores", "ops_per_s"),
        cli=(),
        ini=(),
        alpha=0.01,
        beta=0.04,
        probe_cost=9.0,
    )
    against = {TWO.nodeid: ComparedWith(basis="paired", why="--ftgate-against main", baseline="main", commit="1eb3b87")}
    judge = Judge(spec_of("threads"), policy, against)
    row = Row(cell=TWO, verdict=judge.verdict(values), figures=shown, sample=sample)
    beside = Row(cell=SINGLE, verdict=Verdict(decision=Decision.PASSED), sample=one)
    table = Table(title="t.py::test", rows=(row, beside), reference="3.14-threads")
    return msgspec.structs.replace(report_by_hand.report(), tables=(table,), unused_baselines=(), failing=None)


# -- readers of the JSON, written again ----------------------------------------------------------------------------


def of(sample: dict[str, Any], role: str) -> list[dict[str, Any]]:
    return [launch for launch in sample["launches"] if launch.get("role", "time") == role]


def floors(launches: list[dict[str, Any]]) -> list[float]:
    """The lower quartile of the wall time of a call, of each launch."""
    return [
        float(np.quantile([each["wall_ns"] / launch["loops"] for each in launch["iterations"]], 0.25))
        for launch in launches
    ]


def gmean(values: list[float]) -> float:
    return math.exp(fmean(map(math.log, values)))


def per_loop(launches: list[dict[str, Any]], field: str) -> float:
    return float(median(median(each[field] / launch["loops"] for each in launch["iterations"]) for launch in launches))


def hodges_lehmann(values: list[float]) -> float:
    return float(median((one + other) / 2 for at, one in enumerate(values) for other in values[at:]))


def neighbours(own: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[float]:
    """Of each round the log-ratio of iterations that are neighbours in time."""
    rounds = []
    for one, two in zip(own, other, strict=True):
        pairs = zip(one["iterations"], two["iterations"], strict=True)
        loops = math.log(two["loops"] / one["loops"])
        rounds.append(hodges_lehmann([math.log(a["wall_ns"] / b["wall_ns"]) + loops for a, b in pairs]))
    return rounds


def figures_of(sample: dict[str, Any], single: dict[str, Any]) -> dict[str, float]:
    """Each metric of a sample, from its raw launches and those of its one-worker cell alone."""
    launches, wall = of(sample, "time"), gmean(floors(of(sample, "time")))
    spent = [sum(each["work_ns"] for each in launch["iterations"]) / SECOND for launch in launches]
    waited = [sum(site["total_ns"] for site in each["locks"]["sites"]) for each in of(sample, "locks")]
    return {
        "wall": wall,
        "tail": median(
            float(np.quantile([each["wall_ns"] / LOOPS for each in launch["iterations"]], 0.9)) for launch in launches
        ),
        "start": per_loop(launches, "start_ns"),
        "work": per_loop(launches, "work_ns"),
        "join": per_loop(launches, "join_ns"),
        "cold": median(launch["cold"]["wall_ns"] for launch in launches),
        "cpu": median(
            sum(each["cpu_ns"] for each in launch["iterations"]) / sum(each["ops"] for each in launch["iterations"])
            for launch in launches
        ),
        "cores": median(
            sum(each["cpu_ns"] for each in launch["iterations"]) / sum(each["wall_ns"] for each in launch["iterations"])
            for launch in launches
        ),
        "ops_per_s": 2 * SECOND / wall,
        "scaling": 2 * math.exp(hodges_lehmann(neighbours(of(single, "time"), launches))),
        "control": gmean([math.exp(each) for each in neighbours(launches, of(sample, "control"))]),
        "uss": median(launch["memory"][0]["uss_bytes"] for launch in of(sample, "memory")),
        "pss": median(launch["memory"][0]["pss_bytes"] for launch in of(sample, "memory")),
        "lock_wait": median(each / (2 * 1_000_000) for each in waited),
        "rows": median(launch["counters"]["rows"] / span for launch, span in zip(launches, spent, strict=True)),
        "put": median(launch["timers"]["put"]["total_ns"] / 7 for launch in launches),
        "depth": median(launch["peaks"]["depth"] for launch in launches),
    }


# -- the forms -----------------------------------------------------------------------------------------------------


def test_each_number_of_a_row_follows_from_its_launches(report: Report) -> None:
    row, one = json.loads(json_report.render(report))["tables"][0]["rows"]
    found = figures_of(row["sample"], one["sample"])
    logs = [math.log(each) for each in floors(of(row["sample"], "time"))]
    half = stdtrit(ROUNDS - 1, 0.975) * stdev(logs) / math.sqrt(ROUNDS)
    ends = (found["wall"] * math.exp(sign * half) for sign in (-1, 1))
    judged = {each.metric: each for each in report.rows[0].verdict.metrics}

    def moved(name: str, text: str) -> str:  # the figure, and its change where it is one
        change = said.change_text(judged[name]).partition(" (")[0]
        return f"{text} ({change})" if judged[name].decision is Decision.REGRESSED else text

    expected = [
        TWO.label,
        units.time(found["wall"]),
        said.change_text(judged["wall"]),
        units.half_width(Interval(value=found["wall"], low=next(ends), high=next(ends), level=0.95)),
        units.ratio(1.0),
        moved("cores", units.cores(found["cores"])),
        moved("uss", units.size(found["uss"])),
        units.size(found["pss"]),
        moved("lock_wait", units.share(found["lock_wait"])),
        moved("scaling", units.ratio(found["scaling"])),
        moved("ops_per_s", units.rate(found["ops_per_s"])),
        "regressed",
    ]
    text = terminal.render(report, width=220, color=False, unicode=True, verbosity=1)
    (line,) = (line for line in text.splitlines() if line.startswith(f"  {TWO.label}  "))
    assert re.split(r"\s{2,}", line.strip()) == expected
    compared, page = markdown.render(report).replace("\u00a0", " "), html_page.render(report)
    for shown in (expected[1], expected[4], expected[6], expected[8], expected[9]):
        assert f"| {shown} |" in compared
        assert f">{shown}</td>" in page
    phases = "; ".join(f"{name} {units.time(found[name])}" for name in ("start", "work", "join", "cold", "cpu"))
    rows, put, depth = units.rate(found["rows"]), units.time(found["put"]), units.number(found["depth"])
    own = f"rows {rows}; put {put} mean; depth peak {depth}"
    assert f"{own}; {phases}; {units.ratio(found['control'])} the control" in text
    efficiency, serial = found["scaling"] / 2, (2 / found["scaling"] - 1) / (2 - 1)
    assert f"of 2 (efficiency {units.whole_share(efficiency)}, " in text
    assert f"serial fraction {units.whole_share(serial)})" in text


def test_now_was_and_the_change_of_a_metric_follow_from_both_sides(report: Report) -> None:
    row, one = json.loads(json_report.render(report))["tables"][0]["rows"]
    now = figures_of(row["sample"], one["sample"])
    was = figures_of(row["sample"]["reference"], one["sample"]["reference"])
    judged = {each["metric"]: each for each in row["verdict"]["metrics"]}
    assert judged.keys() == {"wall", "tail", "uss", "lock_wait", "scaling", "cores", "ops_per_s"}
    for name, each in judged.items():
        assert (each["now"], each["was"]) == (pytest.approx(now[name]), pytest.approx(was[name])), name
    pairs = neighbours(of(row["sample"], "time"), of(row["sample"]["reference"], "time"))
    # The pairs weigh as their iterations agree, which differs little between scripted launches.
    assert judged["wall"]["ratio"]["value"] == pytest.approx(
        math.exp(fmean(pairs[: judged["wall"]["launches"]])), rel=1e-3
    )
    shown = report.rows[0]
    change, figures_shown = units.change(judged["wall"]["ratio"]["value"]), map(units.time, (now["wall"], was["wall"]))
    assert said.headline(shown).startswith(f"wall {change} (")
    assert f"): {', was '.join(figures_shown)}" in said.headline(shown).partition(";")[0]
