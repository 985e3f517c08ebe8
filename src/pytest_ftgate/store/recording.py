"""What is kept of a sample: the values that the judge read from it, and what they were measured of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from ..kit.values import Struct
from ..model.report import Machine
from ..model.sample import MEASURED, Sample
from ..model.spec import InterpreterBuild
from ..targets.describe import build_key
from .schema import LEAST, MOST, Recording, StoredCell

Values: TypeAlias = Mapping[str, Mapping[int, float]]
"""Metric -> round -> value."""
DIGITS = 6
"""Significant digits of a stored value: a thousandth of what any launch repeats."""


class Edit(Struct, frozen=True, kw_only=True):
    """One edit of a test's baseline: the cell to store under label and key, or None to remove it.

    With `append` its recordings are added to the stored ones; else they take their place.
    """

    label: str
    key: str
    entry: StoredCell | None = None
    machine: Machine | None = None
    append: bool = False


def entry_of(
    sample: Sample, values: Values, recorded_at: str, commit: str, seed: int, *, tree: str = "", took_s: float = 0.0
) -> StoredCell:
    """What is stored of a cell by one new recording with these values, of which metrics without any are left out.

    `tree` is that of the files that were measured, `took_s` are the seconds that the whole test took.
    """

    def kept(value: float | None) -> float | None:
        """With the digits that are kept; nothing in place of what a file cannot hold, as a workload may count."""
        known = value is not None and (value == 0 or LEAST <= value <= MOST)
        return float(f"{value:.{DIGITS}g}") if known else None

    orders = sorted({launch.order for role in MEASURED for launch in sample.of(role)})
    columns = {name: tuple(kept(of.get(order)) for order in orders) for name, of in sorted(values.items())}
    recording = Recording(
        recorded_at=recorded_at,
        commit=commit,
        seed=seed,
        tree=tree,
        build=build_key(sample.interpreter),
        **_measured(sample),
        loops=sample.launches[0].loops if sample.launches else 1,
        orders=tuple(orders),
        values={name: column for name, column in columns.items() if any(value is not None for value in column)},
    )
    if known_s := round(took_s, 1):  # a file has no other 0 than the default
        recording = msgspec.structs.replace(recording, took_s=known_s)
    interpreter = msgspec.convert(sample.interpreter, InterpreterBuild, from_attributes=True)
    return StoredCell(interpreter=interpreter, recordings=(recording,))


def seconds_after(starts: Sequence[str]) -> tuple[float, ...]:
    """Seconds from the first start to each; none if one of them is not known."""
    try:
        times = [datetime.fromisoformat(start) for start in starts]
        return tuple((time - times[0]).total_seconds() for time in times)
    except (ValueError, TypeError):  # no time, or one with and one without an offset
        return ()


def mismatch(stored: StoredCell, sample: Sample) -> str:
    """Why a stored cell measured something other than the sample; empty if they can be compared."""
    newest, now = stored.recordings[-1], _measured(sample)
    named = ("executor", "workers", "reuse")
    changed = [f"{name} was {old}, is {now[name]}" for name in named if (old := getattr(newest, name)) != now[name]]
    if newest.windows != now["windows"]:
        was, is_now = ("duration=", "iterations=")[:: 1 if newest.windows else -1]
        changed.append(f"body was {was}, is {is_now}")
    if newest.measures != sample.measures:
        changed.append("another command line, load, window, requirement, environment or pinning")
    if not changed:
        return ""
    fix = "record it again with --ftgate-update=all"
    if newest.reuse != sample.reuse:
        fix = f'write reuse="{newest.reuse}" in the test, or {fix}'
    return f"the baseline measured something else ({'; '.join(changed)}): {fix}"


def _measured(sample: Sample) -> dict[str, Any]:
    """The fields of a recording that say what was measured."""
    return {
        "executor": sample.cell.executor.label,
        "workers": sample.cell.workers,
        "body": sample.cell.body,
        "reuse": sample.reuse,
        "measures": sample.measures,
        "windows": sample.duration_s is not None,
    }
