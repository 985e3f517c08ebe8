"""Imports the workload as pytest imported it, in the launch and in each of its workers."""

from __future__ import annotations

import importlib
import os
import sys

from . import pytest_stub, state
from .protocol import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .api import Declaration
    from .setups import Setups, WorkerSetups

    # Everything that a worker needs to find its body, as plain values, which can be sent to any worker.
    # Keys: module, path, qualname, import_mode, sys_path, behind (the entries that come last, since they have a source
    # folder of what is installed), adapter (the file that declares a test without a decorator, see `adapted`; else
    # empty), kind, method, name (of the user's factory), processes (whether the workers of his own executor are),
    # workers, shape, params (name -> literal),
    # roles (pairs of a name and a number of workers, whose sum is `workers`; the first leads; empty: none),
    # switch_s, control (what replaces the workload: "burn" or "empty", else ""), gil_note (a file that a pool's
    # worker writes if it ends with the GIL, or None), stacks (a folder for files of stacks and the signal that asks for
    # them, or None), held (a file for held iterations; only where they are asked for), cpus (the CPU of each worker;
    # empty: none is pinned), observers (the files of what observes this launch, see observing.py).
    Setup = dict[str, Any]


class Body:
    """A body bound to its parameters; `shape` names its first argument: worker, executor or server.

    `setups` are its test's setups and teardowns; None where it has none.
    """

    __slots__ = ("call", "is_async", "setups", "shape")

    def __init__(self, call: Callable[..., Any], shape: str, is_async: bool, setups: Setups | None = None) -> None:
        self.call = call
        self.shape = shape
        self.is_async = is_async
        self.setups = setups

    def surroundings(self, given: Any, loop: Any = None) -> WorkerSetups | None:
        """The setups and teardowns of `given`, a worker or an executor; None if the test has none."""
        if self.setups is None:
            return None
        from .setups import WorkerSetups

        return WorkerSetups(self.setups, given, loop)


def prepare(setup: Setup) -> None:
    """Set sys.path and the interpreter's settings as the job asks. It may be called again."""
    for position, entry in enumerate(setup["sys_path"]):
        if entry not in sys.path:
            sys.path.insert(position, entry)
    sys.path += [entry for entry in setup["behind"] if entry not in sys.path]
    sys.modules.setdefault("pytest", pytest_stub)  # in a plain run the real one is there
    if setup.get("switch_s"):
        sys.setswitchinterval(setup["switch_s"])


def load_module(setup: Setup) -> ModuleType:
    """The workload's module, under the name that pytest gave it.

    Raises Failure if the import gives another module of that name.
    """
    name, path = setup["module"], setup["path"]
    loaded = sys.modules.get(name)
    if loaded is not None and _same_file(loaded, path):
        return loaded
    if setup["import_mode"] == "importlib":
        return _load_from_file(name, path)
    if setup["behind"] and "." in name:  # in the installed package: the file may stand in its source folder
        try:
            importlib.import_module(name.rpartition(".")[0])
        except ModuleNotFoundError:
            pass  # not installed: the rest of its parents is the source folder's
        return _load_from_file(name, path)
    module = importlib.import_module(name)
    if not _same_file(module, path):
        raise Failure(
            f"importing {name!r} for {path} found {getattr(module, '__file__', module)!r} instead: "
            "give the test file a unique name, or its folder an __init__.py"
        )
    return module


def _same_file(module: ModuleType, path: str) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.realpath(file) == os.path.realpath(path)


def _load_from_file(name: str, path: str) -> ModuleType:
    """As pytest's importlib mode: from the file itself; parents that cannot be imported are created."""
    from types import ModuleType

    # 1. Its parents, the outermost first: a package where there is one, else a bare module with its folder.
    parts = name.split(".")[:-1]
    ancestor = os.path.dirname(path)
    parents = []
    for depth in range(len(parts), 0, -1):
        parents.append((".".join(parts[:depth]), ancestor))
        ancestor = os.path.dirname(ancestor)
    for parent, folder in reversed(parents):
        if parent in sys.modules:
            continue
        init = os.path.join(folder, "__init__.py")
        if os.path.isfile(init):
            execute(parent, init, [folder])
        else:
            sys.modules[parent] = bare = ModuleType(parent)
            bare.__path__ = [folder]
    # 2. The file.
    module = execute(name, path)
    if parts:
        setattr(sys.modules[".".join(parts)], name.rpartition(".")[2], module)
    return module


def execute(name: str, path: str, folders: list[str] | None = None) -> ModuleType:
    """The module of a file, or of a package in `folders`, under a name; one that raises is not left there."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, path, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise Failure(f"cannot import {path}")
    sys.modules[name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def declaration(setup: Setup) -> tuple[Declaration, Any]:
    """The test's declaration and its owner: the instance of its class in this process, or None for a plain function."""
    module = load_module(setup)
    owner: Any = None
    test: Any = module
    for part in setup["qualname"].split("."):
        owner, test = test, getattr(test, part)
    if setup["adapter"]:
        return adapted(setup["adapter"], test, owner if isinstance(owner, type) else None), None
    declared: Declaration | None = getattr(test, "__ftgate__", None)
    if declared is None:
        raise Failure(f"{setup['qualname']} has no decorator of ftgate")
    if declared.unknown:
        raise Failure(f"{declared.unknown}: there is no such decorator here")
    if not isinstance(owner, type):
        return declared, None
    if owner not in _instances:
        _instances[owner] = owner()
    return declared, _instances[owner]


