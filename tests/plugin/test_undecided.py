"""A run that decided nothing of what it compared: its exit status, what it says, and how to ask for silence."""

from __future__ import annotations

import pytest
from example import Example
from junitparser import JUnitXml, Skipped
from project import commit

from pytest_ftgate import cli

# One pair of launches cannot tell that nothing has changed.
QUICK = (
    "-p", "fake_run", "--ftgate", "--ftgate-against=HEAD~1", "-oftgate_unchanged=measure", "-oftgate_launches=1",
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
    result.stdout.fnmatch_lines(["nothing was decided: 0 of 2 compared cells;*"])
    assert "give the tests more launches (ftgate_launches)" in result.stdout.str(), "what to do"
    assert "--ftgate-fail-on=undecided-run" in " ".join(result.outlines)


def test_a_list_without_the_word_opts_out(example: Example) -> None:
    result = example.run_pytest(*QUICK, "-k", "same", "--ftgate-fail-on=regressed,suspect")
    assert result.ret == pytest.ExitCode.OK
    assert "0 of 2 decided" in result.outlines
    assert "nothing was decided" not in result.stdout.str()


def test_a_run_that_decided_something_has_its_own_status(example: Example) -> None:
    result = example.run_pytest(*(word.replace("launches=1", "launches=2") for word in QUICK))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.outlines.count("1 of 3 decided, 1 regressed") == 1


def test_one_pair_that_is_far_out_is_neither_red_nor_green(example: Example) -> None:
    result = example.run_pytest(*QUICK, "-k", "slower")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["nothing was decided: 0 of 1 compared cell;*"])


def test_a_run_that_compares_nothing_or_records_is_green(example: Example) -> None:
    stored = tuple(word for word in QUICK if "against" not in word)
    for option, fails, said in (
        ("--ftgate-against=stored", True, "nothing was compared"),
        ("--ftgate-update=all", False, "2 recorded"),
    ):
        result = example.run_pytest(*stored, option, "-k", "same")
        assert result.ret == pytest.ExitCode.OK
        assert said in result.outlines
        assert example.report()["undecided_fails"] is fails


def test_of_shards_the_joined_report_decides(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example.folder)
    for part in (1, 2):
        result = example.run_pytest(
            *QUICK, "-k", "same", "--ftgate-seed=1", f"--ftgate-shard={part}/2", f"--ftgate-report=json:{part}.json"
        )
        assert result.ret == pytest.ExitCode.OK
    assert cli.main(["merge", "1.json", "2.json"]) == 3


# -- a run that judged no cell -------------------------------------------------------------------------------------

NOTHING = (
    "-p", "fake_run", "--ftgate", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-fail-on=broken",
)  # fmt: skip
WAYS = {
    "--setup-plan": "3 of 3 cells were not run",
    "--setup-only": "3 of 3 cells were not run",
    "--ftgate-time=1ns": "3 not measured",
    "-k=plain": "3 of 3 cells were deselected",
    "-m=not ftgate": "3 of 3 cells were deselected",
    "-k=nothing": "3 of 3 cells were deselected",
    "--deselect=test_a.py::test_same": "1 of 3 cells was skipped, 2 were deselected",
}
SOME = """
    import pytest

    @ftgate.compare(threads, serial, workers=1)
    def test_same(worker):
        return 1

    @pytest.mark.{mark}
    @ftgate.compare(threads, workers=1)
    def test_marked(worker):
        return 1

    {plain}
    """
PLAIN = "def test_plain(): ..."


def some(pytester: pytest.Pytester, mark: str = "usual", plain: str = PLAIN) -> Example:
    ini = "[pytest]\nftgate_install =\nftgate_python = 3.14t\nmarkers = usual\n"
    return Example(pytester, {"pytest.ini": ini, "test_a.py": SOME.format(mark=mark, plain=plain)})


