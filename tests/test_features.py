"""Features: known by their hooks alone, in the order of their names; each can be left out, and others can be added."""

from __future__ import annotations

import importlib.metadata
import sys
import textwrap
from collections.abc import Iterator

import pytest
from example import Example, assert_usage_error

from pytest_ftgate import cli, features
from pytest_ftgate.declare import options
from pytest_ftgate.features import FEATURES
from pytest_ftgate.kit import plugins
from pytest_ftgate.report import json

KINDS = {
    "option": "ftgate_options",
    "command": "ftgate_commands",
    "format": "ftgate_formats",
    "metric": "ftgate_metrics",
    "run": "",
}
"""The hook that each feature of a kind has."""
NEEDS = {
    "decide": {"baseline"},
    "github": {"markdown"},
    "html": {"decide"},
    "merge": {"report"},
}
"""Features that are made with others, and go with them."""
QUICK = ("-p", "fake_run", "--ftgate", "-oftgate_launches=2", "-oftgate_iterations=2")


def names_of(kind: str, hook: str) -> list[str]:
    """The features that have a hook, in the order in which they are called."""
    manager = plugins.features(kind)
    called = reversed(getattr(manager.hook, hook).get_hookimpls())
    return [each.plugin_name for each in called]


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None) -> Iterator[Example]:
    """Two scripted tests, of which one misses its contract; what is known of options and forms is read anew."""
    source = """
        @ftgate.compare(threads, serial, workers=1)
        def test_it(worker):
            return 1

        @ftgate.contract("wall < 1 us")
        @ftgate.compare(threads, workers=1)
        def test_broken(worker):
            return 1
    """
    forget()
    yield Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\nftgate_python = 3.14t\n", "test_a.py": source})
    forget()


def forget() -> None:
    options.table.cache_clear()
    json.formats.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_each_feature_takes_part_where_it_says(kind: str) -> None:
    manager = plugins.features(kind)
    listed = [name for name, kinds in FEATURES.items() if kind in kinds.split()]
    assert [name for name, plugin in manager.list_name_plugin() if not manager.get_hookcallers(plugin)] == []
    assert {name for name, _ in manager.list_name_plugin()} == set(listed)
    if KINDS[kind]:
        assert names_of(kind, KINDS[kind]) == listed


def test_all_kinds_of_a_feature_are_known() -> None:
    assert {kind for kinds in FEATURES.values() for kind in kinds.split()} == KINDS.keys()
    assert names_of("run", "ftgate_configure") == ["shards"]


@pytest.mark.parametrize("name", FEATURES)
def test_a_run_does_without_any_feature(name: str, example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core still collects, measures and reports."""
    gone = {name}
    while more := {other for other, needed in NEEDS.items() if needed & gone} - gone:
        gone |= more
    monkeypatch.setattr(features, "FEATURES", {each: kinds for each, kinds in FEATURES.items() if each not in gone})
    for each in gone:
        for module in [module for module in sys.modules if f"{module}.".startswith(f"{features.__name__}.{each}.")]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, f"{features.__name__}.{each}", None)
        monkeypatch.delattr(features, each, raising=False)
    result = example.run_pytest(*QUICK, "--ftgate-report=json:out.json")
    outcomes = result.parseoutcomes()
    assert (outcomes["failed"], outcomes["undecided"]) == (1, 2)
    assert sorted(example.decisions("out.json").values()) == ["broken", "no baseline", "no baseline"]
    result.stdout.fnmatch_lines(["*1 broken*"])
    words = cli.build_parser().format_help()
    assert [each for each, kinds in FEATURES.items() if "command" in kinds and f"\n    {each} " not in words] == [
        each for each, kinds in FEATURES.items() if "command" in kinds and each in gone
    ]


# -- of another distribution ---------------------------------------------------------------------------------------

THEIRS = """
    from pytest_ftgate.declare.options import option, some
    from pytest_ftgate.hookspec import hookimpl
    from pytest_ftgate.model.report import Format

    GREETING = option("greeting", "hello", some("a word"), "how to greet", metavar="WORD")

    @hookimpl
    def ftgate_options():
        return [GREETING]

    @hookimpl
    def ftgate_formats():
        return {"count": Format(lambda report: f"{len(report.rows)} rows")}

    @hookimpl
    def ftgate_finish(run, report):
        yield f"{GREETING.of(run.config)}: {len(report.failing)} failed"

    @hookimpl
    def ftgate_commands(subparsers):
        parser = subparsers.add_parser("greet", help="how to greet")
        parser.set_defaults(run=lambda args: 7)
"""


@pytest.fixture
def installed(example: Example) -> Example:
    """With another distribution, which is found where Python looks for them."""
    (example.folder / "theirs.py").write_text(textwrap.dedent(THEIRS))
    folder = example.pytester.mkdir("theirs-1.0.dist-info")
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[ftgate]\ntheirs = theirs\n")
    example.pytester.syspathinsert()
    return example


def test_it_adds_an_option_a_form_lines_at_the_end_and_a_command(installed: Example) -> None:
    result = installed.run_pytest(*QUICK, "--ftgate-report=count:rows.txt", "--ftgate-greeting=ahoy")
    assert "ahoy: 1 failed" in result.outlines
    assert (installed.folder / "rows.txt").read_text() == "3 rows"
    assert "ciao: 1 failed" in installed.run_pytest(*QUICK, "-oftgate_greeting=ciao").outlines
    assert "hello: 1 failed" in installed.run_pytest(*QUICK).outlines
    assert_usage_error(installed.run_pytest("--ftgate-greeting=ahoy"), "--ftgate-greeting would do nothing")
    assert_usage_error(installed.run_pytest(*QUICK, "--ftgate-greeting="), "--ftgate-greeting=: takes a word")
    assert names_of("command", "ftgate_commands")[-1] == "theirs"
    assert [*json.formats()][-1] == "count"


def test_without_it_all_of_that_is_unknown(example: Example) -> None:
    assert "theirs" not in importlib.metadata.packages_distributions()
    assert_usage_error(example.run_pytest(*QUICK, "--ftgate-greeting=ahoy"), "unrecognized arguments")
    assert_usage_error(example.run_pytest(*QUICK, "--ftgate-report=count:x"), "KIND is json, html, md")