def adapted(adapter: str, test: Any, owner: type | None) -> Declaration:
    """The declaration of a test without a decorator: `declared(test, owner)` of a feature's file; `owner` is its class.

    The file needs the standard library and the runner alone. The body of the declaration takes no `self`.
    """
    state.adapter = adapter
    name = f"ftgate_adapter_{os.path.basename(os.path.dirname(adapter))}"
    declared: Declaration = (sys.modules.get(name) or execute(name, adapter)).declared(test, owner)
    declared.adapter = adapter
    return declared


def owned(function: Any, instance: Any) -> Any:
    """A function bound to the test's instance, if there is one."""
    return function if instance is None else function.__get__(instance)


_bodies: dict[tuple[Any, ...], Body] = {}
_instances: dict[type, Any] = {}


def forget() -> None:
    """Drop bodies and instances: where cells run one after another in this process, each has its own."""
    _bodies.clear()
    _instances.clear()


def body(setup: Setup, role: str = "") -> Body:
    """The body that this cell, or a role in it, runs; loaded once per process, so that forked workers inherit it."""
    key = (
        setup["module"],
        setup["qualname"],
        setup["kind"],
        setup["method"] or setup["name"],
        setup["control"],
        tuple(setup["params"].items()),
        role if serves(setup, role) else "",
    )
    if key not in _bodies:
        _bodies[key] = _load_control(setup) if setup["control"] else _load_body(setup, key[-1])
    return _bodies[key]


def serves(setup: Setup, role: str) -> bool:
    """Whether a role does not lead: its body is called once per iteration and may run until the leaders have ended."""
    return bool(setup["roles"]) and role not in ("", setup["roles"][0][0])


def factory(setup: Setup) -> Callable[..., Any]:
    """The user's factory of the executor or event loop of this cell, whose executor has a name."""
    declared, _ = declaration(setup)
    return declared.factory_for(setup["kind"], setup["name"])


def stopper(setup: Setup) -> Callable[[Any], Any]:
    """`@test.stop`, called with the shared state; without one, a function that does nothing."""
    if setup["roles"]:
        declared, instance = declaration(setup)
        if declared.stop is not None:
            stop: Callable[[Any], Any] = owned(declared.stop, instance)
            return stop
    return lambda shared: None


def _load_control(setup: Setup) -> Body:
    """The control workload, or the empty one, in the shape of the cell's body: a pool gets one task per worker."""
    from . import control

    work: Callable[..., Any] = control.idle if setup["control"] == control.EMPTY else control.burn
    if setup["shape"] == "executor":
        return Body(lambda executor: list(executor.map(work, range(setup["workers"]))), "executor", False)
    if setup["kind"] != "tasks":
        return Body(work, "worker", False)

    async def task(worker: Any) -> Any:
        return work()

    return Body(task, "worker", True)


def _load_body(setup: Setup, role: str) -> Body:
    declared, instance = declaration(setup)
    state.without_shared = "" if declared.shared is not None else declared.body.__name__
    function = declared.body_for(setup["kind"], setup["method"] or setup["name"])
    if role:
        body_of_role = declared.role_for(role, setup["kind"], setup["method"] or setup["name"])
        if body_of_role is None:
            raise Failure(f"the role {role!r} has no body: write one with @{declared.body.__name__}.role({role!r})")
        function = body_of_role
    is_async = bool(function.__code__.co_flags & 0x80)  # CO_COROUTINE, without importing inspect
    call = owned(function, instance)
    params, shape = literals(setup["params"]), shape_of(function)
    code, place = function.__code__, int(instance is not None)
    if code.co_argcount <= place or code.co_varnames[place] != shape:  # `worker` is not the first parameter
        bound = call

        def by_name(given: Any) -> Any:
            return bound(**{shape: given}, **params)

        call = by_name
    elif params:
        from functools import partial

        call = partial(call, **params)
    if not declared.setups:
        return Body(call, shape, is_async)
    from .setups import Setups

    setups = Setups(is_async)
    for what, scope, function in declared.setups:
        if scope == "launch" or shape_of(function) == shape:
            names = taken(function)
            given = {name: value for name, value in params.items() if name in names}
            setups.add(what, scope, owned(function, instance), given)
    return Body(call, shape, is_async, setups)


def taken(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def shape_of(function: Callable[..., Any]) -> str:
    """The parameter that tells what the body is: `worker`, `executor` or `server`; empty if it has none of them."""
    names = taken(function)
    return next((name for name in ("worker", "executor", "server") if name in names), "")


def literals(params: dict[str, str]) -> dict[str, Any]:
    """The parameters, evaluated from their literals, or imported by their names."""
    values = {}
    for name, text in params.items():
        if is_named(text):
            values[name] = imported(text)
        else:
            from ast import literal_eval

            values[name] = literal_eval(text)
    return values


def is_named(text: str) -> bool:
    """Whether a parameter is `module:qualname` and not a literal."""
    return ":" in text and text.replace(":", "", 1).replace(".", "").isidentifier()


def imported(text: str) -> Any:
    """The object that a parameter names as `module:qualname`; the module itself if the second part is empty."""
    module, _, qualname = text.partition(":")
    value: Any = importlib.import_module(module)
    for part in filter(None, qualname.split(".")):
        value = getattr(value, part)
    return value