@pytest.mark.parametrize("option", WAYS)
@pytest.mark.parametrize("plain", [PLAIN, ""], ids=["beside", "alone"])
def test_a_run_that_judged_no_cell_is_not_green(
    pytester: pytest.Pytester, scripted_runs: None, option: str, plain: str
) -> None:
    mark = "skip" if "deselect" in option else "usual"
    result = some(pytester, mark, plain).run_pytest(*NOTHING, option, "--ftgate-report=md:out.md")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    why = f"no cell was judged: {WAYS[option]}"
    assert any(line in (why, f"ftgate: {why}") for line in result.outlines[-5:])
    assert why in (pytester.path / "out.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("mark", ["skip", "xfail(run=False)", "skipif(True, reason='today')"])
def test_nor_is_one_whose_cells_are_all_skipped(pytester: pytest.Pytester, scripted_runs: None, mark: str) -> None:
    example = some(pytester, mark)
    result = example.run_pytest(*NOTHING, "-k", "marked or plain")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "ftgate: no cell was judged: 1 of 3 cells was skipped, 2 were deselected" in result.outlines
    assert example.run_pytest(*NOTHING).ret == pytest.ExitCode.OK, "the others are judged"


def test_one_that_ended_by_a_failure_before_its_first_cell_says_what_ended_it(
    pytester: pytest.Pytester, scripted_runs: None
) -> None:
    example = some(pytester)
    (pytester.path / "test_0.py").write_text("def test_plain(): assert 0\n", encoding="utf-8")
    result = example.run_pytest(*NOTHING, "-x")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "stopping after 1 failures" in result.stdout.str()
    assert "no cell was judged" not in result.stdout.str()


@pytest.mark.parametrize("option", ["--setup-plan", "-k=plain"])
def test_nor_is_one_under_xdist(pytester: pytest.Pytester, scripted_runs: None, option: str) -> None:
    result = some(pytester).run_pytest(*NOTHING, option, "-n", "1")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert f"ftgate: no cell was judged: {WAYS[option]}" in result.outlines


def test_nor_is_one_that_ended_before_its_first_cell_as_a_success(
    pytester: pytest.Pytester, scripted_runs: None
) -> None:
    example = some(pytester)
    pytester.makeconftest("def pytest_runtest_setup(): import pytest; pytest.exit('enough', returncode=0)")
    result = example.run_pytest(*NOTHING)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "ftgate: no cell was judged: interrupted: enough: 3 of 3 cells were not run" in result.outlines


def test_plain_tests_alone_are_pytest_s_business(pytester: pytest.Pytester, scripted_runs: None) -> None:
    example = some(pytester)
    (example.folder / "test_b.py").write_text(PLAIN, encoding="utf-8")
    for arguments in (("test_b.py",), ("test_a.py::test_plain",)):
        result = example.run_pytest(*NOTHING, *arguments)
        assert result.ret == pytest.ExitCode.OK
        assert "ftgate: no collected test has cells: nothing was gated" in result.outlines
    assert example.run_pytest(*NOTHING, "--collect-only").ret == pytest.ExitCode.OK


def test_of_shards_the_joined_report_says_that_no_cell_was_judged(
    pytester: pytest.Pytester, scripted_runs: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = some(pytester, "skip")
    monkeypatch.chdir(example.folder)
    for part in (1, 2):
        options = (f"--ftgate-shard={part}/2", f"--ftgate-report=json:{part}.json")
        assert example.run_pytest(*NOTHING, "-k", "marked", *options).ret == pytest.ExitCode.OK
    assert cli.main(["merge", "1.json", "2.json"]) == 3
    assert "no cell was judged: all were skipped" in capsys.readouterr().out


# -- what other readers of pytest's reports see --------------------------------------------------------------------

KINDS = """
    @ftgate.compare(threads, workers=1)
    def test_new(worker):
        return 1

    @ftgate.contract("wall < 1 us")
    @ftgate.compare(threads, workers=1)
    def test_broken(worker):
        return 1

    @ftgate.contract("wall < 10 s")
    @ftgate.compare(threads, workers=1)
    def test_good(worker):
        return 1
    """


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_what_is_undecided_or_tolerated_is_skipped_for_other_plugins(
    pytester: pytest.Pytester, scripted_runs: None, options: tuple[str, ...]
) -> None:
    example = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": KINDS})
    args = ("-p", "fake_run", "--ftgate", "-oftgate_launches=12", "-oftgate_iterations=2", "--ftgate-python=3.14t")
    result = example.run_pytest(*args, "--junit-xml=pytest.xml", "--ftgate-fail-on=regressed", *options)
    assert result.ret == pytest.ExitCode.OK
    # 1. pytest's last line and ours have the same word.
    assert result.parseoutcomes() == {"passed": 1, "undecided": 1, "broken": 1} | {
        word: count for word, count in result.parseoutcomes().items() if word.startswith("warning")
    }
    result.stdout.fnmatch_lines(["3 cells in *: 1 broken, 1 passed, 1 no baseline"])
    # 2. pytest's file has the reason.
    suites = JUnitXml.fromfile("pytest.xml")
    cases = {case.name.partition("[")[0]: case.result for suite in suites for case in suite}
    assert [(name, [type(each) for each in found]) for name, found in cases.items()] == [
        ("test_new", [Skipped]),
        ("test_broken", [Skipped]),
        ("test_good", []),
    ]
    assert "nothing is stored for it" in cases["test_new"][0].message
    assert "wall < 1 us: 20 ms" in cases["test_broken"][0].message
    lines = (example.folder / "pytest.xml").read_text(encoding="utf-8")
    assert f"{example.folder / 'test_a.py'}:2: no baseline" in lines, "the line of the test"
