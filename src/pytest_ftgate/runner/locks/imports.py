"""Patches a module right after its execution; the code that patches it is imported only then."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

HERE = __name__.rpartition(".")[0]
PATCHES = {
    "queue": f"{HERE}.threads:patch_queue",
    "multiprocessing.synchronize": f"{HERE}.processes:patch_synchronize",
    "multiprocessing.queues": f"{HERE}.processes:patch_queues",
    "multiprocessing.pool": f"{HERE}.processes:patch_pool",
    "multiprocessing.util": f"{HERE}.processes:patch_util",
    "asyncio.base_events": f"{HERE}.tasks:patch_loop",
    "asyncio.locks": f"{HERE}.tasks:patch_locks",
    "asyncio.queues": f"{HERE}.tasks:patch_queues",
}
"""Module -> module:function of the probe that patches it; the function takes the module."""


def hook() -> None:
    """Patch the modules that are loaded, and arrange that the others are patched when they are imported."""
    sys.meta_path.insert(0, _Finder())
    for name in PATCHES:
        module = sys.modules.get(name)
        if module is not None:
            patch(module)


def patch(module: ModuleType) -> None:
    """Patch a module of PATCHES. An error here makes the import fail: a half-patched launch must not go on."""
    where, _, function = PATCHES[module.__name__].partition(":")
    getattr(import_module(where), function)(module)


class _Finder:
    """Asks the other finders, and wraps the loader of a module that must be patched."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module of PATCHES; None for any other, which leaves it to the next finder."""
        if name not in PATCHES:
            return None
        for finder in tuple(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """Loads with the wrapped loader, then patches; the module only ever sees the wrapped loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Execute, then patch."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        patch(module)
