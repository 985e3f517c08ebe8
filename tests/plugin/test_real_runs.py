"""pytest from outside, with real launches whose figures do not matter."""

from __future__ import annotations

import signal
import time

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
