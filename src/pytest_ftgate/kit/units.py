"""Numbers as text: three significant digits and a unit that fits the magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from .text import apart
from .values import Interval

DIGITS = 3
ROUNDED = 0.99
"""From here on a number below 1 may be 1 after rounding."""
UNKNOWN = "unknown"
"""Replaces the ends of an interval that says nearly nothing."""
SAID_GROWTH = 1.01
"""From here on a report says how much slower the body of a tail is."""


Scales: TypeAlias = tuple[tuple[str, float], ...]
"""Units, each with its name and its size in the base unit."""
TIMES: Scales = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9))
SIZES: Scales = (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40))
SCALES = {"time": TIMES, "size": SIZES}
RATES: Scales = (("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9))


def _decimals(value: float, digits: int = DIGITS) -> int:
    """Decimals that leave `digits` significant ones, counted after rounding: 9.996 has one fewer than 9.99."""
    if not math.isfinite(value) or value == 0:
        return 0
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return max(0, digits - 1 - exponent)


def _fit(value: float, scales: Scales) -> tuple[str, float]:
    """The largest unit in which the rounded value is at least one."""
    if not math.isfinite(value):
        return scales[0]
    best = scales[0]
    for scale in scales[1:]:
        scaled = abs(value) / scale[1]
        if scaled >= 1 or (scaled > ROUNDED and float(f"{scaled:.{DIGITS - 1}e}") >= 1):
            best = scale
    return best


def _fixed(value: float, decimals: int) -> str:
    """A number with that many decimals and no negative zero; `inf` and `nan` as themselves."""
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text


def _with_unit(value: float, scales: Scales, unicode: bool = True, digits: int = DIGITS) -> str:
    name, size = _fit(value, scales)
    scaled = value / size
    # Whole bytes and the like stay whole; a fraction of the smallest unit keeps its digits.
    decimals = 0 if name == scales[0][0] and value.is_integer() else _decimals(scaled, digits)
    return f"{_fixed(scaled, decimals)} {name if unicode else name.replace('µ', 'u')}"


def time(ns: float, *, unicode: bool = True, digits: int = DIGITS) -> str:
    """A time in nanoseconds as `1.83 ms`; `us` stands for `µs` where the stream is not Unicode.

    `digits` is for what is known less well, such as a percentile out of a histogram.
    """
    return _with_unit(float(ns), TIMES, unicode, digits)


def half_width(interval: Interval, *, unicode: bool = True) -> str:
    """The wider half of an interval relative to its value: `±2.1 %`; empty where the value is not positive."""
    if not interval.value > 0 or interval.unknown:
        return UNKNOWN if interval.unknown else ""
    half = max(interval.high - interval.value, interval.value - interval.low) / interval.value
    return f"{'±' if unicode else '+-'}{_percent(half)}"


def size(n_bytes: float) -> str:
    """A number of bytes as `23.2 MiB`."""
    return _with_unit(float(n_bytes), SIZES)


def rate(per_s: float) -> str:
    """A number per second as `1.10 M/s`."""
    name, size = _fit(float(per_s), RATES)
    return f"{_fixed(per_s / size, _decimals(per_s / size))} {name}"


def requests(per_s: float) -> str:
    """A number per second as people give it for servers: `30415`, but `94.3`."""
    return f"{per_s:.0f}" if per_s >= 100 else f"{per_s:.3g}"


def number(value: float) -> str:
    """A number without a unit, `26`, `1204`, `0.517`: whole ones whole."""
    return _fixed(value, 0 if float(value).is_integer() else _decimals(value))


def ratio(value: float) -> str:
    """A ratio as `1.70x`, `17.9x`, `0.56x`."""
    return f"{_fixed(value, _ratio_decimals(value))}x"


def ratio_below(value: float, limit: float) -> str:
    """A ratio that is said to be below a limit, with the digits that show it: `0.997x` of 1 and not `1.00x`."""
    decimals = _ratio_decimals(value)
    return apart(value, limit, lambda each, more: f"{_fixed(each, decimals + more)}x")[0]


def _ratio_decimals(value: float) -> int:
    decimals = _decimals(value)
    return min(decimals, 2) if abs(value) >= 0.1 else decimals


def cores(value: float) -> str:
    """CPU cores kept busy as `1.93`, `12.4`."""
    return _fixed(value, min(2, _decimals(value)) if value else 2)


def _percent(fraction: float) -> str:
    percent = fraction * 100
    return f"{_fixed(percent, 1 if abs(percent) < 99.95 else 0)} %"


def change(value: float) -> str:
    """The change that a ratio new / reference stands for: 1.046 is `+4.6 %`; nothing at this precision is `0.0 %`."""
    text = _percent(value - 1)
    return text if text.startswith("-") or float(text.split()[0]) == 0 else f"+{text}"


def beyond_body(growth: float) -> str:
    """Follows the change of a tail whose body has become slower by SAID_GROWTH; empty for any other."""
    return f" beyond the body's own {change(growth)}" if growth >= SAID_GROWTH else ""


def change_and_ends(ratio: Interval, of: str) -> str:
    """A change with its interval: `+31.2 % (+28.1 to +34.0)`; `of` are its launches, for a range."""
    return _and_ends(ratio, of, change, unknown=ratio.unknown)


def _and_ends(interval: Interval, of: str, written: Callable[[float], str], *, unknown: bool) -> str:
    """A change and the ends of its interval, which have no unit where it is that of the change.

    Launches that carry no interval have `+3.0 % (range of 2 pairs: -3.0 to +9.0)`, a single one `+3.0 % (1 pair)`.
    """
    low, value, high = map(written, (interval.low, interval.value, interval.high))
    unit = f" {value.rsplit(maxsplit=1)[-1]}"
    if low.endswith(unit) and high.endswith(unit):
        low, high = low.removesuffix(unit), high.removesuffix(unit)
    if interval.level <= 0:
        return f"{value} ({of})" if low == high else f"{value} (range of {of}: {low} to {high})"
    return f"{value} ({f'interval {UNKNOWN}' if unknown else f'{low} to {high}'})"


def share(fraction: float) -> str:
    """A share of time as `31.2 %`: `0` where there was none at all, `<0.1 %` where it rounds to none."""
    if fraction == 0:
        return "0"
    return "<0.1 %" if 0 < fraction < 0.0005 else _percent(fraction)


def whole_share(fraction: float) -> str:
    """A share in whole percents, `48 %`, for what is sampled or counted coarsely; `<1 %`, and `>99 %`, at the edges."""
    if 0 < fraction < 0.005:
        return "<1 %"
    return ">99 %" if 0.995 <= fraction < 1 else f"{_fixed(100 * fraction, 0)} %"


def points(fraction: float) -> str:
    """A difference of two shares in percentage points: 0.041 is `+4.1 points`."""
    text = _fixed(100 * fraction, 1)
    return f"{'' if text.startswith('-') or float(text) == 0 else '+'}{text} points"


def difference(unit: str, value: float, more: int = 0) -> str:
    """A difference of two values in their unit: `+32.0 KiB`, `-1.2 ms`, of shares `+4.1 points`; `more` digits."""
    if unit == "share":
        return points(value)
    scales = SCALES.get(unit)
    text = f"{value:,.{DIGITS + more}g}" if scales is None else _with_unit(value, scales, digits=DIGITS + more)
    return f"+{text}" if value > 0 else text


def difference_and_ends(unit: str, interval: Interval, of: str) -> str:
    """A difference with its interval; that of two shares may be any from 100 points on."""
    unknown = unit == "share" and interval.high - interval.low >= 1
    return _and_ends(interval, of, partial(difference, unit), unknown=unknown)


def level(value: float) -> str:
    """A confidence level as `99 %` or `99.2 %`, cut and never rounded up: 0.9999 is `99.9 %`."""
    tenths = math.floor(min(1.0, max(0.0, value)) * 1000 + 1e-6)  # a report read from a file may hold any number
    return f"{tenths // 10} %" if tenths % 10 == 0 else f"{tenths / 10:.1f} %"


def p_value(p: float) -> str:
    """`p = 0.00021`, `p = 0.034`, with the digits of a reason's; below one in ten thousand `p < 0.0001`."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def span(seconds: float) -> str:
    """A duration in seconds as `3.2 s`, `45 s`, `2 min 5 s`, `1 h 3 min`."""
    if not math.isfinite(seconds) or seconds < 9.95:
        return f"{_fixed(seconds, 1)} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def of(unit: str, value: float, *, unicode: bool = True) -> str:
    """A value in its unit, as the metric table names units: time (ns), size (bytes), share, ratio or number."""
    if unit == "time":
        return time(value, unicode=unicode)
    written = {"size": size, "share": share, "ratio": ratio}
    return written[unit](value) if unit in written else f"{value:,.3g}"


def ends(unit: str, interval: Interval) -> str:
    """The ends of an interval in the unit and with the decimals of its value: `[1.80, 1.87]` of `1.83 ms`."""
    if interval.unknown:
        return UNKNOWN
    low, value, high = interval.low, interval.value, interval.high
    if unit == "ratio":
        decimals = _ratio_decimals(value)
    elif unit in SCALES:
        _, size = _fit(value, SCALES[unit])
        low, high, decimals = low / size, high / size, _decimals(value / size)
    else:
        return f"[{of(unit, low)}, {of(unit, high)}]"
    return f"[{_fixed(low, decimals)}, {_fixed(high, decimals)}]"


def estimate(unit: str, interval: Interval) -> str:
    """A value in its unit with its interval: `4.09 ms [3.98, 4.20] (95 %)`; the value alone where that is not known.

    Launches that carry no interval have `4.09 ms [3.98, 4.20] (range)`.
    """
    value = of(unit, interval.value)
    if interval.unknown or interval.low == interval.high or not math.isfinite(interval.high - interval.low):
        return value
    return f"{value} {ends(unit, interval)} ({level(interval.level) if interval.level > 0 else 'range'})"
