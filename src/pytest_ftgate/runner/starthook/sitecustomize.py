"""Start hook: `site` imports it in every process and interpreter whose PYTHONPATH begins with its folder.

It installs the lock probe if the environment asks for it, then runs the `sitecustomize` that it hides.
"""

from __future__ import annotations

import os
import sys


def _probe() -> None:
    # The probe must be on or the launch must fail: zero waits would be a wrong result. `site` reports an Exception of
    # this module and goes on; SystemExit ends the interpreter (or fails the creation of a sub-interpreter).
    folder = os.environ.get("FTGATE_LOCKS")
    if (
        not folder or sys.hexversion < 0x030D0000
    ):  # An older Python is a program that the workload starts: not measured.
        return
    try:
        from pytest_ftgate.runner import locks

        locks.install(folder)
    except BaseException as error:
        raise SystemExit("pytest-ftgate: the lock probe could not be installed in this interpreter") from error


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


_probe()
_run_hidden()
