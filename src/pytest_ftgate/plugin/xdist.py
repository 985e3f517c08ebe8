"""pytest-xdist: the controller gives its run id and seed to the workers."""

from __future__ import annotations

from typing import Any

import pytest


class Handover:
    """Gives the run id and the seed to each worker."""

    def __init__(self, run: str, seed: int) -> None:
        self.run = run
        self.seed = seed

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Called in the controller for each worker before it starts. Source: xdist.newhooks."""
        node.workerinput["ftgate_run"] = self.run
        node.workerinput["ftgate_seed"] = self.seed


def handed_over(config: pytest.Config) -> tuple[str, int] | None:
    """The controller's run and seed in a worker; None in the controller and without xdist."""
    given = getattr(config, "workerinput", None)
    if given is None or "ftgate_run" not in given:
        return None
    return given["ftgate_run"], given["ftgate_seed"]
