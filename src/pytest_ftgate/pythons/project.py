"""What the files of a project say about it: what it is called, requires and is built by."""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name

from ..errors import FtgateError

_SCM: Final = "SETUPTOOLS_SCM_PRETEND_VERSION"
VERSIONS: Final = {
    "setuptools-scm": _SCM,
    "hatch-vcs": _SCM,
    "poetry-dynamic-versioning": "POETRY_DYNAMIC_VERSIONING_BYPASS",
    "uv-dynamic-versioning": "UV_DYNAMIC_VERSIONING_BYPASS",
    "pdm-backend": "PDM_BUILD_SCM_VERSION",
}
"""What takes a project's version from git, and the environment variable that it takes it from first."""
_ASKS_GIT: Final = "versioningit"
"""What takes a version from git, and from no variable."""
_REBUILDS: Final = ("meson-python", "mesonpy")
_NOT_EDITABLE: Final = ("sipbuild.api",)


def default_install(project: Path) -> tuple[tuple[str, ...], ...]:
    """What to install without ftgate_install: the project itself; if it is not a package, what it requires.

    It is editable, unless its build backend builds such an install again when it is imported, or has none. Raises
    FtgateError if pyproject.toml cannot be read.
    """
    content = pyproject(project)
    if _is_package(project, content):
        return ((".",),) if _rebuilds_on_import(content) else (("-e", "."),)
    if content.get("project", {}).get("dependencies"):
        return (("-r", "pyproject.toml"),)
    return (("-r", "requirements.txt"),) if (project / "requirements.txt").is_file() else ()


def _is_package(project: Path, content: dict[str, Any]) -> bool:
    """Whether a project with this pyproject.toml can be installed. One without a build system is a package to pip.

    To uv it is none, and setuptools would often refuse it: uv's lock file, or its workspace, says who is asked.
    """
    uv = content.get("tool", {}).get("uv", {})
    if "package" in uv:
        return bool(uv["package"])
    if "build-system" in content or (project / "setup.py").is_file():
        return True
    return "project" in content and "workspace" not in uv and not (project / "uv.lock").is_file()


def _rebuilds_on_import(content: dict[str, Any]) -> bool:
    """Whether an editable install needs the requirements of its build when it is imported, or cannot be made."""
    build = content.get("build-system", {})
    backend = str(build.get("build-backend", ""))
    requires = [str(word) for word in build.get("requires", ())]
    if content.get("tool", {}).get("scikit-build", {}).get("editable", {}).get("rebuild") is True:
        return True
    return backend in (*_REBUILDS, *_NOT_EDITABLE) or any(re.match(r"meson[-_.]python\b", word) for word in requires)


def pyproject(project: Path) -> dict[str, Any]:
    """The tables of pyproject.toml; empty without one. Raises FtgateError if it cannot be read."""
    path = project / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise FtgateError(f"{path} cannot be read: {error}; fix it or set ftgate_install") from error


def project_name(project: Path) -> str:
    """The name of a project's distribution, in its canonical form; "" if no file says it."""
    content = pyproject(project)
    tables = (content.get("project", {}), content.get("tool", {}).get("poetry", {}))
    names = [str(table["name"]) for table in tables if "name" in table]
    for file, pattern in (("setup.cfg", r"^name\s*=\s*([\w.-]+)\s*$"), ("setup.py", r"\bname\s*=\s*['\"]([\w.-]+)")):
        if not names and (project / file).is_file():
            names = re.findall(pattern, (project / file).read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return canonicalize_name(names[0]) if names else ""


def pretended(project: Path, version: str) -> dict[str, str]:
    """The environment variables by which a build takes this version and asks git for none; a user's own stay.

    setuptools-scm's is for this project alone where its name is known: a dependency may be built by the same.
    """
    asked = _asked(project)
    found = {
        variable: version
        for tool, variable in VERSIONS.items()
        if tool in asked and not any(name.startswith(variable) for name in os.environ)
    }
    tables, _ = _readable(project)
    name = canonicalize_name(str(tables.get("project", {}).get("name", ""))).replace("-", "_").upper()
    if name and "hatch-vcs" not in asked and found.pop(_SCM, ""):
        found[f"{_SCM}_FOR_{name}"] = version
    return found


def asks_git_alone(project: Path) -> bool:
    """Whether a build takes its version from git, and no variable can say another."""
    return _ASKS_GIT in _asked(project)


def _asked(project: Path) -> str:
    """What a build requires, in the one spelling of names."""
    tables, options = _readable(project)
    build = tables.get("build-system", {}).get("requires", ())
    script = project / "setup.py"
    older = script.read_text(encoding="utf-8", errors="replace") if script.is_file() else ""
    return " ".join((*map(str, build), options.get("setup_requires", ""), older)).lower().replace("_", "-")


def required_python(project: Path) -> str:
    """`requires-python` of a project; empty without one, and if its file cannot be read (its installation says why)."""
    tables, options = _readable(project)
    return str(tables.get("project", {}).get("requires-python") or options.get("python_requires", ""))


def discovers_packages(project: Path) -> bool:
    """Whether setuptools looks for packages beside pyproject.toml by itself."""
    tables, options = _readable(project)
    backend = tables.get("build-system", {}).get("build-backend", "setuptools")
    if not {"project", "build-system"} & set(tables) or not backend.startswith("setuptools"):
        return False
    named = {*tables.get("tool", {}).get("setuptools", {}), *options}
    script = project / "setup.py"
    by_script = script.is_file() and "packages" in script.read_text(encoding="utf-8", errors="replace")
    return not ((project / "src").is_dir() or {"packages", "py-modules", "py_modules"} & named or by_script)


def _readable(project: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The tables of pyproject.toml and the options of setup.cfg; what cannot be read is empty."""
    tables: dict[str, Any] = {}
    with contextlib.suppress(FtgateError):
        tables = {name: each for name, each in pyproject(project).items() if isinstance(each, dict)}
    older = configparser.RawConfigParser(strict=False)
    with contextlib.suppress(OSError, ValueError, configparser.Error):
        older.read(project / "setup.cfg", encoding="utf-8")
    return tables, dict(older["options"]) if older.has_section("options") else {}


def empty_submodules(project: Path) -> list[str]:
    """The submodules at or above a project's folder whose folders are empty, by their paths in the repository."""
    top = next((folder for folder in (project, *project.parents) if (folder / ".git").exists()), project)
    try:
        text = (top / ".gitmodules").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    paths = re.findall(r"^\s*path\s*=\s*(.+?)\s*$", text, re.MULTILINE)
    return [path for path in paths if (top / path).is_dir() and not any((top / path).iterdir())]
