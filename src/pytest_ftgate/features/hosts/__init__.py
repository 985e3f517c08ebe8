"""A run on reserved hosts, of `--tx ssh=...` of pytest-xdist. What knows pytest-xdist is imported only then."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from ...hookspec import hookimpl

if TYPE_CHECKING:
    import pytest

    from ...plugin.gate import Gate


@hookimpl
def ftgate_configure(gate: Gate) -> None:
    """Measure on the machines that `--tx` names, if it names any."""
    if gate.is_worker:
        if host := getattr(gate.config, "workerinput", {}).get("ftgate_host"):
            from ...run.rows import on_host

            gate.on_host = partial(on_host, name=host, machine=gate.run.machine)
            # pytest-xdist put the folder first in a worker's path; an installed project is measured as such.
            here = os.getcwd()
            if here in sys.path:
                sys.path.remove(here)
            paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
            os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path and path != here)
    elif has_hosts(gate.config):
        from .controller import Hosts

        run = gate.run
        hosts = Hosts(gate.config, gate.id, run.references.requested().reference.commit if run.config.against else "")
        gate.config.pluginmanager.register(hosts)
        run.plugins.register(hosts)


def has_hosts(config: pytest.Config) -> bool:
    """Whether `--tx` names other machines than this one."""
    specs = (spec.partition("*")[2] or spec for spec in getattr(config.option, "tx", None) or ())
    keys = ({part.partition("=")[0] for part in spec.split("//")} for spec in specs)
    return config.getoption("dist", "no") != "no" and any("popen" not in each for each in keys)
