"""`--ftgate-trust=base`: the commit that is compared with judges a run. `reference.py` is how."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.options import Option, one_of, option
from ...hookspec import hookimpl

if TYPE_CHECKING:
    from ...plugin.gate import Gate

TRUST = option(
    "trust",
    "head",
    one_of("base", "head"),
    "head (the default): limits, alpha, what fails and which tests there are come from the working tree; "
    "base: from the commit that is compared with, so that a change cannot raise its own margin",
    metavar="head|base",
    not_with_hosts="--ftgate-trust=base collects the reference here alone: measure without hosts",
)


@hookimpl
def ftgate_options() -> list[Option]:
    return [TRUST]


@hookimpl
def ftgate_configure(gate: Gate) -> None:
    if TRUST.of(gate.run.config) == "base":
        from . import reference

        reference.judge(gate)
