"""Rewrite the tables in each example's README from a report: what each contract came to, and what `ftgate decide` says.

    python benchmarks/examples/tables.py REPORT [--column "16 cores"]

REPORT is that of `pytest --ftgate --ftgate-report json:REPORT examples`. Between its two markers a README has a row for
each contract. Its figure is what the contract compares: one side over the other, without the factor; of several cells
the range. The columns of the write-up, of the reasons and of other machines stay as they are, by test and contract. A
row whose text is no contract but a ratio is shown and not asserted: write it into the table by hand.

The tables below that one, whose first head is a test, with parameters or without, have a row for each cell, as
contracts name it, and a column for each figure. What is in backticks is measured, on two cores; the rest stays.
`wall.p95` is of all iterations of the launches, `uss.max` of all samples of memory. A heat map between its own markers
has the mean of a timer, in ms, for two executors.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from pytest_ftgate.features.decide import rank, sentences
from pytest_ftgate.judge import contract_grammar, contract_judge, contracts, metrics
from pytest_ftgate.judge.values import TestValues, Values
from pytest_ftgate.kit import units
from pytest_ftgate.kit.text import split_nodeid
from pytest_ftgate.model.report import Report, Row, Table
from pytest_ftgate.model.sample import NS_PER_S
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.report.json import parse
from pytest_ftgate.stats.estimators import quantile

ROOT = Path(__file__).parents[2]
HEAT_MAP = re.compile(
    r"(<!-- heat map: (\S+) of (\S+) and (\S+) by (\w+) and (\w+) -->\n).*?(<!-- end of the heat map -->)", re.DOTALL
)
BEGIN, END = "<!-- the tables of `make recordings` -->", "<!-- end of the table -->"
TEST, CONTRACT, WRITE_UP, WHY = "test", "contract", "write-up", "why two cores differ"
UNSUPPORTED = Decision.UNSUPPORTED
WORDS = {Decision.PASSED: "met", Decision.INCONCLUSIVE: "undecided"}
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": fmean,
    "max": max,
    "p50": lambda values: quantile(values, 0.5),
    "p95": lambda values: quantile(values, 0.95),
}
Rows = dict[tuple[str, str], dict[str, str]]
"""By test and contract, both in backticks: column -> text."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--column", help="what its column is called; default: `2 cores`, by the machine of the report")
    args = parser.parse_args()
    report = parse(args.report.read_bytes(), origin=str(args.report))
    column = args.column or f"{report.machine.cores} cores"
    for readme in sorted((ROOT / "examples").glob("*/README.md")):
        tables = measured_of(report, readme)
        text = readme.read_text(encoding="utf-8")
        before, begin, rest = text.partition(BEGIN)
        old, end, after = rest.partition(END)
        if tables and begin and end:
            asserted, *others = tables_in(old)
            figures = others if args.column else [with_figures(each, tables) for each in others]
            parts = [rewritten(asserted, tables, column), *figures, decided(old, report, tables)]
            between = "\n\n".join("\n".join(part) for part in parts if part)
            after = with_heat_maps(after, tables)
            readme.write_text("\n".join([before + begin, between, end + after]), encoding="utf-8")


def measured_of(report: Report, readme: Path) -> list[Table]:
    """The tests of an example of which something was measured."""
    own = (table for table in report.tables if file_of(table).parent == readme.parent)
    return [table for table in own if any(row.sample and row.sample.launches for row in table.rows)]


def file_of(table: Table) -> Path:
    return ROOT / split_nodeid(table.rows[0].cell.nodeid)[0].partition("::")[0]


def name_of(table: Table) -> str:
    """The name of its test, without parameters."""
    return split_nodeid(table.rows[0].cell.nodeid)[0].rpartition("::")[2]


# -- the contracts -----------------------------------------------------------------------------------------------------


def tables_in(text: str) -> list[list[str]]:
    """The lines of each table of it: of the contracts, which may have none yet, and of figures."""
    found = [block.splitlines() for block in text.strip().split("\n\n") if block.startswith("|")]
    return found or [[]]


