"""What can be left out: each feature is a module or a folder here, which the core knows by its hooks alone.

To take one out, remove it and its name below.
"""

from __future__ import annotations

from typing import Final

IN_A_RUN: Final = (
    "accept",
    "xfail",
    "unchanged",
    "github",
    "hosts",
    "shards",
    "trust",
)
"""What takes part in a measuring run, in the order in which hooks are called."""

COMMANDS: Final = (
    "init",
    "doctor",
    "pythons",
    "baseline",
    "accept",
    "decide",
    "report",
    "diff",
    "merge",
    "history",
)
"""What the `ftgate` command has, in the order of its help."""

FORMATS: Final = {
    "html": "html.page.render",
    "json": "",
    "md": "markdown.render",
    "junit": "junit.render",
    "bmf": "exports.bmf",
    "gha-benchmark": "exports.gha_benchmark",
    "benchstat": "exports.benchstat",
    "otava": "exports.otava",
    "openmetrics": "exports.openmetrics",
}
"""What `--ftgate-report` and `ftgate report --to` write: kinds, and what renders each; JSON is the core's."""
