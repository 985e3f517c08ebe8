"""The scripts of `benchmarks/` start: nobody else runs them between two releases."""

from __future__ import annotations

import random
import re
import runpy
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ftgate.declare.options import table

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(
    path.relative_to(BENCHMARKS).as_posix()
    for path in BENCHMARKS.rglob("*.py")
    # One that names dependencies of its own is run by uv, the others with what the project has.
    if "argparse" in (text := path.read_text(encoding="utf-8")) and "# /// script" not in text
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_starts(script: str) -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / script, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_each_script_is_named_by_a_page_or_serves_one_that_is() -> None:
    """What nothing cites was research, and ages unread."""
    root = BENCHMARKS.parent
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/*/README.md"), root / "Makefile"]
    cited = "\n".join(path.read_text("utf-8") for path in [*pages, root / "tests" / "faults" / "test_scale.py"])
    unread = {path: path.read_text("utf-8") for path in BENCHMARKS.rglob("*.py")}
    read = [path for path in unread if path.relative_to(root).as_posix() in cited or f'"{path.name}"' in cited]
    for script in read:  # it grows by what each of them uses
        text = unread.pop(script)
        imported = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
        beside = (path for path in unread if path.parent == script.parent and path not in read)
        read += [path for path in beside if path.stem in imported or path.name in text]
    assert sorted(unread) == []


def test_options_and_keys_that_scripts_give_exist() -> None:
    text = "\n".join(path.read_text("utf-8") for path in BENCHMARKS.rglob("*.py"))
    named = set(re.findall(r"--ftgate(?:-[a-z]+)*", text)) | set(re.findall(r"(?:-o *|\n|\")(ftgate_[a-z_]+) ?=", text))
    assert len(named) > 8
    known = {option.cli for option in table() if not option.ini_only} | {option.dest for option in table()}
    assert named - known == set()


def test_the_scatter_of_few_pairs_is_that_of_many_and_a_wild_one_does_not_widen_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "verdicts"))
    scatter = runpy.run_path(str(BENCHMARKS / "verdicts" / "kinds.py"))["scatter"]
    rng = random.Random(1)
    for count in (6, 11, 12, 40):
        series = [[rng.gauss(7, 3) for _ in range(count)] for _ in range(400)]
        assert statistics.fmean(map(scatter, series)) == pytest.approx(3, rel=0.08)
    assert scatter([*series[0], 1e6]) < 1.2 * scatter(series[0])


def test_each_kind_of_unchanged_code_is_measured_in_pairs() -> None:
    words = [sys.executable, str(BENCHMARKS / "verdicts" / "kinds.py"), "--minutes=0", "--rounds=2", "--only=sleep"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "| sleep | 2 |" in done.stdout, done.stderr


def test_real_launches_are_judged_by_one_recording() -> None:
    words = [sys.executable, str(BENCHMARKS / "verdicts" / "recorded.py"), "--busy=0", "--only=sleep"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    (row,) = re.findall(r"^\| sleep \| 0 \| .*", done.stdout, re.MULTILINE) or [done.stderr]
    assert re.fullmatch(r"\| sleep \| 0 \| [\d.]+ / [\d.]+( \| [P+ISR] [+-]\d+){4} \|", row)


APPENDIX = BENCHMARKS.parent / "docs" / "appendix"
TABLES = [
    (page.name, match[1], match[2])
    for page in sorted(APPENDIX.glob("*.md"))
    if page.name not in ("packages.md", "statistics.md")
    for match in re.finditer(
        r"^(?:<!-- made by (\S+) -->\n\n)?(\|.*)\n\|(?: ?---)", page.read_text("utf-8"), re.MULTILINE
    )
]
"""Those of the two are by hand, from the tests that they name."""


def test_tables_of_the_appendices_have_the_columns_that_their_scripts_print() -> None:
    assert TABLES
    for page, script, columns in TABLES:
        assert script, f"{page}: no script is named above {columns}"
        text = (BENCHMARKS.parent / script).read_text("utf-8")
        assert [name for name in columns.strip("| ").split(" | ") if f'"{name}"' not in text] == [], script


def test_what_a_report_says_of_the_cells_of_an_adopted_project_is_found_in_it() -> None:
    adopt = runpy.run_path(str(BENCHMARKS / "adopt" / "adopt.py"))
    report = (BENCHMARKS.parent / "tests" / "golden" / "terminal_120.txt").read_text("utf-8")
    assert adopt["times"](report)["3.14t-threads-w8"][1] == "regressed"
    assert adopt["failures"](report)["3.14-fork-w8"].startswith("wall +")
