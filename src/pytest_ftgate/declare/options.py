"""One table of options: each row is a command-line option, an ini key, and a typed attribute.

Every pytest run imports this module. What only some values need is imported when such a value is read.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, dataclass_transform

from ..kit.errors import FtgateError
from ..kit.plugins import features
from ..kit.text import did_you_mean, listed

if TYPE_CHECKING:
    from ..kit.values import Threshold
    from ..model.report import Criterion
    from ..model.verdict import Decision

IniType = Literal["string", "bool", "linelist", "args"]


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
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("true or false")


def some(what: str) -> Callable[[str], str]:
    """Takes any text that is not empty."""

    def not_empty(text: str) -> str:
        if not text.strip():
            raise ValueError(what)
        return text

    return not_empty


def one_of(*words: str) -> Callable[[str], str]:
    """Reads one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(listed(words))
        return text

    return parse


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
    from ..report.json import formats

    kinds = ("json", *formats())
    kind, _, path = text.partition(":")
    if kind in kinds and path:
        return text
    ending = text.rpartition(".")[2]
    if kind in kinds or ending in kinds:
        raise ValueError(f"a kind and a path: {f'{kind}:PATH' if kind in kinds else f'{ending}:{path or text}'}")
    raise ValueError(f"KIND:PATH, and KIND is {listed(kinds)}{did_you_mean(kind, kinds)}")


def weight(text: str) -> tuple[Criterion, float]:
    """`time=1`: what a decision weighs, and by how much."""
    from ..kit.values import LARGEST
    from ..model.report import CRITERIA

    name, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    for criterion in CRITERIA:
        if criterion == name and 0 <= value <= LARGEST:
            return criterion, value
    raise ValueError(f"weights such as time=1 memory=0.5: {text!r} is none{did_you_mean(name, CRITERIA)}")


BEYOND = "beyond-effect"
"""Inconclusive at a change that is worse than the effect: see `Verdict.beyond`."""
UNDECIDED_RUN = "undecided-run"
"""Less than half of the compared cells was decided, or one is worse by one launch: see `said.undecided`."""
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
    "undecided",
    "skipped",
    UNDECIDED_RUN,
)
"""The words of `--ftgate-fail-on`: decisions, outcomes of decisions, BEYOND and UNDECIDED_RUN."""


def decision(text: str) -> Decision | str:
    """A decision or an outcome that may fail a test, or BEYOND or UNDECIDED_RUN."""
    word = text.strip().replace(" ", "-")
    if word not in FAILING:
        raise ValueError(f"{listed(FAILING)}{did_you_mean(word, FAILING)}; errors always fail")
    if word in (BEYOND, "undecided", "skipped", UNDECIDED_RUN):
        return word
    from ..model.verdict import Decision

    return Decision(word.replace("-", " "))


def metric(text: str) -> str:
    """A metric of the table, or one of a workload's own such as `timer.ack_wait`."""
    from ..judge import metrics

    word = text.strip()
    if not metrics.known(word):
        raise ValueError(f"metrics: {metrics.no_metric(word)}")
    return word


def threshold(text: str) -> Threshold:
    """`wall: margin=3%, effect=8%`, checked."""
    from ..judge import limits

    return limits.parse(text)


MERGE_BASE = "merge-base"
STORED = "stored"
PYTHON = "python:"
_DISTRIBUTION = r"dist:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9][A-Za-z0-9._+!-]*"
_REVISION = r"(?![-.])(?!.*//)(?:[^\s:?*\[\\.]|\.(?!\.))*[^\s:?*\[\\/.]"


def revision(text: str) -> str:
    """A branch, tag or commit, or two as `REV..REV`; `merge-base`; `dist:NAME==VERSION` or `dist:PATH.whl`;
    `python:TARGET`; `stored`."""
    stripped = text.strip()
    if stripped.startswith(PYTHON):
        return PYTHON + target(stripped.removeprefix(PYTHON))
    if stripped.startswith("dist:") and stripped.endswith(".whl"):
        return stripped
    pattern = _DISTRIBUTION if stripped.startswith("dist:") else rf"{_REVISION}(?:\.\.{_REVISION})?"
    if re.fullmatch(pattern, stripped) is None:
        if stripped.startswith("dist:"):
            name = stripped.removeprefix("dist:").partition("=")[0] or "NAME"
            raise ValueError(f"a version of a distribution: dist:{name}==VERSION, or dist:PATH.whl")
        raise ValueError(
            f"a branch, tag or commit, REV..REV, {MERGE_BASE}, dist:NAME==VERSION, dist:PATH.whl, python:TARGET or "
            f"{STORED}"
        )
    return stripped


