"""Features can be left out: each is a module or a folder here, and the core knows it only by its hooks.

To take one out, remove it and its line below.
"""

from __future__ import annotations

from typing import Final

FEATURES: Final = {
    "init": "command",
    "doctor": "command",
    "baseline": "command",
    "accept": "command run",
    "bisect": "command run",
    "xfail": "run",
    "unchanged": "option run",
    "github": "run",
    "shards": "option run",
    "existing": "option run",
    "decide": "command",
    "report": "command",
    "merge": "command",
    "history": "command",
    "html": "format",
    "markdown": "format",
    "exports": "format",
    "neighbour": "metric",
    "garbage": "metric",
    "switches": "metric",
    "until": "option run",
    "fairness": "metric",
    "dispatch": "metric",
}
"""The places where each feature takes part. Hooks are called in this order.

`option`: in every run of pytest, which therefore loads it: it is a folder that imports the rest of itself in its hooks.
`run`: in a measuring run; `command`: in the `ftgate` command; `format`: where a report is written; `metric`: where the
metric table is read, so it imports the rest of its folder in its hook, too.
"""
