"""Start hook: `site` imports it in every process and interpreter whose PYTHONPATH begins with its folder.

It installs what the environment asks for: the lock probe, the notes of what is read, the sampling of stacks, the traces
of memory and imports. Then it runs the `sitecustomize` that it hides.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

WANTED = {
    "FTGATE_LOCKS": ("locks", "the lock probe"),
    "FTGATE_READS": ("reads", "what notes the files that are read"),
    "FTGATE_PROFILE": ("profile", "what samples stacks"),
    "FTGATE_LOADS": ("loads", "what traces memory and imports"),
}
"""Variables with the setting of a module of the runner; the module, and what it is."""


def _install() -> None:
    # It must be installed or the launch must fail: zero waits, or nothing read, would be a wrong result. `site` reports
    # an Exception of this module and goes on; SystemExit ends the interpreter (or fails the creation of a
    # sub-interpreter).
    wanted = {name: setting for name in WANTED if (setting := os.environ.get(name))}
    if sys.hexversion < 0x030D0000:  # An older Python is a program that the workload starts: not measured.
        return
    for name, setting in wanted.items():
        module, what = WANTED[name]
        try:
            import_module(f"pytest_ftgate.runner.{module}").install(setting)
        except BaseException as error:
            raise SystemExit(f"pytest-ftgate: {what} could not be installed in this interpreter") from error


def _run_hidden() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.realpath(os.path.dirname(__file__))
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.realpath(entry) != here])
    if spec is None or spec.loader is None:
        # As without the start hook: `site` expects this error where there is no sitecustomize.
        raise ImportError("no sitecustomize except that of pytest-ftgate", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module  # The import in progress returns what is here when it ends.
    spec.loader.exec_module(module)


_install()
_run_hidden()
