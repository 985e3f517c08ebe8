"""Counts the bytes that a pool pickles of a task: its function, its arguments and its result."""

from __future__ import annotations

import io
import sys
from functools import partial

from pytest_ftgate.runner.pooled import Task, Watch, pool_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Sizes = dict[str, int]

MOST_NAMES = 40


class _Counted:
    """The figures of the first iteration, whose times nobody reads: they are those of all others."""

    figures: dict[str, Sizes] | None = None


def observe(executor: Any) -> Callable[[], dict[str, Sizes]]:
    """Begin; see `runner/observing.py`."""
    pool = pool_of(executor)
    if pool is None:
        return dict
    if _Counted.figures is not None:
        return lambda: _Counted.figures or {}
    pickles = executor.setup["kind"] != "threads"
    calls: dict[Task, Sizes | None] = {}
    """The bytes of each task by name, None where they are not known."""

    def task_of(function: Any, args: Any, options: Any) -> Task:
        task = Task(function)
        calls[task] = sent(function, args, options) if pickles else {}
        return task

    def resulted(task: Task, result: Any) -> None:
        if task.pickled and (sizes := calls[task]) is not None:
            calls[task] = returned(task.function, result, sizes)

    watch = Watch(pool, task_of, resulted)

    def end() -> dict[str, Sizes]:
        sizes = (calls[task] if task.pickled else {} for task in watch.end())
        tasks = [each for each in sizes if each is not None]
        counters: Sizes = {"payload": 0, "payload tasks": len(tasks)}
        for each in tasks:
            for name, size in each.items():
                if name in counters or len(counters) < MOST_NAMES:
                    counters[name] = counters.get(name, 0) + size
        _Counted.figures = {"counters": counters}
        return _Counted.figures

    return end


def sent(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Sizes | None:
    """The bytes of a call: `payload`, of all of it, and of each argument by its place and type; None if unknown."""
    inner, calls = of_chunk(function, args)
    named = [(f"argument {number}", value) for call in calls for number, value in enumerate(call, 1)]
    named += [(f"argument {option}", value) for option, value in options.items()]
    return sizes_of((function, args, options), inner, [("function", inner), *named], {})


def returned(function: Callable[..., Any], result: Any, sizes: Sizes) -> Sizes | None:
    """These bytes with those of the result, likewise."""
    inner, _ = of_chunk(function, ((),))
    results = result if inner is not function else (result,)
    return sizes_of(result, inner, [("result", each) for each in results], sizes)


def of_chunk(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, list[tuple[Any, ...]]]:
    """The function that is mapped, and the arguments of each call: `map` of processes submits chunks of calls."""
    if isinstance(function, partial) and getattr(function.func, "__name__", "") == "_process_chunk":
        return function.args[0], list(args[0])
    return function, [args]


def sizes_of(whole: Any, function: Any, named: list[tuple[str, Any]], before: Sizes) -> Sizes | None:
    """The pickled bytes of the whole, and of its parts one after the other: an object that several have counts once."""
    of = getattr(function, "__qualname__", type(function).__qualname__)
    for pickler in picklers():
        try:
            stream, found = io.BytesIO(), dict(before)
            pickler(stream).dump(whole)
            found["payload"] = found.get("payload", 0) + stream.tell()
            parts = pickler(stream)
            for place, value in named:
                begin = stream.tell()
                parts.dump(value)
                name = f"payload {place} of {of}: {type(value).__qualname__}"
                found[name] = found.get(name, 0) + stream.tell() - begin
        except Exception:  # noqa: BLE001 -- whatever an object raises as it is pickled
            continue
        return found
    return None


def picklers() -> list[Any]:
    """What pools pickle with: that of multiprocessing, else cloudpickle, which others bring."""
    from multiprocessing.reduction import ForkingPickler

    modules = list(sys.modules.items())
    clouds = [module for name, module in modules if name.endswith("cloudpickle") and hasattr(module, "CloudPickler")]
    return [ForkingPickler, *(module.CloudPickler for module in clouds[:1])]
