"""A run that decided nothing of what it compared: its exit status, what it says, and how to ask for silence."""

from __future__ import annotations

import pytest
from example import Example
from project import commit

from pytest_ftgate import cli

# One pair of launches cannot tell that nothing has changed.
QUICK = (
    "-p", "fake_run", "--ftgate", "--ftgate-against=HEAD~1", "--ftgate-unchanged=measure", "-oftgate_launches=1",
    "-oftgate_iterations=2", "--ftgate-python=3.14t",
)  # fmt: skip


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None) -> Example:
    made = Example(
        pytester,
        {
            "pytest.ini": "[pytest]\nftgate_install =\n",
            ".gitignore": ".ftgate/\n__pycache__/\n*.json\n",
            "test_a.py": """
                @ftgate.compare(threads, serial, workers=1)
                def test_same(worker):
                    return 1

                @ftgate.compare(threads, workers=1)
                def test_slower(worker):
                    return 1
                """,
        },
    )
    commit(pytester.path)
    commit(pytester.path)
    return made


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_run_that_decided_nothing_is_not_green(example: Example, options: tuple[str, ...]) -> None:
    result = example.run_pytest(*QUICK, "-k", "same", *options)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "0 of 2 decided" in result.outlines
    result.stdout.fnmatch_lines(["nothing was decided: 0 of 2 compared cells;*"])
    assert "give the tests more launches (ftgate_launches)" in result.stdout.str(), "what to do"
    assert "undecided-run of --ftgate-fail-on" in " ".join(result.outlines)


def test_a_list_without_the_word_opts_out(example: Example) -> None:
    result = example.run_pytest(*QUICK, "-k", "same", "--ftgate-fail-on=regressed,suspect")
    assert result.ret == pytest.ExitCode.OK
    assert "0 of 2 decided" in result.outlines
    assert "nothing was decided" not in result.stdout.str()


def test_a_run_that_decided_something_has_its_own_status(example: Example) -> None:
    result = example.run_pytest(*QUICK)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.outlines.count("1 of 3 decided, 1 suspect") == 1


def test_a_run_that_compares_nothing_or_records_is_green(example: Example) -> None:
    stored = tuple(word for word in QUICK if "against" not in word)
    for option, fails in (("--ftgate-escalate=no", True), ("--ftgate-update=all", False)):
        result = example.run_pytest(*stored, option, "-k", "same")
        assert result.ret == pytest.ExitCode.OK
        assert "nothing was compared" in result.outlines
        assert example.report()["undecided_fails"] is fails


def test_of_shards_the_joined_report_decides(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example.folder)
    for part in (1, 2):
        result = example.run_pytest(
            *QUICK, "-k", "same", "--ftgate-seed=1", f"--ftgate-shard={part}/2", f"--ftgate-report=json:{part}.json"
        )
        assert result.ret == pytest.ExitCode.OK
    assert cli.main(["merge", "1.json", "2.json"]) == 3
