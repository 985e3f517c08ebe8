"""What is to be measured: programs, executors, targets, specs, cells and the plan."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

from ..kit.errors import FtgateError
from ..kit.text import split_nodeid
from ..kit.values import Count, Metric, Struct, Threshold
from ..runner.signatures import StartMethod
from .verdict import Expected

ExecutorKind = Literal["serial", "threads", "processes", "interpreters", "tasks", "executor", "command", "server"]
Reuse = Literal["fresh", "pool"]
BodyKind = Literal["worker", "executor", "server"]
Generator = Literal["wrk", "oha"]


class Environment(Struct, frozen=True, kw_only=True):
    """Environment variables of a cell; their values may hold the placeholders of `PLACEHOLDERS` and of parameters.

    `words` are those of the cell's id, such as `OMP_NUM_THREADS:1`: the variables in which it differs from the test's
    other environments.
    """

    variables: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()


class Program(Struct, frozen=True, kw_only=True):
    """A program to start in place of a Python body, under its name in the test.

    The words of `argv` and `build` may hold the placeholders of `PLACEHOLDERS` and of the test's parameters. `build`
    is run once before the first launch. `pythons` are its targets, as users spell them; None: all.
    """

    name: str
    argv: tuple[str, ...]
    build: tuple[str, ...] = ()
    pythons: tuple[str, ...] | None = None
    environment: tuple[tuple[str, str], ...] = ()


class Executor(Struct, frozen=True, kw_only=True):
    """What runs the workers; `program` is set for programs, `method` for processes: None is the target's default.

    `name` is that of a factory in the test: of the user's own executor (`executor`), whose workers are processes if
    `in_processes`, or of an event loop (`tasks`).
    """

    kind: ExecutorKind
    method: StartMethod | None = None
    program: Program | None = None
    name: str | None = None
    in_processes: bool = False

    @property
    def qualifier(self) -> str | None:
        """What tells it from others of its kind: a start method or a name."""
        return self.program.name if self.program else self.method or self.name

    @property
    def has_processes(self) -> bool:
        """Whether its workers are processes."""
        return self.kind == "processes" or self.in_processes

    @property
    def label(self) -> str:
        """The word in a cell's id: a program's or a factory's name, the start method, else the kind."""
        return self.qualifier or self.kind

    def counted(self, environment: Environment) -> bool:
        """Whether its cells have a number of workers: a program may not take it."""
        if self.program is None:
            return True
        values = [value for _, value in (*self.program.environment, *environment.variables)]
        return any("{workers}" in word for word in (*self.program.argv, *values))


class Settings(Struct, frozen=True, kw_only=True):
    """A target's settings of its interpreter; None leaves the interpreter's default."""

    gil: Literal["on", "off"] | None = None
    jit: Literal["on", "off"] | None = None
    switchinterval_ns: int | None = None


class Target(Struct, frozen=True, kw_only=True):
    """One interpreter and its settings, as the user spelled it: `3.14t[gil=on]`, or a path."""

    spec: str
    request: str
    settings: Settings = Settings()


class InterpreterBuild(Struct, frozen=True, kw_only=True):
    """What an interpreter is on any machine, as baselines have it."""

    version: str
    implementation: str
    free_threaded: bool
    gil_enabled: bool
    jit_enabled: bool
    pgo: bool
    lto: bool
    shared: bool
    debug: bool
    compiler: str
    build: str


class Interpreter(InterpreterBuild, frozen=True, kw_only=True):
    """A target interpreter as it described itself."""

    executable: str
    jit_available: bool
    config_args: str
    found: str
    start_methods: tuple[StartMethod, ...] = ()

    @property
    def name(self) -> str:
        """`3.14.7t`: the version with the free-threaded build's letter."""
        return self.version + ("t" if self.free_threaded else "")

    @property
    def untested(self) -> str:
        """Says that this interpreter is newer than those that the plugin is tested with; else empty."""
        newer = tuple(map(int, series(self.version).split("."))) > NEWEST_TESTED
        tested = "{}.{}".format(*NEWEST_TESTED)
        return f"newer than {tested}, the newest version that pytest-ftgate is tested with" if newer else ""


class Param(Struct, frozen=True, kw_only=True):
    """One parametrized argument: its name, and its value as a Python literal, or as `module:qualname` to import."""

    name: str
    literal: str


class DeclaredContract(Struct, frozen=True, kw_only=True):
    """A contract as written in a decorator: `threads.wall < 0.8 * processes[spawn].wall`, and its line."""

    text: str
    line: int = 0


class Source(Struct, frozen=True, kw_only=True):
    """The place of the workload, and how pytest imported it; `adapter` as in its `Declaration`."""

    path: str
    line: int
    module: str
    qualname: str
    import_mode: str = "prepend"
    sys_path: tuple[str, ...] = ()
    adapter: str = ""


