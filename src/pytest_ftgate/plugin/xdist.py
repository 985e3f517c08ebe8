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


def host_of(config: pytest.Config) -> str:
    """The name of the host that a worker is on; empty on the controller's own machine."""
    return str(getattr(config, "workerinput", {}).get("ftgate_host", ""))


def has_hosts(config: pytest.Config) -> bool:
    """Whether `--tx` names other machines than this one."""
    specs = (spec.partition("*")[2] or spec for spec in getattr(config.option, "tx", None) or ())
    keys = ({part.partition("=")[0] for part in spec.split("//")} for spec in specs)
    return config.getoption("dist", "no") != "no" and any("popen" not in each for each in keys)
