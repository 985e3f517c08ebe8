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
from ..kit.platforms import unsupported
from ..kit.values import Struct
from ..measure.machine import ROOT, read_machine, read_text
from ..measure.watch.threads import self_test
from ..model.report import Machine
from ..model.spec import Interpreter, parse_target
from ..targets.describe import environment_variables, settings_unsupported
from ..targets.environments import UvMissing, find_environments, find_uv, required_python, user_cache
from ..targets.find import InterpreterNotFound, default_pair, find_interpreter
from .last_run import FINE, NOTHING_FOUND

# What this machine offers for measurements, and a fix for each problem.

ENVIRONMENTS: Final = Path(".ftgate") / "envs"


class Problem(Struct, frozen=True):
    """Something that prevents or disturbs measurements, and a fix."""

    what: str
    fix: str


class TargetState(Struct, frozen=True):
    """One target."""

    spec: str
    interpreter: Interpreter | None
    environments: tuple[str, ...] = ()
    """The finished ones in this project."""
    waits_unavailable: str = ""
    """Why the wait states of its threads are unknown; empty where they are known."""


class Diagnosis(Struct, frozen=True):
    """All that `ftgate doctor` shows."""

    machine: Machine
    targets: tuple[TargetState, ...]
    probes: dict[str, bool]
    """Which figures can be read from outside, of this process and of a child."""
    uv: str | None
    load_1min: float | None
    problems: tuple[Problem, ...]
    default: str = ""


def diagnose(specs: Sequence[str] | None, project: Path) -> Diagnosis:
    """Examine the machine and each target that `specs` name, else the project's default ones.

    Raises TargetError for a spec that is not a target.
    """
    problems: list[Problem] = []

    def add(what: str, fix: str) -> None:
        problems.append(Problem(what=what, fix=fix))

    if why := unsupported():
        add("nothing can be measured here", why)

    # The targets.
    pair = default_pair(required_python(project))
    targets = []
    for spec in specs or pair.targets:
        target = parse_target(spec)
        try:
            interpreter = find_interpreter(target)
        except InterpreterNotFound as error:
            what, _, fix = str(error).partition("\n  fix: ")
            add(what.replace("\n", "\n   "), fix or "give the path of a working Python")
            targets.append(TargetState(spec=spec, interpreter=None))
            continue
        if lacks := settings_unsupported(interpreter, target.settings):
            add(f"the target {spec} is not supported here", lacks)
        if not interpreter.start_methods:
            add(f"{spec} has no working multiprocessing", "use a build with semaphores (/dev/shm mounted)")
        if refused := self_test(interpreter.executable, environment_variables(target.settings)):
            fix = "the waits of its cells are shown as not available; nothing else is affected"
            add(f"the wait states of {spec}'s threads are unknown: {refused}", fix)
        made = tuple(str(folder) for folder in find_environments(interpreter, project / ENVIRONMENTS))
        targets.append(TargetState(spec=spec, interpreter=interpreter, environments=made, waits_unavailable=refused))
    uv = None
    try:
        uv = find_uv()
    except UvMissing as error:
        add("uv is missing: environments cannot be made", str(error))

    # The machine, and what can be read of its processes.
    machine, probes = read_machine(), read_probes()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    if machine.cores < 2:
        add("one usable core: nothing runs in parallel", "allow more cores (taskset, cpuset, the VM)")
    if machine.cpu_quota is not None and machine.cpu_quota < machine.cores:
        add(
            f"a CPU limit of {machine.cpu_quota:g} cores on {machine.cores}: workers are throttled",
            "raise the container's CPU limit, or restrict it to whole cores by a cpuset",
        )
    if machine.governor not in (None, "performance"):
        governor = f"the frequency governor is {machine.governor}: times drift with it"
        add(governor, "cpupower frequency-set -g performance")
    if load is not None and load > machine.cores / 2:
        add(f"the load is {load:.1f}: something else is running", "measure on a quiet machine")
    if not probes["pss_child"]:
        fix = "Linux 4.14+ and the right to read /proc/PID/smaps_rollup of a child (no hidepid)"
        add("PSS cannot be read: only USS and RSS are reported", fix)
    if not probes["schedstat_child"]:
        fix = "Linux with CONFIG_SCHED_INFO and a readable /proc/PID/schedstat"
        add("the scheduler's figures cannot be read: no run-queue wait", fix)
    if user_cache() is None:
        what = f"uv keeps no cache: HOME is not set, and user {os.getuid()} is unknown to this system"
        add(what, "set HOME or XDG_CACHE_HOME to a folder that can be written")
    return Diagnosis(
        machine=machine,
        targets=tuple(targets),
        probes=probes,
        uv=uv,
        load_1min=load,
        problems=tuple(problems),
        default=f"{' and '.join(pair.targets)}: {pair.why}",
    )


