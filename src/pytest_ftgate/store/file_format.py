"""Baseline files: strict decoding with clear errors, and one launch a line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from .schema import SCHEMA, STATISTIC, BaselineError, Entry, Stored, StoredSite, TestBaseline

T = TypeVar("T")


# ---- the file format


def encode(baseline: TestBaseline) -> str:
    """The text of a file: keys sorted, a launch, an interpreter, a machine a line each, a newline at the end."""
    text = _expanded(msgspec.to_builtins(baseline), (), "") + "\n"
    # Half of a surrogate pair, as a path of stray bytes has it, is no UTF-8.
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
    """`machines/*`, `cells/*/*/interpreter` and each launch; by depth, since a cell may be named like a field."""
    match path:
        case ("machines", _) | ("cells", _, _, "interpreter"):
            return True
        case ("cells", _, _, "recordings", int(), "launches" | "memory" | "locks", int()):
            return True
    return False


class _Object(dict[str, Any]):
    """A decoded JSON object that remembers a key it met twice."""

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


def broken(name: str, place: str, fault: str, mend: str = RESTORE) -> BaselineError:
    """The error for a fault at a place of a file."""
    return BaselineError(f"{name}: {place}: {fault}; {mend}")


def _refuse_conflict(text: str, name: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(("<<<<<<<", "|||||||", ">>>>>>>")):
            mend = f"take one side (`git checkout --ours -- {name}`, or `--theirs`) and record the cell again"
            raise broken(name, f"line {number}, column 1", f"a merge conflict is not resolved ({line[:7]})", mend)


def _parsed(text: str, name: str) -> Any:
    try:
        read = json.loads(text, object_pairs_hook=_object)
        fault = next(_faults(read, "$"), None)
    except json.JSONDecodeError as error:
        cut = not text[error.pos :].strip()
        said = "the file is cut off" if cut else f"is not JSON: {error.msg}"
        raise broken(name, f"line {error.lineno}, column {error.colno}", said) from error
    except (RecursionError, ValueError) as error:
        raise broken(name, "$", f"is not a baseline: {str(error).partition(';')[0]}") from error
    if fault:
        raise broken(name, *fault)
    return read


def _faults(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """What JSON's grammar lets pass and a baseline must not hold, with its path."""
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
    if type(version) is not int:
        raise broken(name, f"$.{field}", f"a version number is missing (this version writes {known})")
    if version > known:
        fault = f"version {version} is newer than this pytest-ftgate reads ({known})"
        raise broken(name, f"$.{field}", fault, "upgrade pytest-ftgate")
    if version < known:
        fault = f"version {version} is older than this pytest-ftgate reads ({known})"
        raise broken(name, f"$.{field}", fault, DELETE_AND_RECORD)


def _converted(read: dict[str, Any], name: str) -> TestBaseline:
    """Each entry apart first, so that an error's path names the cell and the build."""
    cells = read.get("cells")
    for label, builds in (cells if isinstance(cells, dict) else {}).items():
        for key, entry in (builds if isinstance(builds, dict) else {}).items():
            _convert(entry, Entry, _child(_child("$.cells", label), key), name)
    return _convert(read, TestBaseline, "$", name)


def _convert(value: Any, kind: type[T], path: str, name: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        fault, _, place = str(error).partition(" - at `")
        raise broken(name, path + place.removesuffix("`").removeprefix("$"), fault) from error


def _check_consistency(baseline: TestBaseline, name: str) -> None:
    for label, builds in baseline.cells.items():
        for key, entry in builds.items():
            path = _child(_child("$.cells", label), key)
            fingerprint, separator, build = key.partition("/")
            if not (separator and build):
                raise broken(name, path, "the key is not `<fingerprint>/<build key>`")
            if fingerprint not in baseline.machines:
                raise broken(name, path, f"$.machines has no {json.dumps(fingerprint)}")
            for place, fault in _uneven(entry):
                raise broken(name, path + place, fault)


# The arrays of a launch that have an item for each of another's.
_BESIDE = {
    "launches": dict.fromkeys(("start_ns", "join_ns", "cpu_ns", "ops", "ops_per_s"), "wall_ns")
    | {"control_ops_per_s": "control_wall_ns", "single_ops_per_s": "single_wall_ns"},
    "memory": dict.fromkeys(("uss_bytes", "pss_bytes", "written_bytes"), "rss_bytes")
    | dict.fromkeys(
        ("barrier_rss_bytes", "barrier_uss_bytes", "barrier_pss_bytes", "barrier_written_bytes"), "barrier_ops"
    ),
}


def _uneven(entry: Entry) -> Iterator[tuple[str, str]]:
    """What does not fit together within a launch, as a badly resolved conflict leaves it: place and fault."""
    for at, recording in enumerate(entry.recordings):
        for field, beside in _BESIDE.items():
            for index, launch in enumerate(getattr(recording, field)):
                found = _unlike_lengths(launch, beside)
                yield from ((f".recordings[{at}].{field}[{index}].{place}", fault) for place, fault in found)
        for index, locks in enumerate(recording.locks):
            faults = ((number, _histogram_fault(site)) for number, site in enumerate(locks.sites))
            place = f".recordings[{at}].locks[{index}].sites"
            yield from ((f"{place}[{number}].histogram", fault) for number, fault in faults if fault)


def _unlike_lengths(launch: Stored, beside: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, first in beside.items():
        items = len(getattr(launch, first))
        if len(getattr(launch, name)) not in (0, items):
            yield name, f"its length is not that of {first}, {items}"


def _histogram_fault(site: StoredSite) -> str:
    buckets = [bucket for bucket, _ in site.histogram]
    if sorted(set(buckets)) != buckets:
        return "its buckets do not ascend"
    waits = sum(count for _, count in site.histogram)
    return f"its waits are {waits}, not {site.contended} as contended says" if waits != site.contended else ""