def rewritten(old: list[str], tables: list[Table], column: str) -> list[str]:
    """The lines of the new table of contracts."""
    columns, rows = read(old)
    if column not in columns:
        columns.insert(columns.index(WHY), column)
    measured = dict.fromkeys(map(name_of, tables))
    found: Rows = {}
    for name in measured:
        samples = [row for table in tables if name_of(table) == name for row in table.rows]
        judged = contracts_of(samples)
        shown = [text for test, text in rows if test == f"`{name}`" and not any(sign in text for sign in "<>=")]
        for text in [*judged, *(text.strip("`") for text in shown)]:
            key = f"`{name}`", f"`{text}`"
            said = judged.get(text, ""), figure_of(text, samples)
            found[key] = {**rows.get(key, {}), column: ", ".join(filter(None, said))}
    # What could not be judged here, for want of a program, stays as it was found elsewhere.
    lacking = {name_of(table) for table in tables if any(row.verdict.decision is UNSUPPORTED for row in table.rows)}
    judged_here = {f"`{name}`" for name in measured if name not in lacking}
    found |= {key: texts for key, texts in rows.items() if key not in found and key[0] not in judged_here}
    return lines_of(
        [columns, *([*key, *(texts.get(each, "") for each in columns[2:])] for key, texts in found.items())]
    )


def read(table: list[str]) -> tuple[list[str], Rows]:
    """The columns and the rows of the table of contracts."""
    columns, *rows = cells_of(table) or [[TEST, CONTRACT, WRITE_UP, WHY]]
    return columns, {(row[0], row[1]): dict(zip(columns[2:], row[2:], strict=True)) for row in rows}


def cells_of(table: list[str]) -> list[list[str]]:
    """Its head and rows."""
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return found[:1] + found[2:]