def target(text: str) -> str:
    """A target, checked; as `parse_target` spells it. Raises TargetError."""
    from ..model.spec import parse_target

    return parse_target(text).spec


DEFAULT_METRICS = ("wall", "tail", "start", "uss", "growth", "lock_wait", "payload")
"""The same as `judge.metrics.GATING`, which every pytest run would import for the help."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class _Keywords:
    """Has its keyword arguments as attributes: every pytest run makes these classes, and a dataclass takes 3 ms."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)


class Option(_Keywords):
    """One row: `parse` turns a text into the value and raises ValueError with what it takes.

    As an attribute of a class it is the default of that attribute, whose name it gets.
    """

    name: str = ""
    help: str
    parse: Callable[[str], Any]
    default: Any
    """The value if the option is not given."""
    ini: IniType
    metavar: str = ""
    many: bool = False
    """It may be given several times; for any other option the last value counts."""
    flag: bool = False
    """Without a value on the command line."""
    none: bool = False
    """An empty value means none. For any other option it is an error, or in the ini not a value."""
    lines: str = ""
    """The characters that separate several values in one text."""
    commas: bool = False
    """Several values in one text are separated by commas."""
    optional: str = ""
    """The value of an option that is written without one."""

    ini_only: bool = False
    """It is set rarely, so the command line sets it only by `-o`."""
    measures: bool = False
    """It makes a run measure."""
    plain: bool = False
    """A run that measures nothing uses it too."""
    of_a_cell: bool = True
    """It may change the figures of a cell, so the command that reruns one cell needs it."""
    shard_own: bool = False
    """The parts of a run may differ in it."""

    def of(self, options: Options) -> Any:
        """Its value in a run."""
        return vars(options).get(self.name, self.default)

    def __set_name__(self, owner: type, name: str) -> None:
        vars(self).update(name=name)

    def __get__(self, options: Options | None, owner: type) -> Any:
        return self if options is None else self.default

    @property
    def cli(self) -> str:
        """`--ftgate-python`; the option named `ftgate` is `--ftgate` itself."""
        return "--ftgate" if self.name == "ftgate" else "--ftgate-" + self.name.replace("_", "-")

    @property
    def dest(self) -> str:
        """Name of the ini key and of pytest's own attribute."""
        return "ftgate" if self.name == "ftgate" else "ftgate_" + self.name


def option(name: str, default: Any, parse: Callable[[str], Any], text: str, **columns: Any) -> Option:
    """A row, by default with the usual type of ini key. That of a feature is one of its `ftgate_options`."""
    split: IniType = "linelist" if columns.get("lines") else "args" if columns.get("many") else "string"
    usual = {"ini": "bool", "metavar": "yes|no"} if parse is truth else {"ini": split}
    return Option(name=name, default=default, parse=parse, help=text, **usual | columns)


def row(default: Any, parse: Callable[[str], Any], text: str, **columns: Any) -> Any:
    """An attribute of `Options` with its row."""
    return option("", default, parse, text, **columns)


