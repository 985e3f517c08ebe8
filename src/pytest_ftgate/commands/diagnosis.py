"""What there is to measure with here, and the mend of each lack."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..measure.machine import ROOT, read_machine, read_text
from ..measure.watch.self_test import self_test
from ..model import Interpreter, Machine, Struct
from ..model.targets import parse_target
from ..pythons import (
    InterpreterNotFound,
    UvMissing,
    cache_folder,
    environment_variables,
    find_environments,
    find_interpreter,
    find_uv,
    settings_unsupported,
)

ENVIRONMENTS: Final = Path(".ftgate") / "envs"


class Lack(Struct, frozen=True):
    """Something that is missing or in the way, what follows from it, and what to do."""

    what: str
    mend: str


class TargetState(Struct, frozen=True):
    """One target: its interpreter when there is one, and its finished environments in this project.

    `waits_unavailable` says why it cannot be told where its threads wait; empty where it can.
    """

    spec: str
    interpreter: Interpreter | None
    environments: tuple[str, ...] = ()
    waits_unavailable: str = ""


class Probes(Struct, frozen=True):
    """What can be read of this process and of a child from outside; None where the platform has no such figure."""

    pss: bool
    pss_child: bool
    schedstat: bool
    schedstat_child: bool


class Diagnosis(Struct, frozen=True):
    """All that `ftgate doctor` shows."""

    machine: Machine
    targets: tuple[TargetState, ...]
    probes: Probes
    uv: str | None
    cache: str
    load_1min: float | None
    lacks: tuple[Lack, ...]


def diagnose(specs: Sequence[str], project: Path) -> Diagnosis:
    """Look at the machine and at each target that `specs` name. Raises TargetError for a spec that is none."""
    lacks: list[Lack] = []
    targets = tuple(_target_state(spec, project, lacks) for spec in specs)
    machine = read_machine()
    probes = read_probes()
    uv = _uv(lacks)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    lacks += [*_machine_lacks(machine, load), *_probe_lacks(probes)]
    return Diagnosis(
        machine=machine,
        targets=targets,
        probes=probes,
        uv=uv,
        cache=str(cache_folder()),
        load_1min=load,
        lacks=tuple(lacks),
    )


def read_probes(root: Path = ROOT) -> Probes:
    """Whether PSS and the scheduler's figures can be read of this process and of a child."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            own, other = root / "proc/self", root / "proc" / str(child.pid)
            return Probes(
                pss=_has(own / "smaps_rollup", "Pss:"),
                pss_child=_has(other / "smaps_rollup", "Pss:"),
                schedstat=_has(own / "schedstat"),
                schedstat_child=_has(other / "schedstat"),
            )
        finally:
            child.kill()


def to_text(diagnosis: Diagnosis) -> str:
    """The diagnosis for people: aligned, a section each, every lack with its mend at the end."""
    machine = diagnosis.machine
    sections = [
        ("machine", _machine_rows(machine, diagnosis.load_1min)),
        *((f"target {state.spec}", _target_rows(state)) for state in diagnosis.targets),
        ("observing", _probe_rows(diagnosis.probes)),
        ("tools", [("uv", diagnosis.uv or "not found"), ("cache", diagnosis.cache)]),
    ]
    width = max(len(name) for _, rows in sections for name, _ in rows)
    lines: list[str] = []
    for title, rows in sections:
        lines += [title, *(f"  {name:<{width}}  {value}" for name, value in rows), ""]
    if diagnosis.lacks:
        lines.append("lacks")
        lines += [line for lack in diagnosis.lacks for line in (f"  - {lack.what}", f"    mend: {lack.mend}")]
    else:
        lines.append("nothing is lacking")
    return "\n".join(lines)


def bytes_text(size: int) -> str:
    """`1.5 GiB`: a size in the unit that people read."""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.{0 if units[0] == 'B' else 1}f} {units[0]}"


def _target_state(spec: str, project: Path, lacks: list[Lack]) -> TargetState:
    target = parse_target(spec)
    try:
        interpreter = find_interpreter(target)
    except InterpreterNotFound as error:
        what, _, mend = str(error).partition("\n  mend: ")
        lacks.append(Lack(what=what.replace("\n", "\n   "), mend=mend or "give the path of a working Python"))
        return TargetState(spec=spec, interpreter=None)
    unsupported = settings_unsupported(interpreter, target.settings)
    if unsupported:
        lacks.append(Lack(what=f"the target {spec} is not supported here", mend=unsupported))
    if not interpreter.start_methods:
        lacks.append(
            Lack(what=f"{spec} has no working multiprocessing", mend="use a build with semaphores (/dev/shm mounted)")
        )
    environments = tuple(str(folder) for folder in find_environments(interpreter, project / ENVIRONMENTS))
    refused = self_test(interpreter.executable, environment_variables(target.settings))
    if refused:
        what = f"where threads of {spec} wait cannot be told: {refused}"
        lacks.append(
            Lack(what=what, mend="the waits of its cells are shown as not available; nothing else depends on it")
        )
    return TargetState(spec=spec, interpreter=interpreter, environments=environments, waits_unavailable=refused)


