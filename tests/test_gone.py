"""What went stays gone: no text of ours names an option, ini key, command, module or form that was deleted."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from pytest_ftgate import cli
from pytest_ftgate.declare.options import table
from pytest_ftgate.features import FEATURES
from pytest_ftgate.report.json import formats

ROOT: Final = Path(__file__).parent.parent


class Gone(NamedTuple):
    """What was deleted together. The next deletion adds a line to `GONE`."""

    options: tuple[str, ...] = ()
    """By the name after `--ftgate-`, `ftgate_` and `FTGATE_`."""
    commands: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """Below the package, with slashes."""
    forms: tuple[str, ...] = ()
    """Of `--ftgate-report`."""
    words: tuple[str, ...] = ()
    """Other names: of functions, fields, files."""

    def pattern(self) -> re.Pattern[str]:
        dotted = [each.replace("/", ".") for each in self.modules]
        return re.compile(
            "|".join(
                [
                    *(rf"(?:--ftgate-|\bftgate_|\bFTGATE_){_either(each)}(?![\w-])" for each in self.options),
                    *(rf"\bftgate {each}(?![\w-])|\bmain\(\[\"{each}\"" for each in self.commands),
                    *(rf"\bfeatures[ ./]+(?:import )?{re.escape(each)}\b" for each in _features(dotted)),
                    *(rf"\bpytest_ftgate[./]{re.escape(each)}\b" for each in [*dotted, *self.modules]),
                    *(rf"\b{each}:(?=PATH|[\w/.{{]*\.\w+)" for each in self.forms),
                    *(rf"(?<!\w){re.escape(each)}(?!\w)" for each in self.words),
                ]
            )
        )


def _either(option: str) -> str:
    """`fail[-_]on`, in either case."""
    spelt = re.sub("[-_]", "[-_]", option)
    return f"(?i:{spelt})"


def _features(dotted: list[str]) -> list[str]:
    return [each.removeprefix("features.") for each in dotted if each.startswith("features.")]


GONE: Final = {
    "time of a test that is reserved to explain it, and functions that explain everything": Gone(
        words=("FunctionTime", "reserved_s", "RESERVED_SHARE", "memory_round.read")
    ),
    "a screen against stored figures, and a second measurement after a miss": Gone(
        options=("escalate",),
        words=(
            *("SCREEN_LAUNCHES", "same_code", "_after_miss", "_same_code", "_follow_ups", "_pair_after_miss"),
            *("_paired_phase", "_without_pairs", "_paired_metric", "executor_nodeid", "what follows a miss"),
        ),
    ),
    "the figures of another machine as a basis": Gone(words=("machine-independent", "Machine-independent", "RATIO")),
    "exports that nobody asked for": Gone(
        forms=("benchstat", "otava"), words=("benchstat", "otava", "Otava", "_go_name")
    ),
    "a run that is judged by its base": Gone(
        options=("trust",),
        modules=("features/trust",),
        words=("too_many_cores", "limits_from", "limits_text", "judge_by", "ftgate_plan", "turn_ns"),
    ),
    "workers on other machines": Gone(
        modules=("features/hosts",),
        words=(
            *(
                "HostScheduler",
                "HostLink",
                "Shipment",
                "ssh_hosts",
                "on_host",
                "hosts_of",
                "has_hosts",
                "not_with_hosts",
            ),
            *("ftgate_host", "by_fingerprint", "hosts.md", "test_hosts", "host_checkout"),
        ),
    ),
    "interpreters that uv installs": Gone(
        commands=("pythons",), modules=("features/pythons",), words=("install_progress", "outcome_text")
    ),
    "a JUnit file besides pytest's": Gone(modules=("features/junit",), forms=("junit",), words=("test_junit",)),
    "pins and a kept state of a search": Gone(words=("bisect.json", "index-bisect", "some pins of")),
    "what init found out of a project": Gone(
        modules=("features/init/project", "features/inifile"), words=("inifile", "init_projects", "lost-trailer")
    ),
    "laws of scaling, builds and starts in an advice": Gone(
        modules=("stats/scalability",), words=("BuildRatio", "StartTax", "Universal Scalability")
    ),
    "two recorded runs that are judged": Gone(commands=("diff",), modules=("features/diff",)),
    "measurements that no page needs": Gone(
        words=(
            *("variates", "verdicts/bounds", "time_to_verdict", "probes/memory.py", "startup.py"),
            *("scale/runners", "runners.md", "histories.py", "suite/repeat", "planted.py"),
        )
    ),
    "plots of memory, scaling and history": Gone(
        modules=("judge/history", "report/history_text"), words=("report --history", "with_history", "MEMORY_POINTS")
    ),
    "what an unchanged cell may do by way of exception": Gone(
        modules=("measure/watch/opened_files",), words=("reads.TRACED", "reads.NATIVE", "LOAD_NS")
    ),
    "versions that tools other than setuptools-scm ask git for": Gone(
        words=("asks_git_alone", "versioningit", "POETRY_DYNAMIC_VERSIONING_BYPASS", "PDM_BUILD_SCM_VERSION")
    ),
    "patterns of wheels": Gone(words=("with_wheels", "dist/*.whl")),
    "a folder of interpreters of ours": Gone(words=("cache_folder", "kept_folder", "found in the cache")),
    "measuring in the workers of pytest-xdist": Gone(
        options=("exclusive",),
        modules=("run/turns",),
        words=(
            *("MeasuringTurn", "WorkerTurns", "Handover", "keep_lost", "keep_spent", "is_worker=", "unwritten"),
            *("RUNS_KEPT", "ftgate/runs", "privacy.encoded", "privacy.packed", "take_part"),
            *("test_turns", "faults/test_workers", "PDEATHSIG"),
        ),
    ),
    "tools of a release among the tests": Gone(words=("support/release", "support/smoke")),
    "the estimate of the rounds and of the time left": Gone(words=("expect_more", "remaining_s")),
}
# Locked requirements of others, and this table.
OTHERS: Final = ("requirements.txt", "tests/test_gone.py", "src/pytest_ftgate/features/html/assets/")


def texts() -> dict[str, str]:
    """Every text file that git has or would take, by its path."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git tree to list")
    found = {}
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith(OTHERS) and (ROOT / name).is_file():
            found[name] = (ROOT / name).read_bytes().decode(errors="replace")
    return found


