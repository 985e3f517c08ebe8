"""pytest from outside, with real launches whose figures do not matter."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest
from example import Example

QUICK = ("-oftgate_launches=1", "-oftgate_iterations=1", "--ftgate-metrics=wall")
BURN = """
    @ftgate.compare(threads, workers=1)
    {beside}
    def test_burn(worker):
        sum(range(1000))
"""


@pytest.fixture
def example(pytester: pytest.Pytester, interpreters_on_path: None) -> Example:
    return Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_burn.py": BURN.format(beside="")})


def test_the_readme_s_first_example_is_the_line_that_was_asked_for(
    pytester: pytest.Pytester, interpreters_on_path: None
) -> None:
    root = Path(__file__).parents[2]
    text = (root / "examples" / "first" / "test_words.py").read_text(encoding="utf-8")
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert '\n@ftgate.compare(threads, processes=["fork", "spawn"])\n' in text
    assert readme.partition("```python\n")[2].partition("```")[0] == text
    example = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n"})
    (example.folder / "test_words.py").write_text(text)
    example.run_fresh().assert_outcomes(passed=6)
    example.run_fresh("--ftgate", *QUICK)
    cells = {f"{python}-{name}-w2" for python in ("3.14", "3.14t") for name in ("threads", "fork", "spawn")}
    measured = {row["cell"]["nodeid"]: row["sample"]["launches"] for row in example.rows()}
    assert measured.keys() == {f"test_words.py::test_words[{cell}]" for cell in cells}
    assert all(measured.values())
    assert {*example.decisions().values()} == {"no baseline"}


def test_one_start_method_has_its_own_body_and_its_known_failure(
    pytester: pytest.Pytester, interpreters_on_path: None
) -> None:
    source = """
        @ftgate.xfail("broken", processes=["spawn"], reason="a module is imported")
        @ftgate.contract("processes[spawn].uss < 1 KiB")
        @ftgate.compare(processes=["fork", "spawn"], pythons=["3.14"])
        def test_it(worker):
            worker.count("plain")

        @test_it.variant(processes="spawn")
        def spawned(worker):
            worker.count("spawned")
    """
    example = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": source})
    example.run_fresh().assert_outcomes(passed=2)
    example.run_fresh("--ftgate", *QUICK[:2], "--ftgate-metrics=wall,uss", "-oftgate_launches=3")
    fork, spawn = example.rows()
    assert [{*row["sample"]["launches"][0]["counters"]} for row in (fork, spawn)] == [{"plain"}, {"spawned"}]
    assert [row["verdict"]["decision"] for row in (fork, spawn)] == ["no baseline", "xfailed"]


def test_a_contract_that_cannot_be_read_is_a_collection_error_with_its_column(
    pytester: pytest.Pytester, interpreters_on_path: None
) -> None:
    refused = BURN.format(beside='@ftgate.contract("wall < 64 MiB")')
    result = Example(pytester, {"test_burn.py": refused}).run_fresh("--ftgate")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*test_burn.py:*@ftgate.contract of test_burn: *", "  wall < 64 MiB", "         ^"])


def test_ctrl_c_leaves_no_process(pytester: pytest.Pytester, interpreters_on_path: None) -> None:
    hangs = """
        import time

        @ftgate.compare(threads, processes=["fork"], workers=2, pythons=["3.14"])
        def test_hang(worker):
            time.sleep(600)
    """
    example = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_hang.py": hangs})
    running = example.start("--ftgate", "-q")
    deadline = time.monotonic() + 300
    mine: list[psutil.Process] = []
    while len(mine) < 5 and time.monotonic() < deadline:
        time.sleep(0.2)
        mine = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(signal.SIGINT)
    output = running.communicate(timeout=300)[0]
    assert running.returncode == 2, output
    _, alive = psutil.wait_procs(mine, timeout=60)
    assert alive == []


def test_a_broken_baseline_is_named_and_kept(example: Example) -> None:
    path = example.folder / "baselines" / "test_burn.py" / "test_burn" / "recording.json"
    path.parent.mkdir(parents=True)
    path.write_text("<<<<<<< HEAD\n{}\n=======\n", encoding="utf-8")
    result = example.run_fresh("--ftgate", "--ftgate-update=all", *QUICK)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*baselines/test_burn.py/test_burn/recording.json*"])
    assert path.read_text(encoding="utf-8") == "<<<<<<< HEAD\n{}\n=======\n"


def test_a_missing_interpreter_is_unsupported_and_strictly_an_error(example: Example) -> None:
    (example.folder / "test_plain.py").write_text("def test_plain(): ...", encoding="utf-8")
    lenient = example.run_fresh("--ftgate", "--ftgate-python=3.99")
    lenient.stdout.fnmatch_lines(
        ["*no interpreter found for the target '3.99'*", "no cell was judged: 1 unsupported", "*1 passed, 1 skipped*"]
    )
    assert lenient.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    strict = example.run_fresh("--ftgate", "--ftgate-python=3.99", "--ftgate-fail-on=undecided,skipped")
    assert strict.ret == pytest.ExitCode.TESTS_FAILED
