"""Cells that failed, as pytest shows them: its summary, its FAILURES, JUnit, and the same under pytest-xdist."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from example import Example
from project import commit

from pytest_ftgate.plugin import failures

QUICK = ("--ftgate", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-python=3.14t", "--ftgate-metrics=wall")
WORKLOADS = """
    @ftgate.compare(threads, serial, workers=[1, 2])
    def test_missing(worker):
        return {}["missing"]

    @ftgate.compare(threads, workers=1)
    def test_assert(worker):
        total = 45
        assert total == 46

    @ftgate.contract(gil="on")
    @ftgate.compare(threads, workers=1)
    def test_broken(worker):
        return 1

    @ftgate.compare(threads, workers=1)
    def test_new(worker): ...
"""
SUMMARY = [
    "ERROR test_a.py::test_missing[3.14t-threads-w1] - KeyError: 'missing'",
    "ERROR test_a.py::test_missing[3.14t-serial-w1] - KeyError: 'missing'",
    "ERROR test_a.py::test_missing[3.14t-threads-w2] - KeyError: 'missing'",
    "ERROR test_a.py::test_missing[3.14t-serial-w2] - KeyError: 'missing'",
    "ERROR test_a.py::test_assert[3.14t-threads-w1] - assert total == 46 (total = 45)",
    "BROKEN test_a.py::test_broken[3.14t-threads-w1] - gil == on: the GIL was off in 1 of 1 launches",
    "NO BASELINE test_a.py::test_new[3.14t-threads-w1] - nothing is stored for it; record it with --ftgate-update",
]


@pytest.fixture
def example(pytester: pytest.Pytester, interpreters_on_path: None) -> Example:
    return Example(
        pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", ".gitignore": ".ftgate/\n", "test_a.py": WORKLOADS}
    )


def test_an_error_of_the_reference_too_is_said_in_the_summary(example: Example) -> None:
    commit(example.folder)
    path = example.folder / "test_a.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    result = example.run_fresh(*QUICK, "--ftgate-against=HEAD", "-k", "test_missing and serial-w1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    line = "ERROR test_a.py::test_missing[3.14t-serial-w1] - also in the reference: KeyError: 'missing'"
    assert line in result.outlines
    assert result.outlines.count("the reference has this error, too: this change did not cause it") == 1
    assert '  File "test_a.py", line 4, in test_missing' in result.outlines, "not in a checkout"


def test_a_forgotten_decorator_is_named(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.fixture
        def server(executor): ...

        def test_it(worker): ...

        class TestIt:
            def test_it(self, server): ...

        def test_other(other): ...
    """
    result = Example(pytester, {"test_a.py": source}).run_pytest()
    said = [line for line in result.outlines if "@ftgate" in line]
    assert said == [
        f">       @ftgate.compare gives a test its {name}, and test_it is not decorated with it"
        for name in ("worker", "executor")
    ]
    assert result.parseoutcomes() == {"errors": 3}


def test_at_80_columns_the_node_id_gives_way_and_not_the_figure(
    pytester: pytest.Pytester, scripted_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in failures.UNCUT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    workload = """
        @ftgate.contract(gil="on")
        @ftgate.compare(threads, workers=1)
        def test_short(worker): ...

        @ftgate.contract(gil="on")
        @ftgate.compare(threads, workers=1)
        def test_segments_are_compacted_while_others_read(worker): ...
    """
    files = {"pytest.ini": "[pytest]\nftgate_install =\n", "tests/storage/test_compaction.py": workload}
    example = Example(pytester, files)
    for folder, options in ((".", ["-n2"]), ("tests/storage", [])):
        result = example.run_fresh("-p", "fake_run", *QUICK, *options, folder=folder)
        shown = sorted(line for line in result.outlines if line.startswith("BROKEN "))
        assert [line.partition(" - gil == on: the GIL was off in 1 ")[0] for line in shown] == [
            "BROKEN ...le_others_read[3.14t-threads-w1]",
            "BROKEN ...test_short[3.14t-threads-w1]",
        ], folder
        assert max(map(len, shown)) <= 80
    lines = example.run_pytest("-p", "fake_run", *QUICK, "-vv", "-k", "short").outlines
    assert any(line.startswith("BROKEN tests/storage/test_compaction.py::test_short[") for line in lines), "all of it"


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (48, "tests/storage/test_a.py::test_put[a/b::c-w1]"),
        (43, "...storage/test_a.py::test_put[a/b::c-w1]"),
        (40, "...test_a.py::test_put[a/b::c-w1]"),
        (30, "...test_put[a/b::c-w1]"),
        (16, "...ut[a/b::c-w1]"),
    ],
)
def test_a_node_id_gives_way_from_its_folders_on(room: int, shown: str) -> None:
    assert failures.shortened("tests/storage/test_a.py::test_put[a/b::c-w1]", room) == shown


@pytest.mark.parametrize("options", [("--junitxml=junit.xml", "-n", "2", "-q", "-rA"), ("--tb=line",)])
def test_failures_stand_where_users_of_pytest_look(example: Example, options: tuple[str, ...]) -> None:
    result = example.run_fresh(*QUICK, "--ftgate-fail-on=broken,no-baseline", *options)
    text = result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert sorted(line for line in result.outlines if re.match("(ERROR|BROKEN|NO BASELINE) ", line)) == sorted(SUMMARY)
    assert result.parseoutcomes()["failed"] == 7
    if "--tb=line" in options:
        assert f"{example.folder}/test_a.py:4: KeyError: 'missing'" in result.outlines
        return
    assert "this report is partial" not in text
    assert text.count("Traceback") == 2, "each error once"
    assert "the same in 3 other cells" in text
    assert "  error: 3.14t-threads-w1, 3.14t-serial-w1, 3.14t-threads-w2, 3.14t-serial-w2\n" in text
    assert "      KeyError: 'missing' (see FAILURES)\n" in text
    failures = text.partition("= FAILURES =")[2].partition("= ftgate =")[0]
    assert (
        "as a plain test, with pytest's own explanation: pytest 'test_a.py::test_assert[3.14t-threads-w1]'" in failures
    )
    assert "test_broken" not in failures, "its lines are below the table"
    if options[0].startswith("--junit"):
        junit = ElementTree.parse(example.folder / "junit.xml")
        found = [(each.attrib["message"], (each.text or "").count("Traceback")) for each in junit.iter("failure")]
        messages = [line.partition(" - ")[2] for line in SUMMARY]
        assert sorted(found) == sorted((message, "Error" in message or "assert" in message) for message in messages)