class Load(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The load on a server: requests over this many connections; None takes an installed generator.

    `path` is one path, or several with how often each comes. With a `rate` (requests per second) they are sent at that
    rate whatever the answers take, else each connection sends its next request after an answer. Paths, the values of
    `headers` and a `body` may hold the test's parameters as placeholders; `body_bytes` instead are sent as they are.
    """

    # Stored baselines hold a digest of its repr, which leaves out a field that is its default itself: None, no 0.0.
    path: str | tuple[tuple[str, int], ...]
    connections: int
    generator: Generator | None
    method: str = "GET"
    body: str = ""
    body_bytes: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    rate: float | None = None

    @property
    def mix(self) -> tuple[tuple[str, int], ...]:
        """All paths, each with how often it comes."""
        return ((self.path, 1),) if isinstance(self.path, str) else self.path


class Service(Struct, frozen=True, kw_only=True):
    """A server's readiness check (an answer at the URL `ready` that is not an error), and the load on it."""

    ready: str
    load: Load


RoleCounts = tuple[tuple[str, int], ...]
"""Names of roles with their numbers of workers; the first one leads: its calls are the operations."""


class Xfail(Expected, frozen=True, kw_only=True):
    """A known failure of some cells: of these executors, targets, worker counts and labels; empty: of all.

    A label may hold `*` and `?`.
    """

    executors: tuple[Executor, ...] = ()
    pythons: tuple[str, ...] = ()
    workers: tuple[int, ...] = ()
    cells: tuple[str, ...] = ()


class Spec(Struct, frozen=True, kw_only=True):
    """What a decorated test declares, checked; durations in seconds.

    If workers have roles, `role_counts` has the roles of each worker count in `workers`; else it is empty. With
    `one_call` an iteration is one call of the body, as each has a setup or teardown of its own. `packages` are
    requirements installed next to the project, `programs` have the command that installs each. `gated` are
    metrics that gate in this test beyond those of the run. `cores` is the count in `workers` that was written as
    "cores" (0: none), `cores_named` whether it was written so alone: then the id of its cells is `wcores`. A cell needs
    `min_cores`; with `pin` each worker has a core of its own. `labels` are those of all its cells, without parameters.
    """

    nodeid: str
    source: Source
    body: BodyKind
    executors: tuple[Executor, ...]
    workers: tuple[int, ...]
    reuse: Reuse
    role_counts: tuple[RoleCounts, ...] = ()
    pythons: tuple[str, ...] | None = None
    iterations: int | None = None
    one_call: bool = False
    duration_s: float | None = None
    window_s: float | None = None
    warmup: int | None = None
    timeout_s: float | None = None
    thresholds: tuple[Threshold, ...] = ()
    gated: tuple[str, ...] = ()
    contracts: tuple[DeclaredContract, ...] = ()
    xfails: tuple[Xfail, ...] = ()
    service: Service | None = None
    packages: tuple[str, ...] = ()
    programs: tuple[tuple[str, str], ...] = ()
    environments: tuple[Environment, ...] = (Environment(),)
    cores: int = 0
    cores_named: bool = False
    min_cores: int | None = None
    pin: bool = False
    labels: tuple[str, ...] = ()

    @property
    def times_holds(self) -> bool:
        """Whether it asks how many workers its locks allow, by a contract or a limit."""
        asked = *(each.metric for each in self.thresholds), *(each.text for each in self.contracts)
        return any(Metric.LOCK_CEILING in text for text in asked)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(count for count in self.workers if not (self.cores_named and count == self.cores))

    @property
    def window_ns(self) -> int:
        """The window of one iteration; 0 without a duration."""
        if self.duration_s is None:
            return 0
        return max(1, round(min(self.window_s or WINDOW_S, self.duration_s) * 1e9))


class Cell(Struct, frozen=True, kw_only=True):
    """One executor x one target x one set of parameters of one test; `cores`: as many workers as there are cores."""

    nodeid: str
    target: Target
    executor: Executor
    workers: Count
    params: tuple[Param, ...] = ()
    body: BodyKind = "worker"
    roles: RoleCounts = ()
    environment: Environment = Environment()
    cores: bool = False

    @property
    def counted(self) -> bool:
        return self.executor.counted(self.environment)

    @property
    def label(self) -> str:
        """The text between the brackets of the node id."""
        return split_nodeid(self.nodeid)[1]


def cells_of(spec: Spec, targets: Sequence[Target]) -> Iterator[Cell]:
    """Every combination of a test, by number of workers, before its parameters are known.

    Its label is `3.14t-threads-w8`, with roles `3.14t-threads-producer8-writer4`; without the number of workers for a
    program that does not get it; with `-OMP_NUM_THREADS:1` if the test has several environments. `wcores` is the same
    on every machine.
    """
    role_counts = spec.role_counts or ((),) * len(spec.workers)
    for workers, roles in zip(spec.workers, role_counts, strict=True):
        cores = workers == spec.cores
        for environment, target, executor in itertools.product(spec.environments, targets, spec.executors):
            words = [executor.label] if executor.kind == "command" else [target.spec, executor.label]
            if roles:
                words += [f"{role}{count}" for role, count in roles]
            elif executor.counted(environment):
                words.append("wcores" if cores and spec.cores_named else f"w{workers}")
            yield Cell(
                nodeid=f"[{'-'.join((*words, *environment.words))}]",
                target=target,
                executor=executor,
                workers=workers,
                roles=roles,
                environment=environment,
                cores=cores,
            )


def can_grow(cell: Cell, spec: Spec) -> bool:
    """Whether iterations can leave memory behind that is seen: a process that ends with each returns all of its own."""
    executor = cell.executor
    ends = spec.reuse == "fresh" and executor.has_processes
    return executor.program is None and not ends


class Group(Struct, frozen=True, kw_only=True):
    """The cells that are interleaved: one test at one worker count with one set of parameters."""

    key: str
    spec: Spec
    cells: tuple[Cell, ...]


Plan: TypeAlias = tuple[Group, ...]
"""Everything that a run measures, in order."""
WINDOW_S = 0.2
"""The window of an iteration of a test with a duration, where the test sets none."""
PLACEHOLDERS = ("python", "folder", "workers", "seconds", "port", "scratch")
"""Placeholders in a program's words: the target's python, the test file's folder, the number of workers, the length of
an iteration in seconds (commands), a free port and an empty folder for this launch (servers)."""


# Targets as users write them: an interpreter and its settings, `3.14t[gil=on]`.

OLDEST: Final = (3, 13)
NEWEST_TESTED: Final = (3, 14)

_VERSION = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)(?P<patch>\.\d+(?:(?:a|b|rc)\d+)?)?(?P<threaded>t?)")
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?|\.\d+)(?P<unit>ns|us|µs|ms|s)")
_UNIT_NS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class TargetError(FtgateError):
    """A target that cannot be parsed; the message names it and a fix."""


