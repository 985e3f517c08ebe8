"""What a baseline holds: a file for each run that recorded a test, with a line for each cell."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from ..kit.errors import FtgateError
from ..kit.values import CommitId, Metric, Name, Struct, fault_of
from ..model.report import Machine
from ..model.spec import BodyKind, InterpreterBuild, Reuse

SCHEMA = 4
STATISTIC = 3
"""The way in which a launch's values are computed: values of another way cannot be compared."""
RECORDINGS_KEPT = 20
"""Of a cell on one machine and build; older ones do not count."""
LONGEST_NAME = 180
"""Bytes of one file name; most file systems end at 255, and a suffix and a temporary name must fit."""
LEAST, MOST = 1e-30, 1e30
"""The bounds of a value that is not 0: neither a ratio of two nor a sum of their squares leaves a float's range."""
POSITIVE: Final = frozenset(
    (Metric.WALL, Metric.TAIL, Metric.USS, Metric.SCALING, "control", "wall/control", "tail/control", "rss", "pss")
)
"""Metrics that are never 0: one that is was not measured."""

Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
Value: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MOST)]


class BaselineError(FtgateError):
    """A stored baseline that cannot be read, kept or written; the text names the place and suggests a fix."""


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    """Base of what stands in a file: as strict as the model's, but what is at its default is left out."""


class Recording(Stored, frozen=True, kw_only=True):
    """What one run measured of one cell: what was measured, and each launch's value of each metric.

    Launches of the same round share an index: `orders` numbers the rounds, `values` maps a metric's name to a value for
    each round, None where it has none. `took_s` are the seconds that the measurement of the whole test took, 0 where
    they are not known.
    A recording that stands `anew` takes the place of those made before it. `tree` is that of the files that were
    measured, as git names it, without recordings; of an edited tree the commit that has it is known by it. The fields
    up to `tree` stand once in a file for all of its cells; times are ISO 8601 in UTC.
    """

    recorded_at: str = ""
    commit: CommitId = ""
    seed: Whole = 0
    tree: CommitId = ""
    build: Name
    executor: Name
    workers: Number
    body: BodyKind = "worker"
    reuse: Reuse = "fresh"
    measures: str = ""
    windows: bool = False
    loops: Number = 1
    anew: bool = False
    took_s: Value = 0.0
    orders: Annotated[tuple[Whole, ...], msgspec.Meta(min_length=1)]
    values: Annotated[dict[str, tuple[Value | None, ...]], msgspec.Meta(min_length=1)]

    @property
    def day(self) -> str:
        """The day on which it was recorded, in UTC."""
        return datetime.fromisoformat(self.recorded_at).astimezone(UTC).date().isoformat() if self.recorded_at else ""

    @property
    def measured(self) -> tuple[object, ...]:
        """What was measured; only recordings of the same are compared."""
        return self.executor, self.workers, self.body, self.reuse, self.measures, self.windows

    def by_order(self, metric: str) -> dict[int, float]:
        """Round -> the value of a metric; empty if it is not stored."""
        known = zip(self.orders, self.values.get(metric, ()), strict=False)
        return {order: value for order, value in known if value is not None}


class StoredRun(Stored, omit_defaults=False, frozen=True, kw_only=True):
    """One file: what one run recorded of one test, by cell label; `interpreters` are by build key."""

    schema: int
    statistic: int
    test: Name
    recorded_at: str
    commit: CommitId
    seed: Whole
    tree: CommitId = ""
    machine: Machine
    interpreters: dict[str, InterpreterBuild]
    cells: dict[str, Recording]


class StoredCell(Struct, frozen=True, kw_only=True):
    """The recordings of one cell on one machine and one build, all of the same; the newest stands last."""

    interpreter: InterpreterBuild
    recordings: tuple[Recording, ...]


class TestBaseline(Struct, frozen=True, kw_only=True):
    """What is stored of one test: `cells` maps cell label -> `<fingerprint>/<build key>` -> stored cell."""

    __test__ = False

    test: str
    machines: dict[str, Machine]
    cells: dict[str, dict[str, StoredCell]]


# ---- the file format: one cell per line

T = TypeVar("T")


