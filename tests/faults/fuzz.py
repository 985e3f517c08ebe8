"""Tries hostile files: `make fuzz`, or `python tests/faults/fuzz.py [--inputs N] [--seconds S] [libFuzzer's options]`.

libFuzzer steers by the branches of our code that an input reaches (atheris). Each input is a baseline, a report, or
what a launch leaves: its text as libFuzzer changes it, or a real one with values changed as
tests/support/mutations.py does. What raises anything but our own errors is printed once, and fails the run.
"""

from __future__ import annotations

import argparse
import json
import marshal
import os
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
with atheris.instrument_imports(include=["pytest_ftgate"]):
    import hostile
    from mutations import mutate, mutate_text

MEMORY_BYTES = 2 << 30
EVERY = 50_000


def _changed(kind: hostile.Kind, data: Any) -> bytes:
    """A real file with other values, and sometimes with another text."""

    def choose(count: int) -> int:
        return int(data.ConsumeIntInRange(0, max(0, count - 1)))

    value = mutate((marshal if kind.binary else json).loads(kind.seed), choose)
    content = marshal.dumps(value) if kind.binary else json.dumps(value).encode()
    return mutate_text(content, choose) if choose(8) == 0 else content


class Fuzzer:
    """Counts inputs and keeps what each kind of failure was first seen with."""

    def __init__(self, inputs: int, seconds: float) -> None:
        self.inputs, self.seconds = inputs, seconds
        self.tried = [0] * len(hostile.KINDS)
        self.taken = [0] * len(hostile.KINDS)
        self.found: set[tuple[str, str, str]] = set()
        self.began_s = time.monotonic()

    def __call__(self, content: bytes) -> None:
        """One input: its first byte chooses the kind of file and the way."""
        if not content:
            return
        number, way = content[0] % len(hostile.KINDS), content[0] // len(hostile.KINDS) % 2
        kind, text = hostile.KINDS[number], content[1:]
        if way:
            try:
                text = _changed(kind, atheris.FuzzedDataProvider(text))
            except (ValueError, RecursionError, OverflowError):  # marshal does not take what json does
                return
        self.tried[number] += 1
        try:
            self.taken[number] += kind.read(text)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is looked for
            self._note(kind.name, error, text)
        count = sum(self.tried)
        if count % EVERY == 0:
            self.say()
        if count >= self.inputs or time.monotonic() - self.began_s > self.seconds:
            self.say()
            os._exit(1 if self.found else 0)

    def _note(self, kind: str, error: Exception, text: bytes) -> None:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "pytest_ftgate" in frame.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        key = kind, type(error).__name__, place
        if key not in self.found:
            self.found.add(key)
            file = Path(tempfile.gettempdir()) / f"ftgate-fuzz-{'-'.join(key).replace(':', '-')}"
            file.write_bytes(text)
            print(f"FOUND {' '.join(key)}: {error!s:.200}; the input is {file}", flush=True)

    def say(self) -> None:
        """Inputs so far, by kind; in brackets those that were taken for what they claim to be."""
        spent_s = time.monotonic() - self.began_s
        parts = zip(hostile.KINDS, self.tried, self.taken, strict=True)
        by_kind = ", ".join(f"{kind.name} {tried} ({taken})" for kind, tried, taken in parts)
        count = sum(self.tried)
        speed = f"{count} inputs in {spent_s:.0f} s, {count / spent_s:.0f}/s"
        print(f"{speed}: {by_kind}; {len(self.found)} found", flush=True)


def main() -> None:
    """Fuzz until so many inputs were tried, or so much time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    args, rest = parser.parse_known_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))  # a tuple of 2^31 items, says marshal
    count = len(hostile.KINDS)
    with tempfile.TemporaryDirectory() as folder:
        for number, kind in enumerate(hostile.KINDS):
            Path(folder, kind.name).write_bytes(bytes((number,)) + kind.seed)
            Path(folder, f"{kind.name}-values").write_bytes(bytes((number + count,)) + bytes(range(64)))
        limits = ["-max_len=8000", "-rss_limit_mb=0", "-verbosity=0", f"-artifact_prefix={tempfile.gettempdir()}/"]
        words = [sys.argv[0], *rest, *limits, folder]
        atheris.Setup(words, Fuzzer(args.inputs, args.seconds))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
