"""`--ftgate-shard`: each test runs in one part, and the parts together say what one run says."""

from __future__ import annotations

import textwrap

import pytest
from example import HEAD, Example, assert_usage_error

from pytest_ftgate import cli

QUICK = (
    "-p",
    "fake_run",
    "--ftgate",
    "-oftgate_launches=5",
    "-oftgate_iterations=4",
    "-oftgate_explain=no",
)
TESTS = """
    import pytest

    @ftgate.compare(threads, serial, workers=1)
    def test_slower(worker):
        return 1

    @ftgate.compare(threads, workers=[1, 2])
    @pytest.mark.parametrize("size", [1, 2, 3])
    def test_sizes(worker, size):
        return 1

    @ftgate.compare(threads, workers=1)
    def test_missing(worker):
        return 1

    @ftgate.contract("threads.wall < 1ms")
    @ftgate.compare(threads, workers=1)
    def test_contract(worker):
        return 1
"""
PLAIN = """
    import pytest

    @pytest.mark.parametrize("number", range(3))
    def test_plain(number): ...
    def test_other(): ...
    def test_third(): ...
"""


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None) -> Example:
    files = {
        "pytest.ini": "[pytest]\nftgate_install =\nftgate_python = 3.14t\n",
        "test_a.py": TESTS,
        "test_plain.py": PLAIN,
    }
    return Example(pytester, files)


UNUSED = """
    @ftgate.compare(serial, workers=1)
    def test_unused(worker):
        return 1
"""


def run_part(example: Example, part: int, parts: int, *options: str) -> pytest.RunResult:
    """Run one part, with its report `s1.json`, `s2.json`, ..."""
    shard = f"--ftgate-shard={part}/{parts}"
    return example.run_pytest(*QUICK, shard, f"--ftgate-report=json:s{part}.json", *options)


def test_shards_say_what_one_run_says(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    """With baselines, of which one is used no more, a slowdown, an error, a contract, and plain tests."""
    unused = example.folder / "test_unused.py"
    unused.write_text(HEAD + textwrap.dedent(UNUSED), encoding="utf-8")
    example.run_pytest(*QUICK, "--ftgate-update", "-k", "not missing")
    unused.unlink()
    whole = example.run_pytest(*QUICK, "--ftgate-report=json:whole.json")
    results = [run_part(example, part, 3) for part in (1, 2, 3)]
    one, *reports = (example.report(f"{name}.json") for name in ("whole", "s1", "s2", "s3"))
    outcomes = [result.parseoutcomes() for result in results]
    assert sum(found["deselected"] for found in outcomes) == 2 * (10 + 5), "all parts but one deselect each item"
    plain = [line for result in results for line in result.outlines if line.startswith("test_plain.py ")]
    assert sum(line.count(".") - 1 for line in plain) == 5, "plain tests run in one part each"
    assert {(report["shard"]["alpha"], report["shard"]["hypotheses"]) for report in reports} == {(0.01, 37)}
    capsys.readouterr()
    assert cli.main(["merge", "s2.json", "s3.json", "s1.json", "-o", "all.json"]) == 1 == whole.ret
    assert capsys.readouterr().out.endswith(
        "3 of 3 shards, one error budget: each verdict is at alpha 0.01 / 37, split over the hypotheses of the whole "
        "run\n"
    )
    joined = example.report("all.json")
    assert [*example.verdicts("all.json").items()] == [*example.verdicts("whole.json").items()]
    same = ("failing", "commit", "version", "unused_baselines", "partial")
    assert {name: joined[name] for name in same} == {name: one[name] for name in same}
    assert joined["unused_baselines"] == ["test_unused.py::test_unused[3.14t-serial-w1]"]
    notes = {table["note"].partition(";")[0] for table in joined["tables"]}
    assert notes == {f"measured by shard {part}/3" for part in (1, 2, 3)}


def test_a_part_without_tests_is_no_failure(example: Example) -> None:
    result = run_part(example, 2, 2, "-k", "contract")
    assert result.ret == pytest.ExitCode.OK
    assert "ftgate: shard 2/2 is empty: there are fewer tests than shards" in result.outlines
    shard = example.report("s2.json")["shard"]
    assert (shard["planned"], shard["places"]) == (["test_a.py::test_contract[3.14t-threads-w1]"], [])
    assert run_part(example, 2, 2, "-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_with_workers_of_xdist_a_part_is_the_same(example: Example) -> None:
    results = [run_part(example, part, 2, "-k", "contract", "-n1") for part in (1, 2)]
    assert [result.ret for result in results] == [pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK]
    assert "ftgate: shard 2/2 is empty: there are fewer tests than shards" in results[1].outlines
    reports = [example.report(f"s{part}.json") for part in (1, 2)]
    assert [report["shard"]["places"] for report in reports] == [[0], []]
    assert cli.main(["merge", "s1.json", "s2.json"]) == 1


def test_it_needs_a_measuring_run(example: Example) -> None:
    assert_usage_error(example.run_pytest("--ftgate-shard=1/2"), "--ftgate-shard would do nothing: add --ftgate")
