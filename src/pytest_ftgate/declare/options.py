"""One table of options: each row becomes a command-line option, an environment variable and an ini key.

Every pytest run imports this module: see `option_types`.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..kit.errors import FtgateError
from ..kit.text import did_you_mean, listed

if TYPE_CHECKING:
    from ..kit.values import Threshold
    from ..model.verdict import Decision


# How the text of an option is read: durations, fractions, counts, targets, revisions.
#
# Every pytest run imports this module, so what only a given value needs is imported when one is read.

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
    from ..judge import limits

    return limits.share(text)


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
    from ..report.json import FORMATS

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
"""Fewer than one in ten of the compared cells was decided: see `report.said.undecided`."""
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
    from ..model.verdict import Decision

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
    from ..judge import limits

    return limits.parse(text)


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
    from ..model.spec import parse_target

    return parse_target(text).spec


DEFAULT_METRICS = ("wall", "tail", "uss", "lock_wait_share")
"""Those of `judge.metrics.GATING`, which the help of every pytest run is not to import."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One row: `parse` turns a text into the value and raises ValueError with what it takes.

    A `many` option may be given several times and its `default` holds texts, which `parse` reads; any other option
    takes the last of its values and its `default` is the value itself. A `required` option has at least one value.
    `commas` means several values in one text, separated by commas; `lines` are the characters that separate them.
    `optional` is the value of an option that is written without one.
    """

    name: str
    help: str
    parse: Callable[[str], Any]
    default: Any
    ini: IniType = "string"
    metavar: str = ""
    many: bool = False
    flag: bool = False
    required: bool = False
    lines: str = ""
    commas: bool = False
    optional: str = ""

    @property
    def cli(self) -> str:
        """`--ftgate-python`; the option named `ftgate` is `--ftgate` itself."""
        return "--ftgate" if self.name == "ftgate" else "--ftgate-" + self.name.replace("_", "-")

    @property
    def dest(self) -> str:
        """Name of the ini key and of pytest's own attribute."""
        return "ftgate" if self.name == "ftgate" else "ftgate_" + self.name

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return self.dest.upper()