def read_probes(root: Path = ROOT) -> dict[str, bool]:
    """Whether PSS and the scheduler's figures can be read of this process and of a child."""

    def has(path: Path, word: str = "") -> bool:
        text = read_text(path) or ""
        return bool(text.strip()) and word in text

    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            own, other = root / "proc/self", root / "proc" / str(child.pid)
            return {
                "pss": has(own / "smaps_rollup", "Pss:"),
                "pss_child": has(other / "smaps_rollup", "Pss:"),
                "schedstat": has(own / "schedstat"),
                "schedstat_child": has(other / "schedstat"),
            }
        finally:
            child.kill()


def to_text(diagnosis: Diagnosis) -> str:
    """The diagnosis as text: one aligned section per topic, then every problem with its fix."""
    machine, load, limit = diagnosis.machine, diagnosis.load_1min, diagnosis.machine.memory_limit_bytes
    sections = [
        (
            "machine",
            {
                "fingerprint": machine.fingerprint,
                "system": f"{machine.system} {machine.kernel}, {machine.arch}",
                "CPU": machine.cpu,
                "usable cores": str(machine.cores),
                "CPU limit": "none" if machine.cpu_quota is None else f"{machine.cpu_quota:g} cores",
                "memory limit": "none" if limit is None else units.size(limit),
                "governor": machine.governor or "unknown",
                "load": "unknown" if load is None else f"{load:.2f} over the last minute",
            },
        )
    ]
    for state in diagnosis.targets:
        rows = {"interpreter": "not found"}
        if each := state.interpreter:
            kind = "free-threaded" if each.free_threaded else "GIL"
            rows = {
                "interpreter": each.executable,
                "found": each.found,
                "version": ", ".join(filter(None, (f"{each.implementation} {each.name}, {kind} build", each.untested))),
                "build": each.build,
                "GIL": "on" if each.gil_enabled else "off",
                "JIT": "none" if not each.jit_available else "on" if each.jit_enabled else "off",
                "configure": each.config_args or "unknown",
                "start methods": ", ".join(each.start_methods) or "none",
                "waits": "not available" if state.waits_unavailable else "available (self-test passed)",
                "environment": ", ".join(state.environments) or "not made yet (the first run makes it)",
            }
        sections.append((f"target {state.spec}", rows))

    observing = {}
    for title, name in (("PSS", "pss"), ("scheduler", "schedstat")):
        children = "also" if diagnosis.probes[f"{name}_child"] else "but not"
        observing[title] = f"readable, {children} for children" if diagnosis.probes[name] else "not readable"
    tools = {"uv": diagnosis.uv or "not found", "default": diagnosis.default}
    sections += [("observing", observing), ("tools", tools)]
    width = max(len(name) for _, rows in sections for name in rows)
    lines: list[str] = []
    for title, rows in sections:
        lines += [title, *(f"  {name:<{width}}  {value}" for name, value in rows.items()), ""]
    lines.append("problems" if diagnosis.problems else "no problems")
    lines += [line for problem in diagnosis.problems for line in (f"  - {problem.what}", f"    fix: {problem.fix}")]
    return "\n".join(lines)


@hookimpl
def ftgate_commands(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="show what measurements are possible here",
        description="Show each target's interpreter and environment, the machine, and which probes work here. Each "
        "problem comes with a fix, such as the `uv python install` command of a missing interpreter. Exits with 3 "
        "if no target has an interpreter.",
        exits=(3,),
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--python", action="append", metavar="TARGET", help="a target such as 3.14t (repeatable)")
    parser.add_argument("--strict", action="store_true", help="exit with 3 if any target has no interpreter")
    parser.add_argument(
        "--rootdir", type=Path, metavar="DIR", default=Path(), help="the project whose environments are shown"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis; 0, or 3 when no target has an interpreter, or one lacks it. Raises TargetError."""
    diagnosis = diagnose(args.python, args.rootdir.resolve())
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode())
    else:
        print(to_text(diagnosis))
    here = [state.interpreter is not None for state in diagnosis.targets]
    return FINE if (all(here) if args.strict else any(here)) else NOTHING_FOUND