def _uv(lacks: list[Lack]) -> str | None:
    try:
        return find_uv()
    except UvMissing as error:
        lacks.append(Lack(what="no uv: environments cannot be made", mend=str(error)))
        return None


def _machine_lacks(machine: Machine, load: float | None) -> list[Lack]:
    lacks = []
    if machine.cores < 2:
        lacks.append(
            Lack(what="one usable core: nothing runs in parallel", mend="allow more cores (taskset, cpuset, the VM)")
        )
    if machine.cpu_quota is not None and machine.cpu_quota < machine.cores:
        lacks.append(
            Lack(
                what=f"a CPU limit of {machine.cpu_quota:g} cores on {machine.cores}: workers are throttled",
                mend="raise the container's CPU limit, or restrict it to whole cores by a cpuset",
            )
        )
    if machine.governor not in (None, "performance"):
        lacks.append(
            Lack(
                what=f"the frequency governor is {machine.governor}: times drift with it",
                mend="cpupower frequency-set -g performance",
            )
        )
    if load is not None and load > machine.cores / 2:
        lacks.append(Lack(what=f"the load is {load:.1f}: something else is running", mend="measure on a quiet machine"))
    return lacks


def _probe_lacks(probes: Probes) -> list[Lack]:
    lacks = []
    if not probes.pss_child:
        mend = "Linux 4.14+ and the right to read /proc/PID/smaps_rollup of a child (no hidepid)"
        lacks.append(Lack(what="PSS cannot be read: memory is reported as USS and RSS alone", mend=mend))
    if not probes.schedstat_child:
        mend = "Linux with CONFIG_SCHED_INFO and a readable /proc/PID/schedstat"
        lacks.append(Lack(what="the scheduler's figures cannot be read: no run-queue wait", mend=mend))
    return lacks


def _machine_rows(machine: Machine, load: float | None) -> list[tuple[str, str]]:
    limit = machine.memory_limit_bytes
    return [
        ("fingerprint", machine.fingerprint),
        ("system", f"{machine.system} {machine.kernel}, {machine.arch}"),
        ("CPU", machine.cpu),
        ("usable cores", str(machine.cores)),
        ("CPU limit", "none" if machine.cpu_quota is None else f"{machine.cpu_quota:g} cores"),
        ("memory limit", "none" if limit is None else bytes_text(limit)),
        ("governor", machine.governor or "not visible"),
        ("load", "not known" if load is None else f"{load:.2f} over the last minute"),
    ]


def _target_rows(state: TargetState) -> list[tuple[str, str]]:
    interpreter = state.interpreter
    if interpreter is None:
        return [("interpreter", "not found")]
    kind = "free-threaded build" if interpreter.free_threaded else "GIL build"
    jit = "none" if not interpreter.jit_available else "on" if interpreter.jit_enabled else "off"
    return [
        ("interpreter", interpreter.executable),
        ("found", interpreter.found),
        ("version", f"{interpreter.implementation} {interpreter.name}, {kind}"),
        ("build", interpreter.build),
        ("GIL", "on" if interpreter.gil_enabled else "off"),
        ("JIT", jit),
        ("configure", interpreter.config_args or "not known"),
        ("start methods", ", ".join(interpreter.start_methods) or "none"),
        ("waits", "not available" if state.waits_unavailable else "can be told apart (self-test)"),
        ("environment", ", ".join(state.environments) or "not made yet (made by the first run)"),
    ]


def _probe_rows(probes: Probes) -> list[tuple[str, str]]:
    def words(own: bool, child: bool) -> str:
        return "readable, of children too" if own and child else "readable, not of children" if own else "not readable"

    return [
        ("PSS", words(probes.pss, probes.pss_child)),
        ("scheduler", words(probes.schedstat, probes.schedstat_child)),
    ]


def _has(path: Path, word: str = "") -> bool:
    text = read_text(path) or ""
    return bool(text.strip()) and word in text
