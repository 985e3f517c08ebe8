"""What follows from measured figures: which executor on which interpreter, and why."""

from __future__ import annotations

from typing import Literal

from ..kit.values import Interval, Struct

Criterion = Literal["time", "memory"]
"""What a choice may weigh: the wall time, and the memory of the process tree."""
HazardKind = Literal["gil", "fork", "results", "failure"]


class Ranked(Struct, frozen=True, kw_only=True):
    """A candidate in the order of one figure: its value, and how many times that of the best it is.

    `times` is None for the best itself and where no ratio exists; of a figure of which more is better it is the best's
    value over the candidate's. A level of 0 says that an interval is not known.
    """

    name: str
    value: Interval
    times: Interval | None = None


class Ranking(Struct, frozen=True, kw_only=True):
    """The candidates by one metric, best first; `tied` are those that are not told apart from the best, which is one.

    `missing` are the candidates without a value.
    """

    metric: str
    ranked: tuple[Ranked, ...]
    tied: tuple[str, ...]
    missing: tuple[str, ...] = ()


class Choice(Struct, frozen=True, kw_only=True):
    """The cells of a test with the same worker count and parameters, compared.

    `workers` is the word of the cell's id (`w8`, empty for a server's program), `setting` that of its parameters.
    `pareto` are the candidates that no other one beats in every criterion. `advised` is the one that wins, or those
    that are not told apart; empty where nothing wins. `limits` are programs, which are no candidates. `cores` are the
    cores that each candidate kept busy.
    """

    workers: str
    setting: str
    windows: bool
    time: Ranking
    memory: Ranking | None
    own: tuple[Ranking, ...] = ()
    pareto: tuple[str, ...] = ()
    advised: tuple[str, ...] = ()
    limits: tuple[Ranked, ...] = ()
    cores: dict[str, float] = {}


class BuildRatio(Struct, frozen=True, kw_only=True):
    """The time of one candidate over another's; `mixed`: they differ in the interpreter and in the executor."""

    name: str
    other: str
    ratio: Interval
    mixed: bool = False


class StartTax(Struct, frozen=True, kw_only=True):
    """What starting and joining the workers costs, in ns; `task_ns` is the task of which it is 5 %.

    A task is what one start of the workers does: the time between start and join. `overtakes_ns` is the task at which
    the candidate, whose start costs more, takes as long as `overtaken`, whose work takes longer. `paid_once`: the
    workers are kept, so that a launch pays it once.
    """

    name: str
    workers: str
    setting: str
    tax_ns: Interval
    task_ns: Interval
    paid_once: bool = False
    overtaken: str = ""
    overtakes_ns: Interval | None = None


class MemoryUse(Struct, frozen=True, kw_only=True):
    """Memory in bytes with so many workers, and of each further one; None: not known, for the reason `why`.

    `figure` is `PSS` or `USS`; `further_of` says where the figure of a further worker comes from.
    """

    name: str
    workers: str
    setting: str
    figure: str
    total: Interval
    further: Interval | None = None
    further_of: Literal["", "counts", "processes"] = ""
    why: str = ""


class Contention(Struct, frozen=True, kw_only=True):
    """Shares of the workers' time, None where not measured, and the speed-up that their end would bring at most.

    `by_waits` is that of the waits, `by_cores` what the machine's cores leave; None where it is not known. `site` is
    the lock that is waited for longest.
    """

    name: str
    workers: str
    setting: str
    lock: float | None = None
    gil: float | None = None
    unattributed: float | None = None
    by_waits: float | None = None
    by_cores: float | None = None
    site: str = ""


class ScalingPoint(Struct, frozen=True, kw_only=True):
    """The throughput with so many workers over that of the smallest count."""

    workers: int
    times: Interval


class ScalingAdvice(Struct, frozen=True, kw_only=True):
    """How throughput grows from `base` workers on; `serial` is the serial fraction of Amdahl's law.

    More than `enough` workers do not pay; None: not known. `measured` says that this was seen, and not extrapolated.
    """

    name: str
    setting: str
    base: int
    points: tuple[ScalingPoint, ...]
    serial: Interval | None = None
    enough: int | None = None
    measured: bool = False
    cores: int = 0


class Hazard(Struct, frozen=True, kw_only=True):
    """What went wrong in these cells, of `of` in the test, as the run recorded it."""

    kind: HazardKind
    text: str
    cells: tuple[str, ...]
    of: int


class Advice(Struct, frozen=True, kw_only=True):
    """What the figures of one test say; `source` names the run or the recordings that they are of.

    `weights` are those that were asked for; none: time and memory weigh alone, and nothing is traded for the other.
    `unknown` are topics on which nothing was measured; `unsupported` maps a reason to the cells that it kept from it.
    """

    test: str
    source: str
    choices: tuple[Choice, ...] = ()
    builds: tuple[BuildRatio, ...] = ()
    starts: tuple[StartTax, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    contention: tuple[Contention, ...] = ()
    scaling: tuple[ScalingAdvice, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    weights: tuple[tuple[Criterion, float], ...] = ()
    unknown: tuple[str, ...] = ()
    unsupported: dict[str, tuple[str, ...]] = {}
