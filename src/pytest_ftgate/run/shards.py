"""The parts of a run that several machines share: which tests each of them measures."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Mapping

from ..declare.options import Options
from ..model.report import Shard
from ..model.spec import Plan
from .assembly import positions_of
from .context import hypotheses_of
from .stored import StoredBaselines


def taken(whole: Plan, config: Options, stored: StoredBaselines, options: Mapping[str, str]) -> tuple[Shard, Plan]:
    """The part of `config.shard`, and its plan, whose tests are in the order of the whole one."""
    assert config.shard is not None
    part, parts = config.shard
    of = split(costs_of(whole, stored), parts)
    own = Plan(groups=tuple(group for group, one in zip(whole.groups, of, strict=True) if one == part))
    planned = positions_of(whole)
    shard = Shard(
        part=part,
        parts=parts,
        planned=tuple(planned),
        places=tuple(planned[cell.nodeid] for group in own.groups for cell in group.cells),
        alpha=config.alpha,
        hypotheses=max(1, hypotheses_of(whole, config, stored)),
        own=hypotheses_of(own, config, stored),
        options=dict(options),
    )
    return shard, own


def costs_of(plan: Plan, stored: StoredBaselines) -> dict[str, float]:
    """The first cell of each group -> what its measurement costs: seconds as recorded, else the median of these.

    If nothing is recorded at all, the numbers of cells. The same on every machine that has the same baselines.
    """
    recorded = {group.cells[0].nodeid: stored.took_s(group) for group in plan.groups}  # the key has numbers of cores
    known = [seconds for seconds in recorded.values() if seconds]
    if not known:
        return {group.cells[0].nodeid: float(len(group.cells)) for group in plan.groups}
    usual = statistics.median(known)
    return {key: seconds or usual for key, seconds in recorded.items()}


def split(costs: Mapping[str, float], parts: int) -> list[int]:
    """The part, from 1, of each item: the most costly first, each into the part that has the least.

    Items of the same cost are taken by name, so the result does not depend on their order.
    """
    loads = [(0.0, part) for part in range(1, parts + 1)]
    of = {}
    for name in sorted(costs, key=lambda name: (-costs[name], name)):
        load, of[name] = heapq.heappop(loads)
        heapq.heappush(loads, (load + costs[name], of[name]))
    return [of[name] for name in costs]
