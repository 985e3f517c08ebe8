"""Types of the decorators for type checkers; their arguments' names for `declare/`. No workload imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, Protocol, Required, TypedDict, TypeVar, overload

from .tokens import ExecutorToken, LoadToken

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Body = TypeVar("Body", bound=Callable[..., Any])
Words = list[str] | tuple[str, ...]
"""A list of texts; a single text is none."""
Count = int | Literal["cores"]
StartMethod = Literal["fork", "forkserver", "spawn"]
StartMethods = StartMethod | Sequence[StartMethod]
HttpMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Registrar(Protocol):
    """Takes a function, stores it and returns it."""

    def __call__(self, body: Body, /) -> Body:
        """Register `body`."""
        ...


class ScopedRegistrar(Protocol):
    """Bare it registers a function for each iteration, with a scope for that: see `Declaration.add_setup`."""

    @overload
    def __call__(self, body: Body, /) -> Body: ...
    @overload
    def __call__(self, scope: Literal["iteration", "worker", "launch"], /) -> Registrar: ...


class Workload(Protocol[P, R_co]):
    """A decorated test: the function itself, with further decorators as attributes."""

    __ftgate__: Any
    shared: Registrar
    check: Registrar
    stop: Registrar
    setup: ScopedRegistrar
    teardown: ScopedRegistrar

    def role(self, name: str, *executors: ExecutorToken, processes: StartMethods = ...) -> Registrar:
        """The body of another role."""
        ...

    def variant(self, *executors: ExecutorToken, processes: StartMethods = ...) -> Registrar:
        """Another body for the given executors."""
        ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """The body, unchanged."""
        ...


class SharedOptions(TypedDict, total=False):
    """The keyword arguments of both decorators."""

    pythons: str | Words
    duration: float
    window: float
    warmup: int
    timeout: float
    packages: Words
    programs: dict[str, str]
    min_cores: int
    env: dict[str, str] | Sequence[dict[str, str]]


class CompareOptions(SharedOptions, total=False):
    """The keyword arguments of `@ftgate.compare`."""

    processes: StartMethods
    reuse: Literal["fresh", "pool"]
    iterations: int
    pin: bool
    workers: Count | Mapping[str, int] | Sequence[Count | Mapping[str, int]]


class ServeOptions(SharedOptions, total=False):
    """The keyword arguments of `@ftgate.serve`."""

    ready: Required[str]
    load: Required[LoadToken]
    workers: Count | Sequence[Count]


class CommandOptions(TypedDict, total=False):
    """The keyword arguments of `command`."""

    build: Words
    pythons: str | Words
    env: dict[str, str]


class ExecutorOptions(TypedDict, total=False):
    """The keyword arguments of `executor`."""

    processes: bool


class LoadOptions(TypedDict, total=False):
    """The keyword arguments of `load`."""

    method: HttpMethod
    body: str | bytes
    headers: dict[str, str]
    connections: int
    rate: float
    generator: Literal["wrk", "oha"]
