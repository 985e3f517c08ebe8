"""What both applications say of the interpreter that runs them."""

from __future__ import annotations

import sys
import sysconfig


def gil():
    """Whether this build can run without the GIL, and whether the GIL is on now that all imports are done."""
    return {
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    }
