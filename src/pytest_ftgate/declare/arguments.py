"""Reads the keyword arguments of a decorator."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

from ..model import Environment, Executor, Reuse, RoleCounts, Service
from ..runner.loading import shape_of
from ..text import did_you_mean, listed
from .loads import load_of
from .reader import KINDS, SERVE_EXAMPLE, Reader, is_count

REUSES: tuple[str, ...] = get_args(Reuse)
BOTH = (
    "workers",
    "pythons",
    "duration",
    "window",
    "warmup",
    "timeout",
    "requires",
    "needs",
    "needs_cores",
    "environment",
)
KNOWN = {"compare": ("reuse", "iterations", "cpus", *BOTH, *KINDS), "serve": ("ready", "load", *BOTH)}
DEFAULT_WORKERS = 2
CORES = "cores"
ROLE = re.compile(r"[A-Za-z_]*[A-Za-z_]")
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
SETTINGS = {"PYTHON_GIL": "3.14t[gil=on]", "PYTHON_JIT": "3.14[jit=on]"}
"""Variables that are settings of a target."""
LAUNCHES = {
    "PYTHONPATH": "belongs to the launch: use pytest's `pythonpath` ini",
    "PYTHONHASHSEED": "differs in each launch, so that no figure depends on it",
}
"""Variables of a workload in Python that a test cannot set."""


class Arguments(Reader):
    """Reads the keyword arguments: numbers, names, requirements, a server's load."""

    def known_arguments(self) -> None:
        """Refuse an unknown keyword argument."""
        known = KNOWN[self.declared.decorator]
        for name in self.kwargs:
            if name not in known:
                self.fail(f"unknown argument {name!r}{did_you_mean(name, known)}; it takes {listed(known)}")

    def workers(self) -> tuple[tuple[int, ...], tuple[RoleCounts, ...]]:
        """The worker counts, each once, and with roles the roles of each."""
        value = self.kwargs.get("workers", DEFAULT_WORKERS if self.declared.decorator == "compare" else 1)
        counts = list(value) if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(count, dict) for count in counts):
            role_counts = tuple(dict.fromkeys(self._role_counts(count, counts) for count in counts))
            return tuple(sum(number for _, number in role_count) for role_count in role_counts), role_counts
        if not counts or not all(is_count(count) or count == CORES for count in counts):
            self.fail(f"workers= takes a whole number from 1, {CORES!r}, or a list of them, not {value!r}")
        cores = self.cores()
        return tuple(dict.fromkeys(cores if count == CORES else count for count in counts)), ()

    def cores(self) -> int:
        """What "cores" stands for in workers=: the cores of this process, with cpus= those that can be pinned to.

        0 where it is not written.
        """
        if CORES not in self._written():
            return 0
        from ..measure import cores  # plain runs of other tests do without

        return max(1, len(cores.for_workers())) if self.kwargs.get("cpus") else cores.available()

    def cores_named(self) -> bool:
        """Whether no number of workers= is that of the cores: then the id of the cell says `wcores`."""
        return CORES in self._written() and self.cores() not in self._written()

    def _written(self) -> list[Any]:
        value = self.kwargs.get("workers")
        return list(value) if isinstance(value, (list, tuple)) else [value]

    def cpus(self, executors: Sequence[Executor]) -> Literal["each"] | None:
        """`each` for workers on cores of their own: for executors whose workers are threads or processes of ours."""
        value = self.kwargs.get("cpus")
        if value is None:
            return None
        if value != "each":
            self.fail(f"cpus= takes 'each', which pins each worker to a core of its own, not {value!r}")
        for executor in executors:
            if executor.kind == "tasks":
                self.fail("cpus='each': tasks share one thread, so none can have a core of its own; remove tasks")
            if executor.program is not None:
                self.fail(f"cpus='each': {executor.label} is a program, which starts its workers itself; remove it")
            if shape_of(self.declared.body_for(executor.kind, executor.method)) == "executor":
                self.fail(
                    "cpus='each': a body that takes `executor` has no workers that wait to be pinned; take `worker`"
                )
        return "each"

    def _role_counts(self, roles: Any, all_counts: Sequence[Any]) -> RoleCounts:
        """One dict of roles. All dicts of a test have the same names, because the bodies are the same."""
        first = next(count for count in all_counts if isinstance(count, dict))
        if not isinstance(roles, dict) or list(roles) != list(first):
            self.fail(f"workers= gives every cell the same roles in the same order, not {roles!r} and {first!r}")
        if len(roles) < 2 or not all(isinstance(name, str) and ROLE.fullmatch(name) for name in roles):
            self.fail(
                f"workers= takes two or more roles whose names are letters, such as {{'producer': 8, 'writer': 4}}: "
                f"{roles!r}"
            )
        if not all(is_count(count) for count in roles.values()):
            self.fail(f"workers= takes a whole number from 1 for each role, not {roles!r}")
        return tuple(roles.items())

    def positive(self, name: str, *, whole: bool = False, zero: bool = False) -> Any:
        """A number above zero (or from zero), or None where it is not given."""
        value = self.kwargs.get(name)
        if value is None:
            return None
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            kind = "a whole number" if whole else "a number of seconds"
            self.fail(f"{name}= takes {kind} {'from 0' if zero else 'above 0'}, not {value!r}")
        return value

    def reuse(self, duration: float | None) -> Reuse:
        """`pool` by default, and always with duration=."""
        value = self.kwargs.get("reuse")
        if value is None:
            return "pool"
        if value not in REUSES:
            self.fail(f"reuse= takes {listed(REUSES)}, not {value!r}")
        if duration is not None and value == "fresh":
            self.fail("duration= keeps its workers between windows; drop reuse='fresh', or use iterations=")
        return value  # type: ignore[no-any-return]

    def pythons(self) -> tuple[str, ...] | None:
        """The targets, or None if the options decide."""
        return self.targets(self.kwargs.get("pythons"), "pythons=")

    def requires(self) -> tuple[str, ...]:
        """Requirements to install together with the project."""
        value = self.kwargs.get("requires", ())
        if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) and word for word in value):
            self.fail(f"requires= takes a list of requirements such as ['flask>=3'], not {value!r}")
        for word in value:
            if word.startswith("-"):
                self.fail(
                    f"requires= takes requirements only, and {word!r} is an option; options go into ftgate_install"
                )
        return tuple(value)

    def needs(self) -> tuple[tuple[str, str], ...]:
        """Programs that must be installed, each with the command that installs it."""
        value = self.kwargs.get("needs", {})
        if not isinstance(value, dict) or not all(
            isinstance(word, str) and word for pair in value.items() for word in pair
        ):
            self.fail(f"needs= takes a dict such as {{'cargo': 'apt install cargo'}}, not {value!r}")
        return tuple(value.items())

    def environments(self) -> tuple[Environment, ...]:
        """The environments of the cells, each once; a list of several multiplies them."""
        value = self.kwargs.get("environment") or {}
        given = list(
            dict.fromkeys(self._variables(each) for each in (value if isinstance(value, (list, tuple)) else [value]))
        )
        pairs = [set(variables) for variables in given]
        shared = set.intersection(*pairs)
        words = [tuple(_word(*pair) for pair in variables if pair not in shared) for variables in given]
        for each in words:
            if words.count(each) > 1:
                self.fail(f"environment=: two environments would be called {'-'.join(each)!r} in the ids of cells")
        return tuple(Environment(variables=own, words=named) for own, named in zip(given, words, strict=True))

    def _variables(self, value: Any) -> tuple[tuple[str, str], ...]:
        """One dict of variables."""
        if not isinstance(value, dict) or not all(isinstance(part, str) for item in value.items() for part in item):
            self.fail(
                f"environment= takes a dict of strings such as {{'OMP_NUM_THREADS': '1'}}, or a list of them: {value!r}"
            )
        for name, text in value.items():
            if not VARIABLE.fullmatch(name) or "\0" in text:
                self.fail(f"environment=: {name!r} and {text!r} are no variable (letters, digits and _) and its value")
            if name in SETTINGS:
                self.fail(f"environment=: {name} is a setting of the target, such as {SETTINGS[name]}")
            if name in LAUNCHES and self.declared.decorator == "compare":
                self.fail(f"environment=: {name} {LAUNCHES[name]}")
        return tuple(value.items())

    def service(self) -> Service:
        """When a server is ready, and the load on it."""
        ready = self.kwargs.get("ready")
        if not isinstance(ready, str) or not ready.startswith(("http://", "https://")):
            self.fail(f"ready= takes the URL that answers once the server is ready, not {ready!r}: {SERVE_EXAMPLE}")
        return Service(ready=ready, load=load_of(self))


def _word(name: str, value: str) -> str:
    """A variable in the id of a cell, of characters that `-k` takes: `OMP_NUM_THREADS:1`, `OMP_NUM_THREADS:workers`."""
    return f"{name}:{re.sub(r'[^A-Za-z0-9_.:+/-]', '_', re.sub(r'[{}]', '', value))}"