OPTIONS: tuple[Option, ...] = (
    Option(
        name="ftgate",
        help="measure the cells of @ftgate.compare and gate them",
        parse=truth,
        default=False,
        ini="bool",
        flag=True,
    ),
    Option(
        name="python",
        help="target to measure, repeatable: 3.14, 3.14t, 3.14t[gil=on], 3.14[switchinterval=0.1ms], 3.14[jit=on], "
        "or a path; pythons= of @ftgate.compare overrides the ini (default: both builds of the newest version here)",
        parse=target,
        default=(),
        ini="args",
        metavar="TARGET",
        many=True,
        required=True,
    ),
    Option(
        name="update",
        help="record baselines: new cells only; =all: also every cell that passed or improved; "
        "=CELL (repeatable, globs): these cells, even if they regressed",
        parse=cells,
        default=(),
        ini="args",
        metavar="all|CELL",
        many=True,
        optional="new",
    ),
    Option(
        name="strict",
        help="inconclusive, unsupported and no-baseline cells fail too (short for these three in --ftgate-fail-on)",
        parse=truth,
        default=False,
        ini="bool",
        flag=True,
    ),
    Option(
        name="fail_on",
        help="what fails a test, comma-separated or repeated: regressed, suspect, beyond-effect (inconclusive, at a "
        "change worse than the effect), accepted (by a commit's trailer), improved, inconclusive, broken, unsupported, "
        "no-baseline, undecided-run (exit status 5 where fewer than one in ten of the compared cells was decided) "
        "(default: regressed,suspect,broken,undecided-run); errors always fail",
        parse=decision,
        default=("regressed", "suspect", "broken", "undecided-run"),
        ini="args",
        metavar="LIST",
        many=True,
        commas=True,
    ),
    Option(
        name="against",
        help="compare with a branch, tag or commit, interleaved with the working tree; merge-base (the default value): "
        "the commit where this branch began; dist:NAME==VERSION or dist:PATH.whl: another version of a "
        "dependency, or of the project; python:TARGET: another interpreter",
        parse=revision,
        default=None,
        metavar="REV",
        optional=MERGE_BASE,
    ),
    Option(
        name="unchanged",
        help="skip (the default): with --ftgate-against a test whose cells read the same files on both sides passes "
        "unmeasured; measure: measure it all the same",
        parse=unchanged,
        default="skip",
        metavar="skip|measure",
    ),
    Option(
        name="escalate",
        help="measure a cell that misses its stored baseline together with the baseline's commit, and let that decide "
        "(default: yes)",
        parse=truth,
        default=True,
        ini="bool",
        metavar="yes|no",
    ),
    Option(
        name="explain",
        help="sample the stacks of a regressed cell's workers in a pair of launches, and name the functions that take "
        "the added time (default: yes)",
        parse=truth,
        default=True,
        ini="bool",
        metavar="yes|no",
    ),
    Option(
        name="metrics",
        help=f"metrics that gate, comma-separated or repeated (default: {','.join(DEFAULT_METRICS)}); "
        "the others are only shown",
        parse=metric,
        default=DEFAULT_METRICS,
        ini="args",
        metavar="LIST",
        many=True,
        required=True,
        commas=True,
    ),
    Option(
        name="gate",
        help="what counts as a change of a metric, repeatable: 'wall: margin=0.03, effect=0.08', 'uss: floor=1MiB'; "
        "@ftgate.gate overrides the ini",
        parse=threshold,
        default=(),
        ini="linelist",
        metavar="METRIC:...",
        many=True,
        lines=";\n",
    ),
    Option(
        name="baselines",
        help="folder of the stored baselines, relative to the rootdir (default: baselines; tests/baselines where "
        "setuptools would take that for a package)",
        parse=folder,
        default=None,
        metavar="DIR",
    ),
    Option(
        name="seed",
        help="seed of the order, hash seeds and paddings; each run prints its own",
        parse=whole,
        default=None,
        metavar="N",
    ),
    Option(
        name="time",
        help="time of the whole run, for example 5m; all tests share it, and when it is over no iteration begins",
        parse=seconds,
        default=None,
        metavar="TIME",
    ),
    Option(
        name="test_time",
        help="time of one test, all its cells together, with what follows a miss (default: 3m)",
        parse=seconds,
        default=180.0,
        metavar="TIME",
    ),
    Option(
        name="launches",
        help="number of launches per cell (default: from the variance)",
        parse=count,
        default=None,
        metavar="N",
    ),
    Option(
        name="iterations",
        help="number of iterations per launch (default: from the variance)",
        parse=count,
        default=None,
        metavar="N",
    ),
    Option(
        name="timeout",
        help="seconds that one iteration may take before its process tree is killed; "
        "timeout= of @ftgate.compare overrides the ini",
        parse=seconds,
        default=60.0,
        metavar="TIME",
    ),
    Option(
        name="margin",
        help="short for the margin in --ftgate-gate of wall and scaling: a slowdown up to this is not a regression",
        parse=fraction,
        default=None,
        metavar="SHARE",
    ),
    Option(
        name="effect",
        help="the same for the effect: a pass rules out a slowdown of this size",
        parse=fraction,
        default=None,
        metavar="SHARE",
    ),
    Option(
        name="memory_margin", help="the same as --ftgate-margin, for uss", parse=fraction, default=None, metavar="SHARE"
    ),
    Option(
        name="memory_effect", help="the same as --ftgate-effect, for uss", parse=fraction, default=None, metavar="SHARE"
    ),
    Option(
        name="probe_cost",
        help="do not judge a figure whose probe slowed the workload by more than this",
        parse=fraction,
        default=0.25,
        metavar="SHARE",
    ),
    Option(
        name="alpha",
        help="probability of a false alarm in a whole run, split over everything that gates",
        parse=probability,
        default=0.01,
        metavar="P",
    ),
    Option(
        name="install",
        help="what is installed for each target, a step per line or repeated: arguments of `uv pip install`, or a "
        "shell command after '$ ' (default: the project itself); empty: nothing",
        parse=install_step,
        default=None,
        ini="linelist",
        metavar="STEP",
        many=True,
        lines="\n",
    ),
    Option(
        name="trust",
        help="head (the default): limits, alpha, what fails and which tests there are come from the working tree; "
        "base: from the commit that is compared with, so that a change cannot raise its own margin",
        parse=trust,
        default="head",
        metavar="head|base",
    ),
    Option(
        name="exclusive",
        help="with pytest-xdist: no other test runs beside a measurement (default: yes)",
        parse=truth,
        default=True,
        ini="bool",
        metavar="yes|no",
    ),
    Option(
        name="shard",
        help="measure one part of the tests, such as 2/5, split by what they cost when recorded; ftgate merge "
        "joins the reports",
        parse=shard,
        default=None,
        metavar="I/N",
    ),
    Option(
        name="report",
        help="write a report: json:PATH (everything measured and judged), html:PATH (one page), md:PATH (Markdown for "
        "a comment), junit:PATH; for other tools bmf:PATH (Bencher), gha-benchmark:PATH, benchstat:PATH, otava:PATH "
        "(CSV) or openmetrics:PATH (GitLab); repeatable",
        parse=report_target,
        default=(),
        ini="linelist",
        metavar="KIND:PATH",
        many=True,
    ),
    Option(
        name="decide",
        help="say at the end which executor and interpreter the figures speak for, as `ftgate decide` does later; the "
        "ini and the environment take weights: time=1 memory=0.5 (default: nothing is traded for the other)",
        parse=weight,
        default=(),
        ini="args",
        many=True,
        flag=True,
    ),
)


