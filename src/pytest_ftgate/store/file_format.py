"""Baseline files: strict decoding with clear errors, and one launch per line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ..model import Launch
from .schema import SCHEMA, STATISTIC, BaselineError, StoredCell, TestBaseline

T = TypeVar("T")


# ---- the file format


def encode(baseline: TestBaseline) -> str:
    """The text of a file: keys sorted; one line per launch, interpreter and machine; a newline at the end."""
    text = _expanded(_packed(baseline), (), "") + "\n"
    # UTF-8 cannot hold half of a surrogate pair, which a path that is not UTF-8 contains.
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _expanded(value: Any, path: tuple[str | int, ...], indent: str) -> str:
    if not value or not isinstance(value, (dict, list, tuple)) or _on_one_line(path):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    inner = indent + "  "
    if isinstance(value, dict):
        keyed = ((json.dumps(key, ensure_ascii=False) + ": ", key, value[key]) for key in sorted(value))
        lines = [inner + name + _expanded(item, (*path, key), inner) for name, key, item in keyed]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    lines = [inner + _expanded(item, (*path, index), inner) for index, item in enumerate(value)]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"


def _on_one_line(path: tuple[str | int, ...]) -> bool:
    """`machines/*`, `cells/*/*/interpreter` and each launch; by depth, because a cell may be named like a field."""
    match path:
        case ("machines", _) | ("cells", _, _, "interpreter"):
            return True
        case ("cells", _, _, "recordings", int(), side, int()):
            return side in LAUNCHES
    return False


# ---- columns: the iterations of a launch, its samples of memory and its barriers


LAUNCHES = ("launches", "control", "single", "memory", "locks")
"""The fields of a recording that hold launches."""
COLUMNS = ("iterations", "memory", "barriers")
"""Fields of a launch that are stored as an object of arrays instead of an array of objects, which is shorter."""


def _packed(value: Any) -> Any:
    """Plain values of a struct, without fields at their default; sequences of structs as columns."""
    if isinstance(value, msgspec.Struct):
        kept = {
            field.name: getattr(value, field.name)
            for field in msgspec.structs.fields(value)
            if not _is_default(field, getattr(value, field.name))
        }
        columns = COLUMNS if isinstance(value, Launch) else ()
        return {name: _columns(item) if name in columns else _packed(item) for name, item in kept.items()}
    if isinstance(value, dict):
        return {key: _packed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_packed(item) for item in value]
    # Nine digits are more than any clock resolves, and the same text on every machine.
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _is_default(field: msgspec.structs.FieldInfo, value: Any) -> bool:
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(value == field.default_factory())
    return field.default is not msgspec.NODEFAULT and bool(value == field.default)


def _columns(items: Sequence[msgspec.Struct]) -> dict[str, Any]:
    """An array for each field, except fields that are at their default in every item."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(items[0]):
        column = [getattr(item, field.name) for item in items]
        if all(_is_default(field, item) for item in column):
            continue
        nested = all(isinstance(item, msgspec.Struct) for item in column)
        found[field.name] = _columns(column) if nested else _packed(column)
    return found


def _unpack(cells: Any, path: str, name: str) -> None:
    """Convert columns back to arrays of objects, in place. Raises BaselineError if their lengths differ."""
    for place, launch in _launches(cells, path):
        for field in COLUMNS:
            if isinstance(launch.get(field), dict):
                launch[field] = _rows(launch[field], f"{place}.{field}", name)


