"""One table of options: each row becomes a command-line option, an environment variable and an ini key.

Every pytest run imports this module: see `option_types`.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import FtgateError
from .option_types import (
    MERGE_BASE,
    IniType,
    OptionError,
    cells,
    count,
    decision,
    folder,
    fraction,
    install_step,
    metric,
    probability,
    report_target,
    revision,
    seconds,
    shard,
    target,
    threshold,
    trust,
    truth,
    unchanged,
    weight,
    whole,
)

if TYPE_CHECKING:
    from ..model import Threshold

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

    from ..judge import thresholds

    def layer(read: Callable[[Option], Any]) -> tuple[Threshold, ...]:
        short = thresholds.short_forms(**{name: read(by_name(name)) for name in SHORT_FORMS})
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
