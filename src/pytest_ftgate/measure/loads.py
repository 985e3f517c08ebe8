"""What the processes of a loaded launch have written of their memory and their imports (see runner/loads.py)."""

from __future__ import annotations

import contextlib
import linecache
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any, Final, TypeAlias

import msgspec

from ..model.sample import Held, Import, Loads
from ..runner.loads import HOLDS, LEFT

WRITTEN_S: Final = 5.0
"""How long processes that were held may take to write what they hold."""
MOST_FILES: Final = 20
LONGEST_TEXT: Final = 200
Line: TypeAlias = tuple[str, int]


class _Written(msgspec.Struct, array_like=True):
    """What a process has written once: `works` if it is a worker's."""

    works: bool
    held: list[tuple[str, int, int]]
    modules: list[str]
    imports: dict[str, tuple[int, int, str]]

    @property
    def bytes_of(self) -> dict[Line, int]:
        return {(file, line): size for file, line, size in self.held}


@contextlib.contextmanager
def written(folder: Path, processes: Iterable[int | None]) -> Iterator[None]:
    """Meanwhile processes write what they hold; at the end each of these has done so, if it does not take too long."""
    holds = folder / HOLDS
    holds.touch()
    try:
        yield
        ends, wanted = time.monotonic() + WRITTEN_S, {f".{pid}" for pid in processes if pid}
        while not wanted <= {path.suffix for path in folder.iterdir()} and time.monotonic() < ends:
            time.sleep(0.01)
    finally:
        holds.unlink(missing_ok=True)


def read(folder: Path, main: int, left_calls: Sequence[int], values_of: Callable[[bytes], Any]) -> Loads:
    """What all processes of a launch have written; `main` started its workers.

    `left_calls` are the calls of each worker before each barrier. Raises OSError, and ValueError for what is no such
    file, as `values_of` does for its bytes.
    """
    held, left = defaultdict[str, list[_Written]](list), defaultdict[int, list[_Written]](list)
    for path in sorted(folder.iterdir()):
        if path.name.count(".") == 2:  # else half written
            kind, number, pid = path.name.split(".")
            file = msgspec.convert(values_of(path.read_bytes()), _Written)
            if kind == LEFT:
                left[int(number)].append(file)
            elif len(held[pid]) < MOST_FILES:
                held[pid].append(file)
    # 1. Bytes by line: of each process the mean, summed over them.
    held_bytes, variances = defaultdict[Line, float](float), defaultdict[Line, float](float)
    for files in held.values():
        by_line = [file.bytes_of for file in files]
        for line in set().union(*by_line):
            sizes = [of_lines.get(line, 0) for of_lines in by_line]
            held_bytes[line] += fmean(sizes)
            variances[line] += variance(sizes) / len(sizes) if len(sizes) > 1 else 0.0
    # 2. What a call leaves behind, between the first barrier and the last.
    slopes: dict[Line, float] = {}
    calls = sum(left_calls[1:])
    grows = calls > 0 and len(left) > 1
    if grows:
        first, last = (_summed(left[number]) for number in (min(left), max(left)))
        slopes = {line: (last.get(line, 0) - first.get(line, 0)) / calls for line in first | last}
    # 3. Modules of all processes; imports of those that are workers, else of the one there is.
    modules = {name for files in held.values() for file in files for name in file.modules}
    workers = [files[-1] for pid, files in held.items() if pid != str(main) and files[-1].works]
    return Loads(
        lines=tuple(
            Held(
                file=file,
                line=line,
                text=linecache.getline(file, line).strip()[:LONGEST_TEXT],
                bytes=held_bytes[file, line],
                error=math.sqrt(variances[file, line]),
                left=slopes.get((file, line), 0.0) if grows else None,
            )
            for file, line in dict.fromkeys([*held_bytes, *slopes])
        ),
        modules=tuple(sorted(modules)),
        imports=_imports(workers or [files[-1] for files in held.values()]),
    )


def _summed(files: Iterable[_Written]) -> dict[Line, int]:
    sizes = Counter[Line]()
    for file in files:
        sizes.update(file.bytes_of)
    return sizes


def _imports(workers: Sequence[_Written]) -> tuple[Import, ...]:
    """Of each module the means over the workers that import it."""
    imports = []
    for name in dict.fromkeys(name for worker in workers for name in worker.imports):
        seen = [worker.imports[name] for worker in workers if name in worker.imports]
        own, whole, importers = zip(*seen, strict=True)
        imports.append(Import(name=name, own_ns=round(fmean(own)), all_ns=round(fmean(whole)), importer=importers[0]))
    return tuple(imports)
