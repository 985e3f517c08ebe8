"""`import pytest` in processes that a workload's libraries start: their environment's pytest, or else the stub.

A link to this folder is beside the launch's copy of pytest_ftgate on PYTHONPATH. Any Python 3 may find it there.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

# The import in progress returns what sys.modules holds when it ends.
_home = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))
_spec = PathFinder.find_spec("pytest", [entry for entry in sys.path if os.path.realpath(entry) != _home])
if _spec is None or _spec.loader is None:
    from pytest_ftgate.runner import pytest_stub

    sys.modules["pytest"] = pytest_stub
else:
    sys.modules["pytest"] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["pytest"])