def by_name(name: str) -> Option:
    """The row of an option."""
    return next(option for option in OPTIONS if option.name == name)


def resolve(option: Option, cli: Any, environment: Mapping[str, str], ini: Any, declared: Any = None) -> Any:
    """The value of an option: command line > environment > decorator > ini > default.

    `cli` and `ini` are None where they were not given. Raises OptionError.
    """
    first = _from_cli(option, cli)
    if first is None:
        first = _from_environment(option, environment)
    if first is not None:
        return first
    if declared is not None:
        return declared
    found = _from_ini(option, ini)
    return default(option) if found is None else found


def default(option: Option) -> Any:
    """Its value where nothing is said."""
    if option.many and option.default:
        return tuple(option.parse(text) for text in option.default)
    return option.default


def _from_cli(option: Option, cli: Any) -> Any:
    """The value given on the command line; None where none was."""
    if cli is None or cli == []:
        return None
    if option.lines:
        cli = [line for text in cli for line in _lines(option, text)]
    return _parsed(option, cli[-1] if isinstance(cli, list) and not option.many else cli, option.cli)


def _from_environment(option: Option, environment: Mapping[str, str]) -> Any:
    text = environment.get(option.variable)
    if text is None:
        return None
    place = f"environment variable {option.variable}"
    if option.lines:
        return _parsed(option, _lines(option, text), place)
    return _parsed(option, _words(text, place) if option.many else text, place)


def _from_ini(option: Option, ini: Any) -> Any:
    if ini is not None and option.lines:
        ini = [line for text in ini for line in _lines(option, text)]
    return None if ini is None else _parsed(option, ini, f"ini option {option.dest}")


SHORT_FORMS = ("margin", "effect", "memory_margin", "memory_effect")
THRESHOLDS = ("gate", *SHORT_FORMS)


def threshold_layers(
    cli: Mapping[str, Any], environment: Mapping[str, str], ini: Mapping[str, Any]
) -> tuple[tuple[Threshold, ...], tuple[Threshold, ...]]:
    """What is said of thresholds for this run, and in the ini: `cli` and `ini` of `thresholds.effective`.

    `cli` and `ini` hold the raw values of the options `gate`, `margin`, `effect`, `memory_margin` and `memory_effect`,
    None or nothing where they were not given. In one place `gate` comes before the short forms: the last holds. Raises
    OptionError.
    """

    from ..judge import limits

    def layer(read: Callable[[Option], Any]) -> tuple[Threshold, ...]:
        short = limits.short_forms(**{name: read(by_name(name)) for name in SHORT_FORMS})
        return (*short, *(read(by_name("gate")) or ()))

    given = layer(lambda option: _from_cli(option, cli.get(option.name)))
    detail_lines = layer(lambda option: _from_environment(option, environment))
    return (*detail_lines, *given), layer(lambda option: _from_ini(option, ini.get(option.name)))


def _lines(option: Option, text: str) -> list[str]:
    return [line.strip() for line in re.split(f"[{option.lines}]", text) if line.strip()]


def _words(text: str, place: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise OptionError(f"{place}={text!r}: {error}; quote it as in a shell") from None


def _parsed(option: Option, value: Any, place: str) -> Any:
    if isinstance(value, bool):
        return value
    try:
        if not option.many:
            return option.parse(str(value))
        items: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
        if option.commas:
            pieces = itertools.chain.from_iterable(str(item).split(",") for item in items)
            items = [piece for piece in dict.fromkeys(piece.strip() for piece in pieces) if piece]
        if option.required and not items:
            raise ValueError(f"at least one {option.metavar}")
        return tuple(option.parse(str(item)) for item in items)
    except FtgateError as error:  # a target says itself what is wrong with it
        raise OptionError(f"{place}: {error}") from None
    except ValueError as error:
        raise OptionError(f"{place}={_spelled(value)}: takes {error}") from None


def _spelled(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