class Options(_Keywords):
    """What the command line and the ini say about a run; durations in seconds.

    A new option of the core is a new attribute here; that of a feature is read by `Option.of`.
    """

    ftgate: bool = row(
        False,
        truth,
        "measure the cells of @ftgate.compare and gate them",
        flag=True,
        measures=True,
        of_a_cell=False,
    )
    python: tuple[str, ...] = row(
        (),
        target,
        "target to measure, repeatable: 3.14, 3.14t, 3.14t[gil=on], 3.14[switchinterval=0.1ms], 3.14[jit=on], "
        "or a path; pythons= of @ftgate.compare overrides the ini "
        "(default: both builds of the newest installed version)",
        metavar="TARGET",
        many=True,
        plain=True,
        shard_own=True,  # which targets are measured stands in the names of the cells
    )
    update: tuple[str, ...] = row(
        (),
        some("all, or the node id of a cell"),
        "record baselines: new cells only; =all: also every cell that passed or improved; "
        "=CELL (repeatable, globs): these cells, even if they regressed",
        metavar="all|CELL",
        many=True,
        optional="new",
        measures=True,
        of_a_cell=False,
    )
    fail_on: tuple[str, ...] = row(
        ("regressed", "suspect", "broken", UNDECIDED_RUN),
        decision,
        "verdicts that fail a test, comma-separated or repeated: regressed, suspect, broken, accepted (by a commit's "
        "trailer), improved, unsupported, skipped, inconclusive, not-measured, no-baseline, undecided (these three), "
        "beyond-effect (inconclusive, but worse than the effect); undecided-run ends the run with 5 if less than half "
        "of the compared cells was decided, or if the only pair of a cell is worse than the effect "
        "(default: regressed,suspect,broken,undecided-run); errors always fail",
        metavar="LIST",
        many=True,
        commas=True,
        of_a_cell=False,
    )
    against: str = row(
        "",
        revision,
        "compare with a branch, tag or commit, interleaved with the working tree; REV..REV: the second with the "
        "first; merge-base (the default value): the commit where this branch began; dist:NAME==VERSION or "
        "dist:PATH.whl: another version of a dependency, or of the project; python:TARGET: another interpreter; "
        "stored: the stored figures, not their commit",
        metavar="REV",
        optional=MERGE_BASE,
        measures=True,
    )
    explain: bool = row(
        True,
        truth,
        "explain a cell that fails, with extra launches: name the functions, locks, lines that hold memory and imports "
        "behind the change (default: yes)",
        ini_only=True,
    )
    metrics: tuple[str, ...] = row(
        DEFAULT_METRICS,
        metric,
        f"metrics that gate, comma-separated or repeated (default: {','.join(DEFAULT_METRICS)}); "
        "the others are only shown",
        metavar="LIST",
        many=True,
        commas=True,
    )
    limit: tuple[Threshold, ...] = row(
        (),
        threshold,
        "limits of a metric, repeatable: 'wall: margin=0.03, effect=0.08', 'uss: floor=1MiB'; "
        "@ftgate.limit overrides the ini",
        metavar="METRIC:...",
        many=True,
        lines=";\n",
    )
    baselines: str = row(
        "",
        some("the name of a folder"),
        "folder of the stored baselines, relative to the rootdir (default: baselines; tests/baselines if "
        "setuptools would take baselines for a package)",
        metavar="DIR",
    )
    seed: int = row(
        -1,  # the run draws one
        whole,
        "seed of the order, hash seeds and paddings; -v prints the seed of the run",
        metavar="N",
        of_a_cell=False,
        shard_own=True,
    )
    time: float | None = row(
        None,
        seconds,
        "time of the whole run, for example 5m; all tests share it, and no iteration begins after it",
        metavar="TIME",
        of_a_cell=False,
    )
    test_time: float = row(
        180.0,
        seconds,
        "time of one test, all its cells together (default: 3m)",
        metavar="TIME",
    )
    launches: int | None = row(
        None,
        count,
        "number of launches per cell (default: 5, or as many as a verdict needs)",
        metavar="N",
        ini_only=True,
    )
    iterations: int | None = row(
        None,
        count,
        "number of iterations per launch (default: from the variance)",
        metavar="N",
        ini_only=True,
    )
    timeout: float = row(
        60.0,
        seconds,
        "seconds that one iteration may take before its process tree is killed; "
        "timeout= of @ftgate.compare overrides the ini",
        metavar="TIME",
        plain=True,
    )
    probe_cost: float = row(
        0.25,
        fraction,
        "do not judge a figure if its probe slowed the workload by more than this",
        metavar="SHARE",
        ini_only=True,
    )
    alpha: float = row(
        0.01,
        probability,
        "probability of a false alarm in a whole run, split over everything that gates",
        metavar="P",
        ini_only=True,
    )
    install: tuple[tuple[str, ...], ...] | None = row(
        None,
        install_step,
        "steps that install each target, one per line or repeated: arguments of `uv pip install`, or a "
        "shell command after '$ ' (default: the project itself); empty: nothing",
        metavar="STEP",
        many=True,
        none=True,
        lines="\n",
    )
    report: tuple[str, ...] = row(
        (),
        report_target,
        "write a report: json:PATH (everything measured and judged), html:PATH (one page), md:PATH (Markdown for "
        "a comment); for other tools bmf:PATH (Bencher), gha-benchmark:PATH or openmetrics:PATH (GitLab); repeatable",
        ini="linelist",
        metavar="KIND:PATH",
        many=True,
        of_a_cell=False,
        shard_own=True,
    )

    weights: tuple[tuple[Criterion, float], ...] = row(
        (),
        weight,
        "weights of the criteria in `ftgate decide` and on the page: time=1 memory=0.5 (default: neither is traded "
        "for the other)",
        many=True,
        of_a_cell=False,
        shard_own=True,
        ini_only=True,
    )

    thresholds: tuple[Threshold, ...] = ()
    """What the command line says of thresholds: the last one holds."""
    ini_thresholds: tuple[Threshold, ...] = ()
    before_declared: frozenset[str] = frozenset()
    """The options of the command line, which hold before what a decorator declares."""
    rerun: tuple[str, ...] = ()
    """Words of the command line that a rerun of a cell needs."""

    def replaced(self, **changed: Any) -> Options:
        """The same with other values."""
        return Options(**(vars(self) | changed))

    @property
    def reference(self) -> str:
        """What `against` measures beside the cells; empty for what is stored."""
        return "" if self.against == STORED else self.against

    def declared(self, name: str, declared: Any) -> Any:
        """The value of an option that a decorator may declare: command line > decorator > ini."""
        return getattr(self, name) if declared is None or name in self.before_declared else declared


