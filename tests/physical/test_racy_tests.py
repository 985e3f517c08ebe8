"""`--ftgate-existing` through real launches: of two tests as a suite has them, one races."""

from __future__ import annotations

import pytest
from example import Example

TESTS = """
    import time

    class Box:
        pass

    SHARED = Box()

    def keeps_what_is_put_in(box, thing):
        box.thing = thing
        time.sleep(0.001)
        return box.thing is thing

    def test_safe(tmp_path):
        assert keeps_what_is_put_in(Box(), tmp_path)

    def test_racy():
        assert keeps_what_is_put_in(SHARED, object())
"""


def test_a_test_that_races_is_an_error_of_several_workers_alone(
    pytester: pytest.Pytester, interpreters_on_path: None
) -> None:
    example = Example(pytester, {"pytest.ini": "[pytest]\nftgate_install =\n", "test_a.py": TESTS})
    example.run_fresh(
        "--ftgate-existing=test_a.py::*", "-oftgate_launches=1", "--ftgate-metrics=wall", "--ftgate-test-time=12s"
    )
    verdicts = example.verdicts()
    failed = {name: verdict["reason"] for name, verdict in verdicts.items() if verdict["decision"] == "error"}
    assert sorted(failed) == [f"test_a.py::test_racy[{build}-threads-w2]" for build in ("3.14", "3.14t")]
    assert all("assert keeps_what_is_put_in(SHARED, object())" in reason for reason in failed.values())
    others = [verdict["decision"] for name, verdict in verdicts.items() if name not in failed]
    assert others == ["no baseline"] * 6