def named(gone: Gone, texts: dict[str, str]) -> list[str]:
    pattern = gone.pattern()
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts.items()
        if pattern.search(text) or pattern.search(name)
        for number, line in enumerate([name, *text.splitlines()])
        if pattern.search(line)
    ]


def test_no_text_names_what_went() -> None:
    ours = texts()
    assert {why: found for why, gone in GONE.items() if (found := named(gone, ours))} == {}


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_nothing_of_it_can_be_used(gone: Gone) -> None:
    assert not {option.name for option in table()} & set(gone.options)
    assert not {name.removeprefix("features/") for name in gone.modules} & FEATURES.keys()
    assert not formats().keys() & set(gone.forms)
    subparsers = next(each for each in cli.build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    assert not subparsers.choices.keys() & set(gone.commands)


PLANTED: Final = Gone(
    options=("fail-on",), commands=("redo",), modules=("features/redo",), forms=("redo",), words=("Redoer",)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytest --ftgate-fail-on=never", True),
        ("ftgate_fail_on = never", True),
        ("FTGATE_FAIL_ON: never", True),
        ("--ftgate-fail-only", False),
        ("$ ftgate redo old.json", True),
        ('cli.main(["redo", "old.json"])', True),
        ("ftgate redone", False),
        ("from pytest_ftgate.features import redo", True),
        ("from pytest_ftgate.features.redo import it", True),
        ("src/pytest_ftgate/features/redo.py", True),
        ("redo:PATH or redo:out.xml", True),
        ("Redoer", True),
        ("they redo it", False),
    ],
)
def test_a_name_that_came_back_is_found(text: str, expected: bool) -> None:
    assert bool(named(PLANTED, {"a.md": text})) is expected