def _launches(cells: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in the place of a launch, with its path; the decoder reports other shapes later."""
    found = [(path, cells)]
    for keys in (None, None, ("recordings",), None, LAUNCHES, None):  # cell, build, field, recording, side, launch
        found = [inner for place, value in found for inner in _inside(value, place, keys)]
    return ((place, value) for place, value in found if isinstance(value, dict))


def _inside(value: Any, path: str, keys: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
    """The items of an object (under these keys) or of an array, with their paths."""
    if isinstance(value, dict):
        yield from ((_child(path, key), item) for key, item in value.items() if keys is None or key in keys)
    elif isinstance(value, list) and keys is None:
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(value))


def _rows(columns: dict[str, Any], path: str, name: str) -> list[dict[str, Any]]:
    arrays = {
        field: _rows(column, f"{path}.{field}", name) if isinstance(column, dict) else column
        for field, column in columns.items()
    }
    for field, array in arrays.items():
        first = next(iter(arrays))
        if not isinstance(array, list):
            raise broken(name, f"{path}.{field}", "is not an array")
        if len(array) != len(arrays[first]):
            raise broken(name, f"{path}.{field}", f"its length is not that of {first}, {len(arrays[first])}")
    return [dict(zip(arrays, row, strict=True)) for row in zip(*arrays.values(), strict=True)]


class _Object(dict[str, Any]):
    """A decoded JSON object that records a duplicate key."""

    duplicate: str | None = None


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    read = _Object(pairs)
    if len(read) < len(pairs):
        keys = [key for key, _ in pairs]
        read.duplicate = next(key for key in keys if keys.count(key) > 1)
    return read


DELETE_AND_RECORD = "delete the file and record it again with `pytest --ftgate --ftgate-update`"
RESTORE = f"restore it from version control, or {DELETE_AND_RECORD}"


def decode(content: bytes, name: str) -> TestBaseline:
    """A file's content, checked; `name` stands in errors. Raises BaselineError."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise broken(name, f"byte {error.start}", "is not UTF-8 text") from error
    _refuse_conflict(text, name)
    read = _parsed(text, name)
    _check_version(read, "schema", SCHEMA, name)
    _check_version(read, "statistic", STATISTIC, name)
    baseline = _converted(read, name)
    _check_consistency(baseline, name)
    return baseline


def broken(name: str, place: str, fault: str, fix: str = RESTORE) -> BaselineError:
    """The error for a fault at a place of a file."""
    return BaselineError(f"{name}: {place}: {fault}; {fix}")


def _refuse_conflict(text: str, name: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(("<<<<<<<", "|||||||", ">>>>>>>")):
            fix = f"take one side (`git checkout --ours -- {name}`, or `--theirs`) and record the cell again"
            raise broken(name, f"line {number}, column 1", f"a merge conflict is not resolved ({line[:7]})", fix)


def _parsed(text: str, name: str) -> Any:
    try:
        read = json.loads(text, object_pairs_hook=_object)
        fault = next(_faults(read, "$"), None)
    except json.JSONDecodeError as error:
        cut = not text[error.pos :].strip()
        problem = "the file is cut off" if cut else f"is not JSON: {error.msg}"
        raise broken(name, f"line {error.lineno}, column {error.colno}", problem) from error
    except (RecursionError, ValueError) as error:
        raise broken(name, "$", f"is not a baseline: {str(error).partition(';')[0]}") from error
    if fault:
        raise broken(name, *fault)
    return read


def _faults(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Values that are JSON but not allowed in a baseline: the path and the fault of each."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, f"{json.dumps(value)} is not a number that can be compared"
    elif isinstance(value, _Object):
        if value.duplicate is not None:
            yield path, f"the key {json.dumps(value.duplicate)} stands twice"
        for key, item in value.items():
            yield from _faults(item, _child(path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, f"{path}[{index}]")


def _child(path: str, key: str) -> str:
    return f"{path}.{key}" if re.fullmatch(r"\w+", key) else f"{path}[{json.dumps(key, ensure_ascii=False)}]"


def _check_version(read: Any, field: str, known: int, name: str) -> None:
    version = read.get(field) if isinstance(read, dict) else None
    if type(version) is not int:  # isinstance would accept true
        raise broken(name, f"$.{field}", f"a version number is missing (this version writes {known})")
    if version > known:
        fault = f"version {version} is newer than this pytest-ftgate reads ({known})"
        raise broken(name, f"$.{field}", fault, "upgrade pytest-ftgate")
    if version < known:
        fault = f"version {version} is older than this pytest-ftgate reads ({known})"
        raise broken(name, f"$.{field}", fault, DELETE_AND_RECORD)


def _converted(read: dict[str, Any], name: str) -> TestBaseline:
    """The baseline of a decoded file. Raises BaselineError."""
    # Each stored cell is converted alone first, so that an error's path names the cell and the build.
    cells = read.get("cells")
    _unpack(cells, "$.cells", name)
    for label, builds in (cells if isinstance(cells, dict) else {}).items():
        for key, entry in (builds if isinstance(builds, dict) else {}).items():
            _convert(entry, StoredCell, _child(_child("$.cells", label), key), name)
    return _convert(read, TestBaseline, "$", name)


def _convert(value: Any, kind: type[T], path: str, name: str) -> T:
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        fault, _, place = str(error).partition(" - at `")
        raise broken(name, path + place.removesuffix("`").removeprefix("$"), fault) from error


def _check_consistency(baseline: TestBaseline, name: str) -> None:
    for label, builds in baseline.cells.items():
        for key in builds:
            path = _child(_child("$.cells", label), key)
            fingerprint, separator, build = key.partition("/")
            if not (separator and build):
                raise broken(name, path, "the key is not `<fingerprint>/<build key>`")
            if fingerprint not in baseline.machines:
                raise broken(name, path, f"$.machines has no {json.dumps(fingerprint)}")
            for place, fault in _faults_of_locks(builds[key]):
                raise broken(name, path + place, fault)


def _faults_of_locks(entry: StoredCell) -> Iterator[tuple[str, str]]:
    """Contradictions within a lock launch, such as a badly resolved conflict leaves: place and fault."""
    for at, recording in enumerate(entry.recordings):
        for index, launch in enumerate(recording.locks):
            place = f".recordings[{at}].locks[{index}].locks"
            if launch.locks is None or not launch.locks.work_ns:
                yield f"{place}.work_ns", "is not a time at work"
                continue
            for number, site in enumerate(launch.locks.sites):
                waits = sum(site.histogram.values())
                if waits != site.contended:
                    fault = f"its waits are {waits}, not {site.contended} as contended says"
                    yield f"{place}.sites[{number}].histogram", fault
