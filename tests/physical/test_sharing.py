"""What sharing costs, by docs/guides/libraries.md, where it is known: workers that sleep in one lock take turns."""

from __future__ import annotations

import pytest
from example import Example

TESTS = """
    import os
    import threading
    import time

    def costs(body):
        contract = ftgate.contract("threads[SHARE=one].wall < 1.5 * threads[SHARE=each].wall")
        compared = ftgate.compare(threads, workers=2, env=[{"SHARE": "one"}, {"SHARE": "each"}], pythons=["3.14t"])
        test = contract(compared(body))

        @test.shared
        def locks(context):
            made = [threading.Lock() for _ in range(context.workers)]
            return made[:1] * context.workers if os.environ.get("SHARE") == "one" else made

        return test

    @costs
    def test_locks(worker):
        with worker.shared[worker.index]:
            time.sleep(0.02)

    @costs
    def test_sleeps(worker):
        time.sleep(0.02)
"""


def test_the_cell_with_one_object_is_slower_by_what_its_workers_wait(
    pytester: pytest.Pytester, interpreters_on_path: None
) -> None:
    example = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": TESTS})
    example.run_fresh("--ftgate", "--ftgate-test-time=15s")
    rows = {row["cell"]["nodeid"].partition("::")[2]: row for row in example.rows()}
    shown = {name: row["figures"]["wall_ns"]["value"] for name, row in rows.items()}
    ratios = {
        test: shown[f"{test}[3.14t-threads-w2-SHARE:one]"] / shown[f"{test}[3.14t-threads-w2-SHARE:each]"]
        for test in ("test_locks", "test_sleeps")
    }
    assert 1.7 < ratios["test_locks"] < 2.3
    assert 0.8 < ratios["test_sleeps"] < 1.25
    locks = rows["test_locks[3.14t-threads-w2-SHARE:one]"]
    # Beside other work what a contract says of one machine's times is in doubt.
    assert locks["verdict"]["decision"] in ("broken", "inconclusive")
    reasons = [reason for each in locks["verdict"]["metrics"] for reason in each["reasons"]]
    assert [each["counts"] for each in reasons if each["code"] == "not_held"] == [[2, 2]]
    assert rows["test_sleeps[3.14t-threads-w2-SHARE:one]"]["verdict"]["decision"] in ("passed", "inconclusive")