def parse_target(spec: str) -> Target:
    """Parse a target: `3.14`, `3.14.7t`, `3.14t[gil=on,switchinterval=0.1ms]`, or a path.

    `request` of the result is the spec without its settings. Raises TargetError.
    """
    request, listed = spec.strip(), None
    if request.endswith("]") and "[" in request:
        request, _, listed = request[:-1].rpartition("[")
        request = request.strip()
    if not request:
        raise TargetError(f"target {spec!r} names no interpreter: write a version such as 3.14t, or a path")
    if not is_path(request):
        match = _VERSION.fullmatch(request)
        if match is None:
            raise TargetError(
                f"target {spec!r}: {request!r} is neither a version (3.14, 3.14t, 3.14.7) nor a path; "
                f"settings follow in brackets, as in 3.14t[gil=on]"
            )
        if (int(match["major"]), int(match["minor"])) < OLDEST:
            raise TargetError(f"target {spec!r} is too old: targets are CPython {OLDEST[0]}.{OLDEST[1]} and newer")
    settings = Settings() if listed is None else _settings(spec, listed)
    return Target(spec=spec.strip(), request=request, settings=settings)


def is_path(request: str) -> bool:
    """Whether a target's request is a path to an executable rather than a version."""
    return request.startswith("~") or "/" in request


def parse_version(request: str) -> tuple[str, bool]:
    """The version prefix, and whether it is the free-threaded build: `3.14.7t` -> (`3.14.7`, True).

    Raises TargetError if `request` is not a version.
    """
    match = _VERSION.fullmatch(request)
    if match is None:
        raise TargetError(f"target {request!r} is not a version: write 3.14, 3.14t, 3.14.7 or a path with a '/'")
    return request.removesuffix("t"), bool(match["threaded"])


def series(version: str) -> str:
    """`3.14` of `3.14.7`."""
    return ".".join(version.split(".")[:2])


def _settings(spec: str, listed: str) -> Settings:
    settings: dict[str, Any] = {}
    for item in listed.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        known = _PARSERS.get(name)
        if known is None or not equals:
            raise TargetError(
                f"target {spec!r}: unknown setting {item.strip()!r}; known are gil=on|off, jit=on|off and "
                f"switchinterval=DURATION such as 0.1ms"
            )
        field, parse = known
        if field in settings:
            raise TargetError(f"target {spec!r}: {name} is set twice; keep one")
        settings[field] = parse(spec, name, value)
    return Settings(**settings)


def _on_off(spec: str, name: str, value: str) -> str:
    if value not in ("on", "off"):
        raise TargetError(f"target {spec!r}: {name}={value} is not understood; write {name}=on or {name}=off")
    return value


def _duration_ns(spec: str, name: str, value: str) -> int:
    match = _DURATION.fullmatch(value)
    if match is None:
        raise TargetError(
            f"target {spec!r}: {name}={value} is not a duration; write a number and its unit (us, ms, s), such as 0.1ms"
        )
    nanoseconds = round(float(match["number"]) * _UNIT_NS[match["unit"]])
    if nanoseconds < 1_000:  # the interpreter keeps whole microseconds
        raise TargetError(f"target {spec!r}: {name}={value} is too short; the interpreter's minimum is 1us")
    return nanoseconds


_PARSERS: Final[dict[str, tuple[str, Callable[[str, str, str], str | int]]]] = {
    "gil": ("gil", _on_off),
    "jit": ("jit", _on_off),
    "switchinterval": ("switchinterval_ns", _duration_ns),
}
