"""Lines of a terminal: text wrapped to it, and the details below a row. Pure.

Details say where the workers of a cell wait, how it scales and grows; with -v all other figures.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ..judge import metrics
from ..kit import units
from ..kit.text import plain, plural
from ..kit.values import Interval
from ..model.report import Figures, HolderFigures, RoleFigures, Row, SiteFigures
from ..model.sample import WaitsFor
from .said import STATES

SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
GAP = "  "
TIED = "\u00a0"
"""Stands for a space at which no line is broken, until the lines are made."""

UNBROKEN = re.compile(r"(?<=\d) (?=(?:[nµum]?s|k?/s|[KMG]iB|%)(?![\w/]))|(?<=[\d.],) (?=[\d.]+\])")
INDENT = 6
COLUMN = 9
"""Columns from a line's name to its text."""
SITES = 2
"""Sites of a kind that are shown by default."""
NATIVE = 3
"""Functions of native code that a line names."""
SITE_SHARE = 0.01
"""Share of the workers' time below which a site has no line."""
WAIT_SHARE = 0.005
PROBE_COST = 1.05
"""A smaller overhead of a probe is shown only with -v."""
SUPERLINEAR = 1.05
GROWTH_BYTES = 2**12
GROWTH_LEVEL = 0.9
"""Growth of at least a page per iteration, at this confidence level, is shown by default."""
WORKERS = 4
"""Up to this many workers' cores are listed one by one."""
KEPT = 0.95
"""The share of a constant rate that must be answered: requests under way at the end of a window are not counted."""
MANY = {"worker": "workers", "child": "children"}
ROLES = ("tree", "main", "workers", "servers", "others")
WAITED: dict[WaitsFor, str] = {"lock": "contended", "queue": "waited"}
WITH_GIL = " (with the wait for the GIL)"
MEMORY = (
    ("USS", "steady_uss"),
    ("peak >=", "peak_uss"),
    ("PSS", "steady_pss"),
    ("peak >=", "peak_pss"),
    ("RSS", "steady_rss"),
    ("peak >=", "peak_rss"),
)
"""Columns of memory, with their fields of RoleFigures."""
Fact: TypeAlias = tuple[str, Sequence[Sequence[str]]]
"""A line's name, and its parts in groups."""


class Style(NamedTuple):
    """What the stream can show: its width in columns, colour, and characters beyond ASCII; how much is asked for."""

    width: int
    color: bool = False
    unicode: bool = True
    verbosity: int = 0

    def paint(self, text: str, *names: str) -> str:
        """The text in the named colours, or as it is."""
        if not (self.color and names and text):
            return text
        return f"\x1b[{';'.join(SGR[name] for name in names)}m{text}\x1b[0m"

    @property
    def separator(self) -> str:
        """What stands between the parts of a line."""
        return " · " if self.unicode else ", "


def entry(name: str, text: str, style: Style, indent: int, column: int) -> list[str]:
    """A dim name and its text, wrapped in a column of its own; a name as long as the column moves it."""
    column = max(column, len(name) + 1)
    first, *rest = wrapped(plain(text), style, indent=indent + column) or [" " * (indent + column)]
    return [" " * indent + style.paint(name, "dim") + first[indent + len(name) :], *rest]


def phrases(name: str, groups: Iterable[Sequence[str]], style: Style) -> list[str]:
    """An entry of groups joined by semicolons, the parts of each by commas; lines are broken between parts alone.

    A part that is longer than a line is broken at its spaces.
    """
    room = style.width - INDENT - COLUMN - 1  # and the comma
    known = [list(map(plain, group)) for group in groups if group]
    for group in known[:-1]:
        group[-1] += ";"
    tied = (tie(part, room) for group in known for part in group)
    return entry(name, ", ".join(tied).replace(";, ", "; "), style, INDENT, COLUMN)


def tie(text: str, room: int) -> str:
    """The text with no space to break it at, where it fits in `room` columns."""
    return text if len(text) > room else text.replace(" ", TIED)


