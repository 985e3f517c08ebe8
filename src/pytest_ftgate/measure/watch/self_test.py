"""A self-test of an interpreter: are its waits what the classifier expects?"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from ...errors import FtgateError
from ...files import write_whole
from ...model import Struct
from ...pythons import scrubbed_environment, waiting
from .proc import CALLS, Proc
from .threads import SAMPLE_S, forbidden, unsupported
from .wait_states import Sleepers, Where

SELF_TEST: Final = Path(__file__).parents[2] / "runner" / "selftest.py"
VERSION: Final = 1  # of the patterns and of the self-test: another one tests again

# -- the patterns hold, or there are no samples -----------------------------------------------------------------------

_ROUNDS = 60
_SETTLE_S = (0.15, 0.5, 1.5)  # before the samples of each try
_AGREED = 0.9
_DISAGREES = "its wait states cannot be distinguished"
_TIMEOUT_S = 20.0


class Patterns(Struct, frozen=True, kw_only=True):
    """The answer of a self-test, as it is kept: `reason` is empty when the patterns hold."""

    version: int
    build: str
    kernel: str
    libc: str
    reason: str


def patterns_hold(
    key: str,
    python: str,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    test: Callable[[str, Mapping[str, str] | None], str] | None = None,
) -> str:
    """Empty when the wait states of the interpreter `python` can be distinguished, else why not.

    `key` is its build key, GIL state included; `environment` is what sets that state. The self-test runs once: its
    answer is kept in `folder/KEY.json`, until the kernel, the C library or the version of the patterns is another.
    Raises FtgateError when `folder` cannot be written.
    """
    reason = unsupported()
    if reason:
        return reason
    path = folder / f"{key}.json"
    wanted = Patterns(version=VERSION, build=key, kernel=platform.release(), libc=_libc(), reason="")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with waiting.held(folder / f"{key}.lock"):
            kept = _kept(path, wanted)
            if kept is None:
                reason = (test or self_test)(python, environment)
                if not reason or reason.startswith(_DISAGREES):  # anything else may be fixed without a trace
                    kept_now = msgspec.structs.replace(wanted, reason=reason)
                    write_whole(path, [msgspec.json.encode(kept_now), b"\n"])
                return reason
    except OSError as error:
        fix = "make room there, or make it writable"
        raise FtgateError(f"{folder}: the answer of a self-test cannot be kept: {error.strerror}; {fix}") from error
    return f"{kept} (remove {path} to test again)" if kept else ""


def _libc() -> str:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""


def _kept(path: Path, wanted: Patterns) -> str | None:
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Patterns)
    except (OSError, msgspec.MsgspecError):
        return None
    return kept.reason if msgspec.structs.replace(kept, reason="") == wanted else None


def self_test(python: str, environment: Mapping[str, str] | None = None) -> str:
    """Sample threads in known states under the interpreter `python`: why they cannot be distinguished, or nothing.

    `environment` is added to a scrubbed one. Takes about a second; a disagreement is tried again, since a loaded
    machine may not have brought every thread into its state.
    """
    reason = unsupported()
    for settle_s in () if reason else _SETTLE_S:
        try:
            with _known_states(python, environment or {}) as (gil, states):
                time.sleep(settle_s)
                reason = _disagreement(gil, states)
        except (OSError, ValueError, KeyError) as error:
            reason = f"its self-test failed to run: {error}"
        if not reason:
            break
    return reason


class _State(NamedTuple):
    pid: int
    thread: int
    state: str

    @property
    def name(self) -> str:
        return self.state.partition(" ")[2]

    @property
    def where(self) -> str:
        return self.state.partition(" ")[0]


@contextlib.contextmanager
def _known_states(python: str, environment: Mapping[str, str]) -> Iterator[tuple[bool, list[_State]]]:
    process = subprocess.Popen(
        [python, "-P", "-s", str(SELF_TEST)],
        env={**scrubbed_environment(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            answer: dict[str, Any] = json.loads(_line(process.stdout.fileno()))
            yield answer["gil"], [_State(*state) for state in answer["states"]]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _line(descriptor: int) -> bytes:
    ends = time.monotonic() + _TIMEOUT_S
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, ends - time.monotonic()))
        chunk = os.read(descriptor, 65536) if ready else b""
        if not chunk:
            raise ValueError("it ended without an answer" if ready else f"no answer within {_TIMEOUT_S:g} s")
        line += chunk
    return line


def _disagreement(gil: bool, states: list[_State]) -> str:
    reader = Proc()
    own_gils = gil and any("sub-interpreter" in state.state for state in states)
    calls = CALLS[platform.machine()]
    sleepers = {state.pid: Sleepers(state.pid, reader, calls, own_gils=own_gils) for state in states}
    samples: dict[_State, Counter[Where]] = {state: Counter() for state in states}
    try:
        for _ in range(_ROUNDS):
            for state, seen in samples.items():
                seen[sleepers[state.pid].where(reader.call(state.pid, state.thread) or b"")] += 1
            time.sleep(SAMPLE_S)
    except PermissionError as error:
        return forbidden(error)
    finally:
        reader.close()
    return next((wrong for state, seen in samples.items() if (wrong := disagrees(state.state, seen, gil=gil))), "")


def disagrees(state: str, seen: Mapping[Where, int], *, gil: bool) -> str:
    """Why samples of a thread in a known state do not say that state; empty when they do.

    `state` is a word and a name, such as `futex a lock`. Threads that are `busy` wait for the GIL where there is one
    and never where there is none. Some samples may differ: a thread may have been on its way.
    """
    where, _, name = state.partition(" ")
    expected = ("gil" if gil else "running") if where == "busy" else where
    samples = sum(seen.values())
    asked = samples - seen.get("running", 0) if expected == "gil" else samples
    right = seen.get(expected, 0)  # type: ignore[call-overload]
    if right and right >= _AGREED * asked:
        return ""
    counts = ", ".join(f"{count} times as {word}" for word, count in sorted(seen.items()))
    return f"{_DISAGREES}: {name} ({expected}) was seen {counts}"