OPTIONS = tuple(each for each in vars(Options).values() if isinstance(each, Option))
"""The rows of the core."""


@cache
def table() -> tuple[Option, ...]:
    """All rows: the core's, then the features'."""
    return (*OPTIONS, *itertools.chain.from_iterable(features("option").hook.ftgate_options()))


def read(cli: Mapping[str, Any], ini: Mapping[str, Any], rows: Iterable[Option]) -> Options:
    """The options: command line > ini > default; what is not in `rows` has its default.

    `cli` and `ini` have the raw values by the name of the option, None or nothing where it was not given. An empty ini
    key counts as not given, because CI may fill it from a missing setting. Raises FtgateError.
    """
    given, project = layers = dict[str, Any](), dict[str, Any]()
    for option in rows:
        said = (
            (option.cli, cli.get(option.name)),
            (f"ini option {option.dest}", ini.get(option.name)),
        )
        for layer, (place, raw) in zip(layers, said, strict=True):
            may_be_empty = layer is given or (option.none and layer is project)
            if raw is not None and (may_be_empty or not _is_empty(option, raw)):
                layer[option.name] = _parsed(option, raw, place)
                if option.name != "limit":  # each field of a threshold has its own precedence
                    break
    return Options(
        **{**project, **given},
        thresholds=tuple(given.get("limit", ())),
        ini_thresholds=tuple(project.get("limit", ())),
        before_declared=frozenset(given),
    )


def _is_empty(option: Option, raw: Any) -> bool:
    """Whether an ini key holds only blanks and separators."""
    texts = raw if isinstance(raw, (list, tuple)) else [raw]
    nothing = rf"[\s{option.lines}{',' * option.commas}]*"
    return all(re.fullmatch(nothing, str(text)) for text in texts)


def _parsed(option: Option, raw: Any, place: str) -> Any:
    """The value of a text, or of several if pytest or a file has split it. Raises FtgateError."""
    if isinstance(raw, bool):
        return raw
    given = list(map(str, raw)) if isinstance(raw, (list, tuple)) else [str(raw)]
    if option.lines:
        lines = itertools.chain.from_iterable(re.split(f"[{option.lines}]", text) for text in given)
        given = [line.strip() for line in lines if line.strip()]
    elif option.many and isinstance(raw, str):
        try:
            given = shlex.split(raw)
        except ValueError as error:
            raise FtgateError(f"{place}={raw!r}: {error}; quote it as in a shell") from None
    try:
        if not option.many:
            return option.parse(given[0])
        items = given
        if option.commas:
            pieces = itertools.chain.from_iterable(item.split(",") for item in given)
            items = [piece for piece in dict.fromkeys(piece.strip() for piece in pieces) if piece]
        if not (items or option.none):
            raise ValueError(f"at least one {option.metavar}")
        return tuple(map(option.parse, items))
    except FtgateError as error:  # a target says itself what is wrong with it
        raise FtgateError(f"{place}: {error}") from None
    except ValueError as error:
        raise FtgateError(f"{place}={' '.join(given)}: takes {error}") from None