def encode(run: StoredRun) -> str:
    """The text of a file: keys sorted; one line per cell, interpreter and machine; a newline at the end."""
    text = _expanded(msgspec.to_builtins(run), 0) + "\n"
    # UTF-8 cannot hold half of a surrogate pair, which a path that is not UTF-8 contains.
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _expanded(value: dict[str, Any], depth: int) -> str:
    """An object with a line for each key, and the same for what is keyed by cells or builds within it."""
    indent = "  " * (depth + 1)
    lines = []
    for key in sorted(value):
        keyed = depth == 0 and key in ("cells", "interpreters") and value[key]
        if keyed:
            text = _expanded(value[key], depth + 1)
        else:
            short = _shortened(value[key])
            text = json.dumps(short, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        lines.append(f"{indent}{json.dumps(key, ensure_ascii=False)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n" + indent[2:] + "}"


def _shortened(value: Any) -> Any:
    """The same values; whole numbers without a point."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shortened(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


# ---- reading: strict, with errors that name the place

DELETE_AND_RECORD = "delete the file and record it again with `pytest --ftgate-update`"
RESTORE = f"restore it from version control, or {DELETE_AND_RECORD}"


def decode(content: bytes, name: str) -> StoredRun:
    """A file's content, checked; `name` stands in errors. Raises BaselineError."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise broken(name, f"byte {error.start}", "is not UTF-8 text") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(("<<<<<<<", "|||||||", ">>>>>>>")):
            fix = f"take one side (`git checkout --ours -- {name}`, or `--theirs`) and record the cell again"
            raise broken(name, f"line {number}, column 1", f"a merge conflict is not resolved ({line[:7]})", fix)
    try:
        # Not by msgspec, which takes the last of several values of a key.
        read = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        cut = not text[error.pos :].strip()
        problem = "the file is cut off" if cut else f"is not JSON: {error.msg}"
        raise broken(name, f"line {error.lineno}, column {error.colno}", problem) from error
    except (RecursionError, ValueError) as error:
        raise broken(name, "$", f"is not a baseline: {str(error).partition(';')[0]}") from error
    for field, known in (("schema", SCHEMA), ("statistic", STATISTIC)):
        version = read.get(field) if isinstance(read, dict) else None
        if type(version) is not int:  # isinstance would accept true
            raise broken(name, f"$.{field}", f"a version number is missing (this version writes {known})")
        if version != known:
            age, fix = ("newer", "upgrade pytest-ftgate") if version > known else ("older", DELETE_AND_RECORD)
            raise broken(name, f"$.{field}", f"version {version} is {age} than this pytest-ftgate reads ({known})", fix)
    # Each cell is converted alone first, so that an error's path names the cell.
    cells = read.get("cells")
    for label, cell in (cells if isinstance(cells, dict) else {}).items():
        _convert(cell, Recording, _child("$.cells", label), name)
    run = _convert(read, StoredRun, "$", name)
    for place, fault in _contradictions(run):
        raise broken(name, place, fault)
    return run


def broken(name: str, place: str, fault: str, fix: str = RESTORE) -> BaselineError:
    return BaselineError(f"{name}: {place}: {fault}; {fix}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {json.dumps(twice)} stands twice")
    return read


def _no_number(name: str) -> Any:
    """For NaN and the infinities, which JSON does not have."""
    raise ValueError(f"{name} is not a number that can be compared")


def _child(path: str, key: str) -> str:
    return f"{path}.{key}" if re.fullmatch(r"\w+", key) else f"{path}[{json.dumps(key, ensure_ascii=False)}]"


def _convert(value: Any, kind: type[T], path: str, name: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except UnicodeEncodeError as error:  # half of a surrogate pair, where only whole characters may stand
        raise broken(name, path, f"a text is not Unicode: {error}") from error
    except msgspec.ValidationError as error:
        fault, place = fault_of(error)
        raise broken(name, path + place.removeprefix("$"), fault) from error


def _contradictions(run: StoredRun) -> Iterator[tuple[str, str]]:
    """Contradictions within a file, such as a badly resolved conflict leaves, and what means nothing: place, fault."""
    if not _is_time(run.recorded_at):
        yield "$.recorded_at", "is not a time with its offset from UTC, such as 2026-01-31T12:00:00+00:00"
    if not run.cells:
        yield "$.cells", "holds no cell"
    for label, cell in run.cells.items():
        path = _child("$.cells", label)
        if cell.build not in run.interpreters:
            yield f"{path}.build", f"$.interpreters has no {json.dumps(cell.build)}"
        if len(set(cell.orders)) < len(cell.orders):
            yield f"{path}.orders", "a round stands twice"
        for metric, values in cell.values.items():
            place, known = _child(f"{path}.values", metric), [value for value in values if value is not None]
            if len(values) != len(cell.orders):
                yield place, f"its length is not that of orders, {len(cell.orders)}"
            elif not known:
                yield place, "holds no number"
            elif metric in POSITIVE and min(known) == 0:
                yield place, "is 0, which no launch can give"
            elif 0 < min(filter(None, known), default=1.0) < LEAST:
                yield place, f"is closer to 0 than {LEAST:g}"


def _is_time(text: str) -> bool:
    """Whether it is an ISO 8601 time of these decades, with its offset from UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return False
    return time.tzinfo is not None and 2000 <= time.year < 2100
