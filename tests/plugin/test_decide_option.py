"""`--ftgate-decide` at the end of a run."""

from __future__ import annotations

import pytest
from example import Example, assert_usage_error

WORKLOAD = """
    @ftgate.compare(threads, serial, workers=1, pythons=["3.14"])
    def test_it(worker):
        return sum(range(20_000))
"""


@pytest.fixture
def example(pytester: pytest.Pytester, interpreters_on_path: None) -> Example:
    return Example(pytester, {"pytest.ini": "[pytest]\nftgate_decide = time=1\n", "test_a.py": WORKLOAD})


def test_the_advice_stands_at_the_end_of_the_run(example: Example) -> None:
    quick = ("-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-metrics=wall")
    result = example.run_fresh("--ftgate", "--ftgate-decide", *quick)
    text = result.stdout.str()
    assert result.ret == 0
    tables, _, advised = text.partition("ftgate advice")
    assert "test_a.py::test_it" in tables
    assert "test_a.py::test_it (1 worker)\n  from        the run of" in advised
    assert "by time=1" in " ".join(advised.split())


def test_where_nothing_was_measured_it_says_nothing(example: Example) -> None:
    example.pytester.path.joinpath("test_a.py").write_text("import no_such_module\n")
    result = example.run_fresh("--ftgate", "--ftgate-decide")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "ftgate advice" not in result.stdout.str()


def test_it_is_asked_for_and_weights_alone_do_not_ask(example: Example) -> None:
    result = example.run_pytest("-q")
    assert "ftgate advice" not in result.stdout.str()


def test_without_a_run_it_says_what_to_do(example: Example) -> None:
    assert_usage_error(example.run_pytest("--ftgate-decide"), "--ftgate-decide would do nothing: add --ftgate")


def test_a_wrong_weight_names_the_option(example: Example) -> None:
    result = example.run_fresh("--ftgate", "--ftgate-decide", "-o", "ftgate_decide=time=soon")
    assert_usage_error(result, "ini option ftgate_decide=time=soon", "time=1 memory=0.5")
