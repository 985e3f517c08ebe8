"""Where the seconds of a run went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_launcher import CONFIG, Quiet

from pytest_ftgate.run.run import Run


class Nobody(Quiet):
    """Listens to a run that measures nothing."""

    def begin(self, title: str, cells: Sequence[str]) -> None: ...


def test_the_seconds_of_a_run_add_up_to_its_wall_time(tmp_path: Path) -> None:
    session = Run(CONFIG, tmp_path, "run", Nobody())
    session.start()
    session.time.started_s -= 100
    session.spent.seconds |= {"time": 24.0, "locks": 1.5, "environments": 3.0}
    report = session.report((), "0.1.0", None)
    assert report.seconds.items() >= {"time": 24.0, "locks": 1.5, "environments": 3.0}.items()
    assert report.seconds.keys() == {"time", "locks", "environments", "own code"}
    assert sum(report.seconds.values()) == pytest.approx(report.wall_s)
