"""Start hook: `site` imports it in every process and interpreter whose PYTHONPATH begins with its folder.

It installs what the environment asks for, the lock probe or the notes of what is read, then runs the `sitecustomize`
that it hides.
"""

from __future__ import annotations

import os
import sys


def _install() -> None:
    # It must be installed or the launch must fail: zero waits, or nothing read, would be a wrong result. `site` reports
    # an Exception of this module and goes on; SystemExit ends the interpreter (or fails the creation of a
    # sub-interpreter).
    folder, notes = os.environ.get("FTGATE_LOCKS"), os.environ.get("FTGATE_READS")
    if sys.hexversion < 0x030D0000:  # An older Python is a program that the workload starts: not measured.
        return
    try:
        if folder:
            from pytest_ftgate.runner import locks

            locks.install(folder)
        if notes:
            from pytest_ftgate.runner import reads

            reads.install(notes)
    except BaseException as error:
        what = "the lock probe" if folder else "what notes the files that are read"
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
