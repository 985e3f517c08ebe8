"""Target interpreters and their environments: found, described, installed. Start at `find.py`."""

from __future__ import annotations

from . import waiting
from .describe import (
    InterpreterBroken,
    build_key,
    describe,
    environment_variables,
    scrubbed_environment,
    settings_unsupported,
)
from .environments import (
    EnvironmentBroken,
    copied_modules,
    ensure_environment,
    environment_folder,
    find_environments,
    forget_environments,
    hide_from_git,
    prune_environments,
)
from .find import InterpreterNotFound, cache_folder, find_interpreter
from .newest import DefaultPair, default_pair
from .project import asks_git_alone, default_install, discovers_packages, pretended, project_name, required_python
from .provide import Provided, provide
from .steps import (
    InstallError,
    OnStep,
    Step,
    Steps,
    arguments,
    distribution_of,
    is_command,
    missing_hint,
    rebuild_hint,
    spelled,
)
from .uv_tool import UvMissing, find_uv, run_uv, user_home

__all__ = [
    "DefaultPair",
    "EnvironmentBroken",
    "InstallError",
    "InterpreterBroken",
    "InterpreterNotFound",
    "OnStep",
    "Provided",
    "Step",
    "Steps",
    "UvMissing",
    "arguments",
    "asks_git_alone",
    "build_key",
    "cache_folder",
    "copied_modules",
    "default_install",
    "default_pair",
    "describe",
    "discovers_packages",
    "distribution_of",
    "ensure_environment",
    "environment_folder",
    "environment_variables",
    "find_environments",
    "find_interpreter",
    "find_uv",
    "forget_environments",
    "hide_from_git",
    "is_command",
    "missing_hint",
    "pretended",
    "project_name",
    "provide",
    "prune_environments",
    "rebuild_hint",
    "required_python",
    "run_uv",
    "scrubbed_environment",
    "settings_unsupported",
    "spelled",
    "user_home",
    "waiting",
]
