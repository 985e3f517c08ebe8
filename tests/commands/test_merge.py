"""`ftgate merge`: JUnit files of shards, read back by junitparser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import report_by_hand
from junitparser import JUnitXml

from pytest_ftgate import cli
from pytest_ftgate.report import json

Write = Callable[[str, str], str]
PLAIN = '<testsuite name="pytest" tests="9"><testcase classname="a" name="{}" time="0.5">{}</testcase></testsuite>'
XFAIL = '<skipped type="pytest.xfail" message="known"/>'


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def written(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return written


def merged(*names: str) -> JUnitXml:
    assert cli.main(["merge", *names, "-o", "out/all.xml"]) == 0
    return JUnitXml.fromfile("out/all.xml")


def suite_of(*results: str, partial: str = "") -> str:
    """As pytest writes it: a case for each result, `test_0`, `test_1`, ..."""
    note = f'<properties><property name="partial" value="{partial}"/></properties>' if partial else ""
    cases = "".join(
        f'<testcase classname="tests.test_words" name="test_it[{number}]">{result}</testcase>'
        for number, result in enumerate(results)
    )
    return f'<testsuites><testsuite name="pytest" tests="99">{note}{cases}</testsuite></testsuites>'


def test_shards_of_a_run_are_one_file(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    # Each shard has the cells of the others as skipped, or not at all.
    first = suite_of("<failure/>", "", "<skipped/>", "<skipped/>")
    second = suite_of("<skipped/>", "<skipped/>", "<error/>", "", "<skipped/>", partial="Ctrl-C")
    shards = [write("1.xml", first), write("2.xml", second), write("plain.xml", PLAIN.format("test_plain", "<error/>"))]
    xml = merged(*shards)
    assert (xml.tests, xml.failures, xml.errors, xml.skipped) == (6, 1, 2, 1)
    said = capsys.readouterr().out
    assert said == "out/all.xml: 6 cases of 3 files: 1 failed, 2 in error, 1 skipped\n"
    known = [{each.name: each.value for each in suite.properties()} for suite in xml]
    assert [each.get("partial") for each in known] == [None, "Ctrl-C", None]
    assert [suite.tests for suite in xml] == [2, 3, 1]  # and not 99, as the files say


def test_a_case_that_was_run_twice_is_refused(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    text = suite_of("<failure/>", *[""] * 7, "<skipped/>")
    names = [write(f"{index}.xml", text) for index in range(2)]
    assert cli.main(["merge", *names, "-o", "all.xml"]) == 2
    said = capsys.readouterr().err
    assert "error: 8 cases were run in two files or more: it is unknown which result holds" in said
    assert "  tests.test_words.test_it[0]: 0.xml, 1.xml\n" in said
    assert said.endswith("  and 3 more\n")
    assert not Path("all.xml").exists()


def test_a_known_failure_was_run(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    names = [write(f"{index}.xml", PLAIN.format("test_it", XFAIL)) for index in range(2)]
    assert cli.main(["merge", *names, "-o", "all.xml"]) == 2
    assert "1 case was run in two files" in capsys.readouterr().err


@pytest.mark.parametrize("result", ["", "<failure/>", "<skipped/>"])
def test_a_skipped_case_gives_way(write: Write, result: str) -> None:
    skipped = PLAIN.format("test_it", "<skipped/>")
    xml = merged(write("1.xml", skipped), write("2.xml", PLAIN.format("test_it", result)), write("3.xml", skipped))
    ((case,),) = [list(suite) for suite in xml if len(suite)]
    assert [each._tag for each in case.result] == ([result.strip("</>")] if result else [])
    assert xml.tests == 1


def test_a_case_with_an_error_in_its_teardown_is_two_cases_of_one_file(write: Write) -> None:
    case = '<testcase classname="a" name="b">{}</testcase>'
    both = case.format("<failure/>") + case.format("<error/>")
    xml = merged(write("1.xml", f'<testsuites><testsuite name="pytest">{both}</testsuite></testsuites>'))
    assert (xml.tests, xml.failures, xml.errors) == (2, 1, 1)


def test_a_skipped_case_gives_way_in_a_suite_within_a_suite(write: Write) -> None:
    nested = f'<testsuites><testsuite name="all">{PLAIN.format("test_it", "<skipped/>")}</testsuite></testsuites>'
    merged(write("1.xml", nested), write("2.xml", PLAIN.format("test_it", "")))
    assert Path("out/all.xml").read_text(encoding="utf-8").count("<testcase") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "bad.xml is not a JUnit file: no element found: line 1, column 0; was its run killed?"),
        ("<testsuites><testsuite>", "bad.xml is not a JUnit file: no element found"),
        (
            '<?xml version="1.0" encoding="shift_jis"?><testsuites/>',
            "bad.xml is not a JUnit file: multi-byte encodings",
        ),
        ("<html/>", "bad.xml is not a JUnit file: Invalid format.; write it again"),
        (
            f"\n{json.render(report_by_hand.report())}",
            "only sources of one kind can be joined: good.xml is a JUnit file, bad.xml is a JSON report",
        ),
    ],
    ids=["empty", "cut", "encoding", "other", "json"],
)
def test_a_file_that_is_no_junit_file_is_named(
    write: Write, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    names = write("good.xml", PLAIN.format("test_it", "")), write("bad.xml", text)
    assert cli.main(["merge", *names, "-o", "all.xml"]) == 2
    assert f"ftgate: error: {said}" in capsys.readouterr().err


def test_the_joined_file_is_named(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["merge", write("1.xml", PLAIN.format("test_it", ""))]) == 2
    assert "JUnit files are joined into one: name it with -o OUT.xml" in capsys.readouterr().err


def test_a_missing_file_and_one_that_cannot_be_written_are_named(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["merge", "gone-*.xml", "-o", "all.xml"]) == 2
    assert "gone-*.xml: cannot be read: No such file or directory" in capsys.readouterr().err
    assert cli.main(["merge", write("1.xml", PLAIN.format("test_it", "")), "-o", "1.xml/all.xml"]) == 2
    assert "1.xml/all.xml: cannot be written: " in capsys.readouterr().err
