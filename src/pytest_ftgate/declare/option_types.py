"""How the text of an option is read: durations, fractions, counts, targets, revisions.

Every pytest run imports this module, so what only a given value needs is imported when one is read.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Literal

from ..errors import FtgateError
from ..text import did_you_mean, listed

if TYPE_CHECKING:
    from ..model import Decision, Threshold

IniType = Literal["string", "bool", "linelist", "args"]


class OptionError(FtgateError):
    """A value that an option cannot take; the text names the option, where it was set, and a fix."""


_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min|m|h)?"


def seconds(text: str) -> float:
    """`90`, `90s`, `1.5m` -> seconds."""
    match = re.fullmatch(_DURATION, text.strip())
    if not match or float(match[1]) == 0:
        raise ValueError("a duration above 0 such as 90s, 5m or 0.5h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def fraction(text: str) -> float:
    """`2%` or `0.02` -> 0.02."""
    from ..judge import thresholds

    return thresholds.share(text)


def probability(text: str) -> float:
    """A number between 0 and 1, exclusive."""
    value = fraction(text)
    if not 0 < value < 1:
        raise ValueError("a probability between 0 and 1, such as 0.01")
    return value


def count(text: str) -> int:
    """A whole number from 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ValueError("a whole number from 1")
    return value


def whole(text: str) -> int:
    """A whole number from 0."""
    if not text.strip().isdecimal():
        raise ValueError("a whole number from 0")
    return int(text)


def truth(text: str) -> bool:
    """`1`, `true`, `yes`, `on` and their opposites."""
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("true or false")


def cells(text: str) -> str:
    """`new`, `all`, or a cell's node id or a part of it."""
    if not text.strip():
        raise ValueError("all, or the node id of a cell")
    return text


def folder(text: str) -> str:
    """A folder's name."""
    if not text.strip():
        raise ValueError("the name of a folder")
    return text


def install_step(text: str) -> tuple[str, ...]:
    """The arguments of one `uv pip install`, or `("$", command)` of a shell command."""
    stripped = text.strip()
    if stripped == "$" or stripped.startswith("$ "):
        if not stripped[1:].strip():
            raise ValueError("a command after $")
        return "$", stripped[1:].strip()
    try:
        words = shlex.split(stripped)
    except ValueError as error:
        raise ValueError(f"words quoted as in a shell: {error}") from None
    if words[-1] in ("-e", "-r", "-c"):
        raise ValueError(f"a step in a line: what follows {words[-1]} is in the same one")
    return tuple(words)


def report_target(text: str) -> str:
    """`json:PATH`, or another kind of report."""
    from ..report.formats import FORMATS

    kind, _, path = text.partition(":")
    if kind in FORMATS and path:
        return text
    ending = text.rpartition(".")[2].replace("xml", "junit")
    if kind in FORMATS or ending in FORMATS:
        raise ValueError(f"a kind and a path: {f'{kind}:PATH' if kind in FORMATS else f'{ending}:{path or text}'}")
    raise ValueError(f"KIND:PATH, and KIND is {listed(list(FORMATS))}{did_you_mean(kind, tuple(FORMATS))}")


BEYOND = "beyond-effect"
"""Inconclusive at a change that is worse than the effect: see `Verdict.beyond`."""
UNDECIDED_RUN = "undecided-run"
"""Fewer than one in ten of the compared cells was decided: see `report.findings.undecided`."""
FAILING = (
    "regressed",
    "suspect",
    BEYOND,
    "accepted",
    "improved",
    "inconclusive",
    "not-measured",
    "broken",
    "unsupported",
    "no-baseline",
    UNDECIDED_RUN,
)
"""What may fail a run, as it is written: decisions that fail a test, and UNDECIDED_RUN."""


def decision(text: str) -> Decision | str:
    """A decision that may fail a test, or BEYOND or UNDECIDED_RUN."""
    word = text.strip().replace(" ", "-")
    if word not in FAILING:
        raise ValueError(f"{listed(FAILING)}{did_you_mean(word, FAILING)}; errors always fail")
    if word in (BEYOND, UNDECIDED_RUN):
        return word
    from ..model import Decision

    return Decision(word.replace("-", " "))


def metric(text: str) -> str:
    """A metric of the table, or one of a workload's own such as `timer.ack_wait`."""
    from ..judge import metrics

    word = text.strip()
    if word == "ratio":
        raise ValueError("wall: ratio is judged in its place where the baseline is of another machine")
    if not metrics.known(word):
        raise ValueError(f"metrics: {metrics.no_metric(word)}")
    return word


def threshold(text: str) -> Threshold:
    """`wall: margin=3%, effect=8%`, checked."""
    from ..judge import thresholds

    return thresholds.parse(text)


CRITERIA = ("time", "memory")


def weight(text: str) -> tuple[str, float]:
    """`time=1`: what a decision weighs, and by how much."""
    name, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if name not in CRITERIA or not 0 <= value < math.inf:
        raise ValueError(f"weights such as time=1 memory=0.5: {text!r} is none{did_you_mean(name, CRITERIA)}")
    return name, value


def unchanged(text: str) -> str:
    """`skip` or `measure`."""
    if text not in ("skip", "measure"):
        raise ValueError("skip or measure")
    return text


def trust(text: str) -> str:
    """`base` or `head`."""
    if text not in ("base", "head"):
        raise ValueError("base or head")
    return text


def shard(text: str) -> tuple[int, int]:
    """`2/5`: the second of five parts."""
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text.strip())
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError("a part and their number, such as 2/5")
    return int(match[1]), int(match[2])


MERGE_BASE = "merge-base"
PYTHON = "python:"
_DISTRIBUTION = r"dist:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9][A-Za-z0-9._+!-]*"
_REVISION = r"(?!-)(?!.*\.\.)(?!.*//)[^\s:?*\[\\]*[^\s:?*\[\\/.]"


def revision(text: str) -> str:
    """A branch, tag or commit; `merge-base`; `dist:NAME==VERSION` or `dist:PATH.whl`; `python:TARGET`."""
    stripped = text.strip()
    if stripped.startswith(PYTHON):
        return PYTHON + target(stripped.removeprefix(PYTHON))
    if stripped.startswith("dist:") and stripped.endswith(".whl"):
        return stripped
    pattern = _DISTRIBUTION if stripped.startswith("dist:") else _REVISION
    if re.fullmatch(pattern, stripped) is None:
        if stripped.startswith("dist:"):
            name = stripped.removeprefix("dist:").partition("=")[0] or "NAME"
            raise ValueError(f"a version of a distribution: dist:{name}==VERSION, or dist:PATH.whl")
        raise ValueError(f"a branch, tag or commit, {MERGE_BASE}, dist:NAME==VERSION, dist:PATH.whl or python:TARGET")
    return stripped


def target(text: str) -> str:
    """A target, checked; as `parse_target` spells it. Raises TargetError."""
    from ..model.targets import parse_target

    return parse_target(text).spec
