"""What real launches are judged to be by the figures of one recording, by what the code does.

    python benchmarks/verdicts/recorded.py [--busy 0 1] [--only GLOB ...]

Two workers on 3.14t, in a project outside of git. It is recorded once, beside no process of ours. Then its work, which
it waits for or computes, is multiplied by each factor, and the product judges it by the figures of that recording while
our processes keep `busy` cores busy. `others` are the cores that all other work kept busy, as the product read it:
while it was recorded / while it was judged, on average.

A cell of the table is the decision on the wall time and the change that was read, in percent: P passed, + improved, I
inconclusive, S suspect, R regressed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import page
from commits import ended
from cpu import others_busy
from kinds import HEAD, KINDS, TEST, WORK, test_of

from pytest_ftgate.kit.values import Metric
from pytest_ftgate.model.report import Row
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.report.json import parse

FACTORS = (1.0, 1.1, 1.3, 2.0)
COLUMNS = ("kind", "busy", "others", "1.0x", "1.1x", "1.3x", "2.0x")
BODIES = {name: KINDS[name][1] for name in ("CPU", "sleep", "lock", "queue")} | {"mixed": "work.cpu(); work.sleep()"}
LETTERS = {
    Decision.PASSED: "P",
    Decision.IMPROVED: "+",
    Decision.INCONCLUSIVE: "I",
    Decision.SUSPECT: "S",
    Decision.REGRESSED: "R",
}
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-oftgate_explain=false")
QUICK = ("-oftgate_iterations=12", "--ftgate-metrics=wall,lock_wait")


def project(folder: Path, bodies: Sequence[str]) -> Path:
    """A project with a test for each body."""
    root = folder / "project"
    root.mkdir()
    template = TEST.replace('"3.14"', '"3.14t"')
    words = ({"executor": "threads", "body": BODIES[each], "kind": "", "name": test_of(each)} for each in bodies)
    (root / "test_work.py").write_text(HEAD + "".join(template.format(**each) for each in words), encoding="utf-8")
    (root / "pytest.ini").write_text("[pytest]\nftgate_install =\n", encoding="utf-8")
    return root


def measured(root: Path, bodies: Sequence[str], factor: float, option: str) -> dict[str, Row]:
    """One run of the product, with the work multiplied: the row of each body."""
    work = WORK.replace("FACTOR = 1.0", f"FACTOR = {factor}")
    (root / "work.py").write_text(work, encoding="utf-8")
    report = root / "report.json"
    ended([*PYTEST, *QUICK, option, f"--ftgate-report=json:{report}", "test_work.py"], root)
    rows = [row for table in parse(report.read_text(encoding="utf-8")).tables for row in table.rows]
    return {body: row for body in bodies for row in rows if f"::{test_of(body)}[" in row.cell.nodeid}


def judged(bodies: Sequence[str], busy: float) -> Iterator[list[str]]:
    """The rows of the table, all judged by one recording."""
    with tempfile.TemporaryDirectory(prefix="ftgate-recorded-") as name:
        root = project(Path(name), bodies)
        recorded = measured(root, bodies, 1.0, "--ftgate-update")
        with others_busy(busy):
            runs = [measured(root, bodies, factor, "--ftgate-against=stored") for factor in FACTORS]
    for body in bodies:
        now = statistics.fmean(others(run[body]) for run in runs)
        yield [body, f"{busy:g}", f"{others(recorded[body]):.1f} / {now:.1f}", *(decision(run[body]) for run in runs)]


def others(row: Row) -> float:
    """The cores that other work kept busy while a cell was measured."""
    return (row.conditions and row.conditions.others) or 0.0


def decision(row: Row) -> str:
    """`I +14`: that on the wall time, and its change."""
    wall = next((each for each in row.verdict.metrics if each.metric == Metric.WALL), None)
    if wall is None or wall.ratio is None:
        return row.verdict.decision
    return f"{LETTERS.get(wall.decision, wall.decision)} {100 * (wall.ratio.value - 1):+.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=float, nargs="+", default=[0.0, 1.0], help="cores that our processes keep busy")
    parser.add_argument("--only", action="extend", nargs="+", default=[], metavar="GLOB", help="names of kinds")
    options = parser.parse_args()
    bodies = [each for each in BODIES if any(fnmatchcase(each, pattern) for pattern in options.only or ["*"])]
    if not bodies:
        parser.error(f"no kind has such a name: {', '.join(BODIES)}")
    page.show(__file__, COLUMNS, (row for busy in options.busy for row in judged(bodies, busy)))


if __name__ == "__main__":
    main()