def wrapped(text: str, style: Style, indent: int, hanging: int | None = None) -> list[str]:
    """The text in lines of the stream's width, broken at spaces, but not between a number and its unit or in `[1, 2]`.

    The lines after the first stand at `hanging`.
    """
    lines = textwrap.wrap(
        UNBROKEN.sub(TIED, text),
        style.width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent if hanging is None else hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(TIED, " ") for line in lines]


def short_path(path: str, style: Style) -> str:
    """A path within a third of the width: directories give way from the left, then the beginning of its name."""
    room, cut = max(20, style.width // 3), "…" if style.unicode else "..."
    if len(path) <= room:
        return path
    directory, slash, rest = path[max(0, len(path) - room + len(cut)) :].partition("/")
    return cut + (slash + rest if slash and rest else directory)


def plain_units(text: str) -> str:
    """The text as a stream that is not Unicode can show it, as far as it is ours: only units have other letters."""
    return text.replace("µs", "us")


def printable(text: str, style: Style) -> str:
    """All of a report as the stream can show it: whatever a name holds, no control but our own colours is left."""
    ours = "|".join(("0", *SGR.values()))
    parts = re.split(rf"(\x1b\[(?:(?:{ours})(?:;(?:{ours}))*)m)", text)
    kept = (part if number % 2 and style.color else plain(part) for number, part in enumerate(parts))
    if style.unicode:
        return "".join(kept).encode("utf-8", "backslashreplace").decode()
    return plain_units("".join(kept)).encode("ascii", "backslashreplace").decode()


# ---- the details below a row


def detail_lines(row: Row, style: Style) -> list[str]:
    """The lines below a row of the table; may be empty.

    Always: the workload's own counters, timers and peaks, what features observed, a server's response times, the worst
    lock and queue sites and who held them, an odd scaling, and a certain growth. With -v also phases, every site and
    how long waits are, scaling, where threads wait, CPU, memory by role, and the overhead of each probe.
    """
    figures, every = row.figures, style.verbosity > 0

    # The workload's own figures, and those of features; the phases of an iteration, its CPU time and its memory.
    own = [f"{name} {units.rate(value)}" for name, value in sorted(figures.counters_per_s.items())]
    own += [f"{name} {units.time(ns)} mean" for name, ns in sorted(figures.timers_mean_ns.items())]
    own += [f"{name} peak {units.number(value)}" for name, value in sorted(figures.peaks.items())]
    observed = ((metrics.row(name), value) for name, value in figures.observed.items())
    own += [
        f"{metric.name} {units.of(metric.unit, value)}"
        for metric, value in observed
        if metric.observer or every  # an observer is there because someone asked for it
    ]
    if every:
        # A window of load has no start and no join, and its length is fixed.
        phases = ("start", "work", "join", "cold", "cpu") if figures.latency is None else ("cold", "cpu")
        known = ((name, getattr(figures, f"{name}_ns")) for name in phases)
        own += [f"{name} {units.time(ns)}" for name, ns in known if ns is not None]
        if figures.control_ratio is not None:
            own.append(f"{units.ratio(figures.control_ratio)} the control")
        kernels = (("peak", figures.peak_bytes), ("unshared", figures.unshared_bytes))
        own += [f"{name} {units.size(n_bytes)}" for name, n_bytes in kernels if n_bytes is not None]
        sizes = (("RSS", figures.rss_bytes), ("USS peak >=", figures.uss_peak_bytes))
        if not figures.memory:
            own += [f"{name} {units.size(n_bytes)}" for name, n_bytes in sizes if n_bytes is not None]
    lines = textwrap.wrap("; ".join(own), style.width - INDENT, break_long_words=False, break_on_hyphens=False)
    lines = [" " * INDENT + style.paint(line, "dim") for line in lines]

    # A server: `2841 req/s; mean 3.5 ms, p50 3.2 ms, p95 6.1 ms, p99 9.0 ms, max 21 ms; no errors`; of a constant rate
    # `500 of 500 req/s`, or `431 of 500 req/s: behind`.
    facts: list[Fact] = []
    if (latency := figures.latency) is not None:
        rate = []
        if (per_s := figures.ops_per_s) is not None:
            asked = latency.asked_per_s
            of = f" of {units.requests(asked)}" if asked else ""
            rate = [f"{units.requests(per_s)}{of} req/s{': behind' if per_s < KEPT * asked else ''}"]
        times = ((name, getattr(latency, f"{name}_ns")) for name in ("mean", "p50", "p95", "p99", "max"))
        shown = [f"{name} {units.time(ns, digits=2)}" for name, ns in times]
        facts.append(("load", [rate, shown, [plural(latency.errors, "error") if latency.errors else "no errors"]]))
    facts += _sites(figures, style)

    # `1.72x of 8 (efficiency 22 %, serial fraction 52 %)`
    if (scaling := figures.scaling) is not None:
        efficiency, serial = figures.efficiency, figures.serial_fraction
        aside = [] if efficiency is None else [f"efficiency {units.whole_share(efficiency)}"]
        odd = True
        if scaling.value < 1:
            aside.append("slower than one worker")
        elif scaling.level > 0 and scaling.low > SUPERLINEAR * row.cell.workers:  # few launches show any value
            aside.append("more than linear: does the body split its work?")
        else:
            odd = False
            aside += [f"serial fraction {units.whole_share(serial)}"] if serial is not None and serial >= 0 else []
        text = units.ratio_below(scaling.value, 1) if scaling.value < 1 else units.ratio(scaling.value)
        text += f"{_ends(scaling, 'ratio') if every else ''} of {row.cell.workers}"
        if odd or every:  # else its column says it
            facts.append(("scaling", [[text + (f" ({', '.join(aside)})" if aside else "")]]))

    # Memory that grows with the iterations, and why there is no figure of memory.
    growth = figures.growth_bytes
    certain = growth and growth.level >= GROWTH_LEVEL and growth.low > 0 and growth.value >= GROWTH_BYTES
    if growth and (certain or every):
        facts.append(("growth", [[f"{units.size(growth.value)} per iteration{_ends(growth, 'size')}"]]))
    if figures.memory_dropped and not figures.memory_samples:
        facts.append(("memory", [["no figure: no sample was taken while all of its workers were held"]]))

    facts += _waits(figures, style) if every else ()
    lines += [line for name, groups in facts for line in phrases(name, groups, style)]
    return lines + (_memory(figures, style) if every else [])


# ---- waits for locks and queues


def _sites(figures: Figures, style: Style) -> Iterator[Fact]:
    """One line per site, the worst first, locks before queues; the first line has the overhead of the probe.

    `app.py:12 Lock "cache"  31.2 % of the time, 45 % contended (1.20 k/s), p50 12 µs, ...`, then who held it.
    """
    if figures.no_locks:
        yield "lock", [[f"no figures: {figures.no_locks}"]]
        return
    if figures.lock_wait is None and not figures.sites:
        return
    cost, any_shown = _cost("probe", figures.lock_cost, style), False
    room = style.width - INDENT - COLUMN - 1
    for waits_for, word in WAITED.items():
        sites = sorted((s for s in figures.sites if s.waits_for == waits_for), key=lambda s: (-s.share, s.file, s.line))
        worth = [site for site in sites if site.share >= SITE_SHARE]
        shown = worth if style.verbosity > 0 else worth[:SITES]
        for site in shown:
            # A waiting task does not hold its thread, so its wait does not include one for the GIL.
            label = WITH_GIL if figures.gil_enabled and not site.kind.startswith("asyncio.") else ""
            place, share = (
                site_place(site, short_path(site.file, style)),
                f"{units.share(site.share)} of the time{label}",
            )
            per_s, part = units.rate(site.contended_per_s), site.contended_ratio
            waits = f"{per_s} {word}" if part is None else f"{units.whole_share(part)} {word} ({per_s})"
            times = ((name, getattr(site, f"{name}_ns")) for name in ("p50", "p95", "p99", "max"))
            parts = [f"{tie(place, room)}{GAP}{tie(share, room)}"]
            if style.verbosity > 0:
                parts += [waits, *(f"{name} {units.time(ns, digits=2)}" for name, ns in times)]
            for holder in site.holders[: None if style.verbosity > 0 else 1]:
                parts.append(tie(held_by(holder, short_path(holder.file, style)), room))
                waiter = f"waits in {short_path(holder.waiter_file, style)}:{holder.waiter_line}"
                parts += [waiter] if style.verbosity > 0 else []
            yield waits_for, [parts, cost]
            cost = []
        rest = sites[len(shown) :] if style.verbosity > 0 else worth[len(shown) :]
        if rest:  # `3 more sites: 4.1 % of the time together (-v)`
            count = plural(len(rest), "more site" if shown else "site")
            together = f"{units.share(sum(site.share for site in rest))} of the time" + " together" * (len(rest) > 1)
            hint = "" if style.verbosity > 0 else " (-v)"
            yield "" if shown else waits_for, [[f"{count}: {together}{hint}"], cost]
            cost = []
        any_shown = any_shown or bool(shown or rest)
    if style.verbosity > 0 and not any_shown:
        yield "lock", [["no waits"], cost]


def site_place(site: SiteFigures, file: str) -> str:
    """`app.py:12 Lock "cache"`, with the name of the file as there is room for."""
    named = f' "{site.name}"' if site.name else ""
    return f"{f'{file}:{site.line}' if file else 'line unknown:'} {site.kind}{named}"


def held_by(holder: HolderFigures, file: str) -> str:
    """`93 % behind refill, cache.py:31, held for 1.2 ms (p99 3.4 ms)`: who held the lock while others waited."""
    p50, p99 = (units.time(each, digits=2) for each in (holder.p50_ns, holder.p99_ns))
    share = units.whole_share(holder.share)
    return f"{share} behind {holder.function}, {file}:{holder.line}, held for {p50} (p99 {p99})"


def _cost(name: str, cost: Interval | None, style: Style) -> list[str]:
    """`probe 1.03x [1.01, 1.05]`: the overhead of a probe; by default only if it is large."""
    if cost is None or (style.verbosity <= 0 and cost.value <= PROBE_COST):
        return []
    return [f"{name} {units.ratio(cost.value)}{_ends(cost, 'ratio')}"]


def _ends(interval: Interval, unit: str) -> str:
    """The interval behind its value, or the range of the few launches; nothing of one launch."""
    ends = units.ends(unit, interval)
    if interval.level <= 0:
        return "" if interval.low == interval.high else f" {ends} (range)"
    return f" [{ends}]" if ends == units.UNKNOWN else f" {ends}"


# ---- where threads wait


def _waits(figures: Figures, style: Style) -> Iterator[Fact]:
    """`running 12 %, GIL 45 % (p95 12 ms), lock 41 %`: with the length of single waits, if the samples show it.

    And `main 0.02, worker 0 0.98 cores; run-queue wait 2 %; switches 1.20 k/s voluntary, 300 /s involuntary`: each
    process has the cores it kept busy; many of a kind are one range, which follows the others.
    """
    waits = figures.waits
    if waits is None:
        return
    if waits.unavailable:
        yield "waits", [[f"not available: {waits.unavailable}"]]
    else:
        parts = []
        for state, (name, _) in STATES.items():
            share, p95_ns = getattr(waits, state), waits.gil_p95_ns if state == "gil" else None
            length = "" if p95_ns is None else f" (p95 {units.time(p95_ns, digits=2)})"
            if state == "unattributed" and waits.native:
                inside = (f"{units.whole_share(part)} {place}" for place, part in [*waits.native.items()][:NATIVE])
                length = f" ({', '.join(inside)})"
            parts += [f"{name} {units.whole_share(share)}{length}"] if share >= WAIT_SHARE else []
        yield "waits", [parts or ["no samples"], _cost("sampled", figures.memory_cost, style)]

    kinds: dict[str, dict[str, float]] = {}
    for name, busy in waits.cores.items():
        kind, _, number = name.rpartition(" ")  # `worker` of `worker 3`
        kinds.setdefault(kind if kind and number.isdigit() else name, {})[name] = busy
    many = {kind: [*cores.values()] for kind, cores in kinds.items() if len(cores) > WORKERS}
    few = {name for kind, cores in kinds.items() if kind not in many for name in cores}
    cores = [f"{name} {units.cores(busy)}" for name, busy in waits.cores.items() if name in few]
    for kind, each in many.items():
        cores.append(f"{len(each)} {MANY.get(kind, kind)} {units.cores(min(each))} to {units.cores(max(each))}")
    groups = [[*cores[:-1], f"{cores[-1]} cores"]] if cores else []
    if waits.running + waits.runnable > 0 or not waits.unavailable:
        groups.append([f"run-queue wait {units.whole_share(waits.runnable)}"])
    if waits.voluntary_per_s > 0 or waits.involuntary_per_s > 0:
        voluntary = f"switches {units.rate(waits.voluntary_per_s)} voluntary"
        groups.append([voluntary, f"{units.rate(waits.involuntary_per_s)} involuntary"])
    if groups:
        yield "cpu", groups


# ---- memory by role


def _memory(figures: Figures, style: Style) -> list[str]:
    """Roles as rows, their steady and peak figures as columns; below them what an empty workload in the cell occupies.

    Columns without a value are left out, and the last ones where there is no room. `41 of 57 samples hold`, where some
    fell on a process that ended or was being replaced, or missed a worker.
    """
    roles = {role: figures.memory[role] for role in (*ROLES, *sorted(figures.memory)) if role in figures.memory}
    if roles.keys() == {"tree", "main"}:
        del roles["main"]
    counts = ["", *(f"x{role.processes}" if role.processes != 1 else "" for role in roles.values())]
    names, columns = [padded(["memory", *roles], str.ljust), padded(counts, str.rjust)], list[list[str]]()
    for title, field in MEMORY:
        values = [getattr(role, field) for role in roles.values()]
        if any(value is not None for value in values):
            texts = ["" if value is None else units.size(value) for value in values]
            columns.append(padded([title, *texts], str.rjust))
    while columns and sum(len(each[0]) + len(GAP) for each in (*names, *columns)) > style.width - INDENT + len(GAP):
        columns.pop()
    head, *rows = (GAP.join(texts).rstrip() for texts in zip(*names, *columns, strict=True))
    lines = [" " * INDENT + style.paint(head, "dim"), *(" " * INDENT + row for row in rows)] if columns else []

    parts = list[str]()
    tree = figures.memory.get("tree") or RoleFigures(processes=0)
    empty = (("USS", figures.floor_uss_bytes, tree.steady_uss), ("PSS", figures.floor_pss_bytes, tree.steady_pss))
    for name, floor, known in empty:
        if floor is not None:
            above = "" if known is None else f", workload {units.size(max(0.0, known - floor))} above it"
            parts.append(f"{name} floor {units.size(floor)}{above}")
    if not (lines or parts):
        return []
    if figures.memory_dropped:
        looks = figures.memory_samples + figures.memory_dropped
        parts.append(f"{figures.memory_samples} of {looks} samples hold")
    parts += _cost("sampled", figures.memory_cost, style)
    return lines + (phrases("" if lines else "memory", ([part] for part in parts), style) if parts else [])


def padded(texts: Sequence[str], side: Callable[[str, int], str]) -> list[str]:
    """The texts of a column at the width of its widest."""
    width = max(map(len, texts))
    return [side(text, width) for text in texts]
