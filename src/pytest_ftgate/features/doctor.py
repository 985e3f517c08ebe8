"""`ftgate doctor`: the interpreters, the machine and the probes, and each problem with a fix."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ..hookspec import Subparsers, hookimpl
from ..kit import units
from ..kit.errors import FtgateError
from ..kit.platforms import unsupported
from ..kit.values import Struct
from ..measure.machine import ROOT, read_machine, read_text
from ..measure.watch.threads import self_test
from ..model.report import Machine
from ..model.spec import Interpreter, parse_target
from ..targets.describe import environment_variables, settings_unsupported
from ..targets.environments import UvMissing, find_environments, find_uv, required_python
from ..targets.find import InterpreterNotFound, cache_folder, default_pair, find_interpreter

# What this machine offers for measurements, and a fix for each problem.

ENVIRONMENTS: Final = Path(".ftgate") / "envs"


class Problem(Struct, frozen=True):
    """Something that prevents or disturbs measurements, and a fix."""

    what: str
    fix: str


class TargetState(Struct, frozen=True):
    """One target: its interpreter when there is one, and its finished environments in this project.

    `waits_unavailable` says why the wait states of its threads are unknown; empty where they are known.
    """

    spec: str
    interpreter: Interpreter | None
    environments: tuple[str, ...] = ()
    waits_unavailable: str = ""


class Probes(Struct, frozen=True):
    """What can be read from outside, for this process and for a child."""

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
    problems: tuple[Problem, ...]
    default: str = ""


def diagnose(specs: Sequence[str] | None, project: Path) -> Diagnosis:
    """Examine the machine and each target that `specs` name, else the project's default ones.

    Raises TargetError for a spec that is not a target.
    """
    why = unsupported()
    problems = [Problem(what="nothing can be measured here", fix=why)] if why else []
    pair = default_pair(required_python(project))
    targets = tuple(_target_state(spec, project, problems) for spec in specs or pair.targets)
    machine = read_machine()
    probes = read_probes()
    uv = _uv(problems)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    problems += [*_machine_problems(machine, load), *_probe_problems(probes)]
    return Diagnosis(
        machine=machine,
        targets=targets,
        probes=probes,
        uv=uv,
        cache=_cache(problems),
        load_1min=load,
        problems=tuple(problems),
        default=f"{' and '.join(pair.targets)}: {pair.why}",
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
    """The diagnosis as text: one aligned section per topic, then every problem with its fix."""
    machine = diagnosis.machine
    sections = [
        ("machine", _machine_rows(machine, diagnosis.load_1min)),
        *((f"target {state.spec}", _target_rows(state)) for state in diagnosis.targets),
        ("observing", _probe_rows(diagnosis.probes)),
        ("tools", [("uv", diagnosis.uv or "not found"), ("cache", diagnosis.cache), ("default", diagnosis.default)]),
    ]
    width = max(len(name) for _, rows in sections for name, _ in rows)
    lines: list[str] = []
    for title, rows in sections:
        lines += [title, *(f"  {name:<{width}}  {value}" for name, value in rows), ""]
    if diagnosis.problems:
        lines.append("problems")
        lines += [line for problem in diagnosis.problems for line in (f"  - {problem.what}", f"    fix: {problem.fix}")]
    else:
        lines.append("no problems")
    return "\n".join(lines)


def _target_state(spec: str, project: Path, problems: list[Problem]) -> TargetState:
    target = parse_target(spec)
    try:
        interpreter = find_interpreter(target)
    except InterpreterNotFound as error:
        what, _, fix = str(error).partition("\n  fix: ")
        problems.append(Problem(what=what.replace("\n", "\n   "), fix=fix or "give the path of a working Python"))
        return TargetState(spec=spec, interpreter=None)
    unsupported = settings_unsupported(interpreter, target.settings)
    if unsupported:
        problems.append(Problem(what=f"the target {spec} is not supported here", fix=unsupported))
    if not interpreter.start_methods:
        problems.append(
            Problem(what=f"{spec} has no working multiprocessing", fix="use a build with semaphores (/dev/shm mounted)")
        )
    environments = tuple(str(folder) for folder in find_environments(interpreter, project / ENVIRONMENTS))
    refused = self_test(interpreter.executable, environment_variables(target.settings))
    if refused:
        what = f"the wait states of {spec}'s threads are unknown: {refused}"
        problems.append(
            Problem(what=what, fix="the waits of its cells are shown as not available; nothing else is affected")
        )
    return TargetState(spec=spec, interpreter=interpreter, environments=environments, waits_unavailable=refused)


def _uv(problems: list[Problem]) -> str | None:
    try:
        return find_uv()
    except UvMissing as error:
        problems.append(Problem(what="uv is missing: environments cannot be made", fix=str(error)))
        return None


def _cache(problems: list[Problem]) -> str:
    try:
        return str(cache_folder())
    except FtgateError as error:
        what, _, fix = str(error).partition("; ")
        problems.append(Problem(what=what, fix=fix))
        return "none"


def _machine_problems(machine: Machine, load: float | None) -> list[Problem]:
    problems = []
    if machine.cores < 2:
        problems.append(
            Problem(what="one usable core: nothing runs in parallel", fix="allow more cores (taskset, cpuset, the VM)")
        )
    if machine.cpu_quota is not None and machine.cpu_quota < machine.cores:
        problems.append(
            Problem(
                what=f"a CPU limit of {machine.cpu_quota:g} cores on {machine.cores}: workers are throttled",
                fix="raise the container's CPU limit, or restrict it to whole cores by a cpuset",
            )
        )
    if machine.governor not in (None, "performance"):
        problems.append(
            Problem(
                what=f"the frequency governor is {machine.governor}: times drift with it",
                fix="cpupower frequency-set -g performance",
            )
        )
    if load is not None and load > machine.cores / 2:
        problems.append(
            Problem(what=f"the load is {load:.1f}: something else is running", fix="measure on a quiet machine")
        )
    return problems


def _probe_problems(probes: Probes) -> list[Problem]:
    problems = []
    if not probes.pss_child:
        fix = "Linux 4.14+ and the right to read /proc/PID/smaps_rollup of a child (no hidepid)"
        problems.append(Problem(what="PSS cannot be read: memory is reported as USS and RSS alone", fix=fix))
    if not probes.schedstat_child:
        fix = "Linux with CONFIG_SCHED_INFO and a readable /proc/PID/schedstat"
        problems.append(Problem(what="the scheduler's figures cannot be read: no run-queue wait", fix=fix))
    return problems


def _machine_rows(machine: Machine, load: float | None) -> list[tuple[str, str]]:
    limit = machine.memory_limit_bytes
    return [
        ("fingerprint", machine.fingerprint),
        ("system", f"{machine.system} {machine.kernel}, {machine.arch}"),
        ("CPU", machine.cpu),
        ("usable cores", str(machine.cores)),
        ("CPU limit", "none" if machine.cpu_quota is None else f"{machine.cpu_quota:g} cores"),
        ("memory limit", "none" if limit is None else units.size(limit)),
        ("governor", machine.governor or "unknown"),
        ("load", "unknown" if load is None else f"{load:.2f} over the last minute"),
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
        ("configure", interpreter.config_args or "unknown"),
        ("start methods", ", ".join(interpreter.start_methods) or "none"),
        ("waits", "not available" if state.waits_unavailable else "available (self-test passed)"),
        ("environment", ", ".join(state.environments) or "not made yet (the first run makes it)"),
    ]


def _probe_rows(probes: Probes) -> list[tuple[str, str]]:
    def words(own: bool, child: bool) -> str:
        return (
            "readable, also for children"
            if own and child
            else "readable, but not for children"
            if own
            else "not readable"
        )

    return [
        ("PSS", words(probes.pss, probes.pss_child)),
        ("scheduler", words(probes.schedstat, probes.schedstat_child)),
    ]


def _has(path: Path, word: str = "") -> bool:
    text = read_text(path) or ""
    return bool(text.strip()) and word in text


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    """Add `ftgate doctor` to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="show what measurements are possible here",
        description="Show each target's interpreter and environment, the machine, and what can be observed; each "
        "problem with a fix. Exits with 3 when no target has an interpreter.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--python", action="append", metavar="SPEC", help="a target such as 3.14t (repeatable)")
    parser.add_argument("--rootdir", type=Path, default=Path(), help="the project whose environments are shown")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis; 0, or 3 when no target has an interpreter. Raises TargetError."""
    diagnosis = diagnose(args.python, args.rootdir.resolve())
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode())
    else:
        print(to_text(diagnosis))
    return 0 if any(state.interpreter for state in diagnosis.targets) else 3
