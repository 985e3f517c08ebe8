"""The stacks that a profile launch has written (see runner/profile.py), as functions."""

from __future__ import annotations

import ast
import functools
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ..model.sample import Function, Profile, StackSamples
from ..runner.profile import END, MOST_BYTES
from . import stacks

LEAST_BLOCKS: Final = 10
"""Fewer iterations are cut into parts: the scatter between blocks is an estimate of what samples vary by."""
_DRIVER: Final = "pytest_ftgate/runner/executors/pool.py"
_SERVER: Final = re.compile(r"/(?:multiprocessing|loky/backend)/(?:forkserver|managers|resource_tracker)\.py$")
_ESCAPED: Final = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")  # as faulthandler writes them


def read(folder: Path, spans: Sequence[tuple[int, int]]) -> Profile:
    """All samples of a launch that fall into its measured iterations. Raises OSError.

    `spans` is when the workers of each iteration were at work, in ns on the runner's clock, in ascending order.
    """
    indices: dict[Function, int] = {}
    counted: Counter[tuple[int, tuple[int, ...]]] = Counter()
    parts = math.ceil(LEAST_BLOCKS / max(1, len(spans)))
    begins = [begin for begin, _ in spans]
    for path in sorted(folder.iterdir()):
        for at_ns, text in _moments(path):
            number = bisect_right(begins, at_ns) - 1
            if number < 0 or at_ns > spans[number][1]:
                continue
            begin, end = spans[number]
            block = number * parts + min(parts - 1, (at_ns - begin) * parts // max(1, end - begin))
            for functions in _at_work(text):
                key = tuple(indices.setdefault(function, len(indices)) for function in functions)
                counted[block, key] += 1
    samples = tuple(
        StackSamples(block=block, functions=functions, count=count)
        for (block, functions), count in sorted(counted.items())
    )
    cut = any(path.stat().st_size > MOST_BYTES for path in folder.iterdir())
    return Profile(functions=tuple(indices), samples=samples, cut=cut)


def _moments(path: Path) -> Iterator[tuple[int, str]]:
    """The time of each sample in ns, and what faulthandler wrote; what a process left half written has no time."""
    mark = END.decode()
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(mark):
            yield int(line.removeprefix(mark)), "\n".join(lines)
            lines = []
        else:
            lines.append(line)


def _at_work(text: str) -> Iterator[list[Function]]:
    """The functions of each thread that does the workload's work, the outermost first, each once.

    What drives a pool counts while it works itself, and not while it waits for the pool. The processes of
    multiprocessing itself do not count.
    """
    for _, _, written in stacks.parsed(text):
        frames = stacks.unwrapped(written)
        own = stacks.own(frames)
        waits = bool(own) and own[0].standard and any(_DRIVER in frame.path for frame in frames)
        serves = any(_SERVER.search(frame.path) for frame in frames[len(own) - 1 : len(own) + 1])
        if own and not waits and not serves:
            yield list(dict.fromkeys(map(_function, reversed(own))))


def _function(frame: stacks.Frame) -> Function:
    return _found(frame.path, int(frame.line) if frame.line.isdigit() else 0, frame.function)


@functools.lru_cache(maxsize=1 << 14)
def _found(path: str, line: int, name: str) -> Function:
    """The function that a frame is of, by the source; where that is unknown, by its bare name."""
    path, name = (
        _ESCAPED.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), text) for text in (path, name)
    )
    inner = [(at, qualname) for lines, at, qualname in _definitions(path) if line in lines]
    named = [(at, qualname) for at, qualname in inner if qualname.rpartition(".")[2] == name]
    if named:
        return Function(file=path, line=named[-1][0], name=named[-1][1])
    if inner and name.startswith("<"):  # a lambda or a generator expression
        return Function(file=path, line=inner[-1][0], name=f"{inner[-1][1]}.{name}")
    return Function(file=path, line=0, name=name)


@functools.lru_cache(maxsize=256)
def _definitions(path: str) -> tuple[tuple[range, int, str], ...]:
    """The functions of a file, an outer one before those in it; none where it cannot be read.

    Of each the lines that it takes, with its decorators, that of its `def`, and its qualified name.
    """
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_below(tree.body, ""))


def _below(nodes: Iterable[ast.AST], prefix: str) -> Iterator[tuple[range, int, str]]:
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            qualname = prefix + node.name
            yield range(first, (node.end_lineno or node.lineno) + 1), node.lineno, qualname
            yield from _below(node.body, f"{qualname}.<locals>.")
        elif isinstance(node, ast.ClassDef):
            yield from _below(node.body, f"{prefix}{node.name}.")
        else:
            yield from _below(ast.iter_child_nodes(node), prefix)
