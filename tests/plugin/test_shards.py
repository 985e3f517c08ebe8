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
CONFTEST = """
    import random
    import pytest

    def pytest_addoption(parser):
        parser.addoption("--order", type=int, help="shuffle the tests, as pytest-randomly does")
        parser.addoption("--drop", default="", help="leave out tests before any other plugin does")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(config, items):
        if (seed := config.getoption("order")) is not None:
            random.Random(seed).shuffle(items)
        if word := config.getoption("drop"):
            items[:] = [item for item in items if word not in item.name]
"""


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None) -> Example:
    files = {
        "pytest.ini": "[pytest]\nftgate_install =\nftgate_python = 3.14t\n",
        "conftest.py": CONFTEST,
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
    """In unlike orders; with baselines, of which one is used no more, a slowdown, an error, a contract, plain tests."""
    unused = example.folder / "test_unused.py"
    unused.write_text(HEAD + textwrap.dedent(UNUSED), encoding="utf-8")
    example.run_pytest(*QUICK, "--ftgate-update", "-k", "not missing")
    unused.unlink()
    whole = example.run_pytest(*QUICK, "--ftgate-report=json:whole.json")
    results = [run_part(example, part, 3, f"--order={part}") for part in (1, 2, 3)]
    one, *reports = (example.report(f"{name}.json") for name in ("whole", "s1", "s2", "s3"))
    outcomes = [result.parseoutcomes() for result in results]
    assert sum(found["deselected"] for found in outcomes) == 2 * (10 + 5), "all parts but one deselect each item"
    plain = [line for result in results for line in result.outlines if line.startswith("test_plain.py ")]
    assert sum(line.count(".") - 1 for line in plain) == 5, "plain tests run in one part each"
    assert {(report["shard"]["alpha"], report["shard"]["hypotheses"]) for report in reports} == {(0.01, 46)}
    capsys.readouterr()
    assert cli.main(["merge", "s2.json", "s3.json", "s1.json", "-o", "all.json"]) == 1 == whole.ret
    assert capsys.readouterr().out.endswith(
        "3 of 3 shards, one error budget: each verdict is at alpha 0.01 / 46, split over the hypotheses of the whole "
        "run\n"
    )
    joined = example.report("all.json")
    assert example.verdicts("all.json") == example.verdicts("whole.json")
    same = ("failing", "commit", "version", "unused_baselines", "partial")
    assert {name: joined[name] for name in same} == {name: one[name] for name in same}
    assert joined["unused_baselines"] == ["test_unused.py::test_unused[3.14t-serial-w1]"]
    notes = {table["note"].partition(";")[0] for table in joined["tables"]}
    assert notes == {f"measured by shard {part}/3" for part in (1, 2, 3)}


def own_cells(example: Example, *options: str) -> set[str]:
    """The node ids of the cells of the first of three parts."""
    run_part(example, 1, 3, *options)
    shard = example.report("s1.json")["shard"]
    return {shard["planned"][place] for place in shard["places"]}


@pytest.mark.parametrize("recorded", [False, True])
def test_a_test_has_its_part_in_any_order_and_whatever_is_deselected(example: Example, recorded: bool) -> None:
    """Jobs may have unlike orders, and plugins may deselect other tests in each, as those that passed there."""
    if recorded:
        example.run_pytest(*QUICK, "--ftgate-update", "-k", "not missing")
    own = own_cells(example)
    assert 0 < len(own) < 10
    for seed in range(6):
        assert own_cells(example, f"--order={seed}") == own
    for name in ("slower", "sizes", "missing", "contract"):
        left = {nodeid for nodeid in own if name not in nodeid}
        assert own_cells(example, "-k", f"not {name}") == left
        assert own_cells(example, f"--deselect=test_a.py::test_{name}") == left


WAYS = (
    ["-k", "slower"],
    ["-k", "not slower"],
    ["--deselect=test_a.py::test_slower"],
    ["--drop=slower"],
    ["--ftgate-shard=1/2"],
    ["-k", "sizes", "-n1"],
)


def test_what_is_deselected_has_its_share_of_the_error_level(example: Example) -> None:
    """Two halves of the tests have together the level of one run: each verdict has the interval that it has there."""
    example.run_pytest(*QUICK, "--ftgate-update", "-k", "not missing")
    example.run_pytest(*QUICK)
    whole = example.verdicts()
    for way in WAYS:
        example.run_pytest(*QUICK, *way)
        selected = example.verdicts()
        assert 0 < len(selected) < len(whole)
        assert selected == {nodeid: whole[nodeid] for nodeid in selected}, way
    name = "test_a.py::test_slower"
    example.run_pytest(*QUICK, name)
    alone = example.verdicts()
    assert alone.keys() == {nodeid for nodeid in whole if nodeid.startswith(name)}
    assert all(alone[nodeid] != whole[nodeid] for nodeid in alone), "only what is named is collected"
    example.run_pytest(*QUICK, name, "-n1")
    assert example.verdicts() == alone


def test_a_part_without_tests_is_no_failure(example: Example) -> None:
    result = run_part(example, 2, 2, "-k", "contract")
    assert result.ret == pytest.ExitCode.OK
    assert "ftgate: shard 2/2 is empty: all tests are in other shards" in result.outlines
    shard = example.report("s2.json")["shard"]
    assert (shard["planned"], shard["places"]) == (["test_a.py::test_contract[3.14t-threads-w1]"], [])
    assert run_part(example, 2, 2, "-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_with_workers_of_xdist_a_part_is_the_same(example: Example) -> None:
    results = [run_part(example, part, 2, "-k", "contract", "-n1") for part in (1, 2)]
    assert [result.ret for result in results] == [pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK]
    assert "ftgate: shard 2/2 is empty: all tests are in other shards" in results[1].outlines
    reports = [example.report(f"s{part}.json") for part in (1, 2)]
    assert [report["shard"]["places"] for report in reports] == [[0], []]
    assert cli.main(["merge", "s1.json", "s2.json"]) == 1


def test_it_needs_a_measuring_run(example: Example) -> None:
    assert_usage_error(example.run_pytest("--ftgate-shard=1/2"), "--ftgate-shard would do nothing: add --ftgate")
