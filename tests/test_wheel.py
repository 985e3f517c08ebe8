"""The wheel alone, installed for the oldest Python that is here; `make smoke` does it for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import smoke


def test_the_wheel_measures_and_gates(tmp_path: Path) -> None:
    python = next(filter(None, map(smoke.controller, smoke.CONTROLLERS)), None)
    if python is None:
        pytest.skip(f"there is none of the Pythons {', '.join(smoke.CONTROLLERS)} here")
    pinned = ("--constraint", str(smoke.ROOT / "requirements.txt"))  # what `make setup` has downloaded
    _, wheel = smoke.build(smoke.ROOT, tmp_path / "built")
    programs = smoke.install(python, wheel, tmp_path / "env", *pinned)
    done = list(smoke.steps(programs, smoke.project(tmp_path / "project")))
    assert [step.error for step in done if step.error] == []
    assert [step.name for step in done] == ["plain", "record", "gate"]