def lines_of(cells: list[list[str]]) -> list[str]:
    head, *rows = cells
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def contracts_of(rows: list[Row]) -> dict[str, str]:
    """Contract -> its verdict over all cells at which it is judged, in the order of the rows."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for judged in row.verdict.metrics:
            if judged.contract:
                found.setdefault(judged.contract, []).append(WORDS.get(judged.decision, str(judged.decision)))
    return {text: verdict_of(words) for text, words in found.items()}


def verdict_of(words: list[str]) -> str:
    """`met`, or `met 3, undecided 1`."""
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{word} {count}" for word, count in counts.items())


def figure_of(text: str, rows: list[Row]) -> str:
    """One side over the other without the factor, of all cells at which a contract or a ratio is judged.

    That of a single figure is the figure itself, or its statistic.
    """
    figure, _, word = text.rpartition(".")
    statistic = STATISTICS.get(word)
    text = figure if statistic else text
    alone = not any(sign in text for sign in "<>=/")
    metric = metrics.row(re.sub(r"^\w+(\[[^]]*\])?\.", "", text)) if alone else None
    unit = metric.unit if metric else "ratio"
    one = {"time": "1 s", "size": "1 B"}.get(unit, "1")
    contract = contract_grammar.parse(text if any(sign in text for sign in "<>=") else f"{text} > {one}")
    product = contract_grammar.product_of(contract)
    if metric and statistic:
        found = sorted(statistic(each) for values in judged_at(contract, rows) if (each := singles(values, metric)))
    else:
        found = sorted(sides_of(contract, rows))
    if not found or product is None:
        return ""
    ends = dict.fromkeys(shown(end / product[0], unit) for end in (found[0], found[-1]))
    return " to ".join(ends)


def singles(values: Values, metric: metrics.MetricRow) -> list[float]:
    """A size in each sample of memory, in bytes, or the time of each iteration, in s; of all launches."""
    if (sampled := metric.sampled) is None:
        return [each / NS_PER_S for launch in values.iterations().values() for each in launch]
    points = (point for launch in values.sample.of("memory") for point in launch.memory)
    return [each for point in points if (each := sampled(point)) is not None]


def shown(value: float, unit: str) -> str:
    """A ratio in two digits, a number in three, any other figure (s, bytes, a share) as in a report."""
    if digits := {"ratio": 2, "number": 3}.get(unit):
        return f"{float(f'{value:.{digits}g}'):,.10g}".replace(",", " ")
    return units.of(unit, value * NS_PER_S if unit == "time" else value)


def sides_of(contract: contract_grammar.Contract, rows: list[Row]) -> Iterator[float]:
    """Left over right, wherever the contract is judged."""
    for values in judged_at(contract, rows):
        left, right = contract_judge.sides(contract, values)
        if left is not None and right:
            yield left / right


def judged_at(contract: contract_grammar.Contract, rows: list[Row]) -> Iterator[Values]:
    """The cells at which it is judged; those of other parameters are apart, as in a test."""
    for params in {row.cell.params for row in rows}:
        test = TestValues(row.sample for row in rows if row.sample is not None and row.cell.params == params)
        yield from (values for values in test if contracts.concerns(contract, values.cell, test.cells))


# -- figures -----------------------------------------------------------------------------------------------------------


def with_figures(table: list[str], tables: list[Table]) -> list[str]:
    """The same with the figures that were measured; a cell that could not be has that of an earlier run."""
    head, *rows = cells_of(table)
    test, _, params = head[0].strip("`]").partition("[")
    samples = [
        row
        for each in tables
        for row in each.rows
        if name_of(each) == test and params in ("", ", ".join(f"{one.name}={one.literal}" for one in row.cell.params))
    ]
    for row in rows:
        for at, name in enumerate(head[1:], 1):
            if name.startswith("`"):
                row[at] = figure_of(f"{row[0]}.{name}".replace("`", ""), samples) or row[at]
    return lines_of([head, *rows])


# -- heat maps ---------------------------------------------------------------------------------------------------------


def with_heat_maps(text: str, tables: list[Table]) -> str:
    """The text with each of its heat maps drawn anew, as a table."""
    rows = [row for table in tables for row in table.rows]

    def drawn(found: re.Match[str]) -> str:
        begin, timer, *families, down, across, end = found.groups()
        means: dict[tuple[str, str], dict[str, str]] = {}
        for row in rows:
            words = dict(word.split(":") for word in row.cell.environment.words)
            for family in families:
                if row.cell.label.startswith(f"{family}-") and {down, across} <= words.keys():
                    at = words[down], words[across]
                    means.setdefault(at, {})[family] = f"{row.figures.timers_mean_ns[timer] / 1e6:.3g}"
        downs, acrosses = (sorted({at[axis] for at in means}, key=float) for axis in (0, 1))
        cells = [[f"`{down}`", *(f"`{across}` = {each}" for each in acrosses)]]
        for one in downs:
            of = [means.get((one, each), {}) for each in acrosses]
            cells.append([one, *(" / ".join(each[family] for family in families if family in each) for each in of)])
        return "\n".join([begin, *lines_of(cells), "", end])

    return HEAT_MAP.sub(drawn, text)


# -- the advice --------------------------------------------------------------------------------------------------------


def decided(old: str, report: Report, tables: list[Table]) -> list[str]:
    """The advice of each test that has figures, and what pools cost it; that of a test that was not measured stays."""
    known = {line.split("`")[1]: line for line in old.splitlines() if line.startswith("- `")}
    tests = dict.fromkeys(split_nodeid(table.rows[0].cell.nodeid)[0] for table in tables)
    found = [each for each in rank.of_report(report) if each.test in tests and each.choices]
    for each in found:
        said = [one.text for one in sentences.said(each).sentences if one.topic in ("advice", "dispatch")]
        parts = [" ".join(line.split()) for text in said for line in text.splitlines() if line != sentences.WEIGH]
        name = each.test.rpartition("::")[2]
        known[name] = f"- `{name}`: {'; '.join(parts).replace(':; ', ': ')}"
    return ["`ftgate decide`, from these figures:", "", *known.values()] if known else []


if __name__ == "__main__":
    main()
