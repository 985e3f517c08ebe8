"""The record of a launch, in the words of the controller's `Launch`, which has the iterations themselves already."""

from __future__ import annotations

from .protocol import HOLD, MEASURED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class LaunchRecord:
    """The figures of a launch so far."""

    def __init__(self) -> None:
        self.iterations = self.wall_ns = 0
        """How many iterations were measured or held, and how long they took in all."""
        self.counters: dict[str, float] = {}
        self.timers: dict[str, list[int]] = {}
        self.peaks: dict[str, float] = {}
        self.results: dict[str, int] = {}
        """How often each came."""
        self.spans: list[tuple[int, int]] = []
        """When the first worker began and the last one ended, by measured iteration, on the clock of `now_ns`."""
        self.start_ns: int | None = None
        self.join_ns: int | None = None

    def add(
        self,
        kind: str,
        wall_ns: int,
        reports: Sequence[Mapping[str, Any]],
        observed: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Keep what the workers report of a measured or held iteration; those of other kinds leave no figures.

        Each report has `counters`, `timers` (count, total and maximum in ns) and `peaks` by name; so has what was
        `observed`, whose figures are kept in place of theirs.
        """
        if kind not in (MEASURED, HOLD):
            return
        self.iterations += 1
        self.wall_ns += wall_ns
        if reports and "begin_ns" in reports[0]:  # a program's runs do not say when they began; a server has none
            self.spans.append((min(each["begin_ns"] for each in reports), max(each["end_ns"] for each in reports)))
        for report in observed or reports:
            for name, n in report["counters"].items():
                self.counters[name] = self.counters.get(name, 0) + n
            for name, (count, total, most) in report["timers"].items():
                kept = self.timers.setdefault(name, [0, 0, 0])
                self.timers[name] = [kept[0] + count, kept[1] + total, max(kept[2], most)]
            for name, highest in report["peaks"].items():
                self.peaks[name] = max(highest, self.peaks.get(name, highest))

    def as_json(self) -> dict[str, Any]:
        """The fields of a `Launch` that the launch itself knows."""
        timers = {name: {"count": c, "total_ns": t, "max_ns": m} for name, (c, t, m) in self.timers.items()}
        return {
            "counters": self.counters,
            "timers": timers,
            "peaks": self.peaks,
            "results": sorted(self.results),
            "result_counts": [self.results[result] for result in sorted(self.results)],
            "start_ns": self.start_ns,
            "join_ns": self.join_ns,
        }
