"""Names of the folders and files of baselines, and keys of their entries."""

from __future__ import annotations

import hashlib
import re
import urllib.parse

from .schema import LONGEST_NAME

SUFFIX = ".json"


def split_nodeid(nodeid: str) -> tuple[str, str]:
    """`a.py::test_x[cell]` -> (`a.py::test_x`, `cell`); brackets in the path stay in the path."""
    path, separator, rest = nodeid.partition("::")
    names, _, label = rest.partition("[")
    return path + separator + names, label.removesuffix("]")


def join_nodeid(test: str, label: str) -> str:
    """The node id of a test's cell: the inverse of `split_nodeid`."""
    return f"{test}[{label}]"


def entry_key(fingerprint: str, build: str) -> str:
    """`<fingerprint>/<build key>`, as it stands in a file."""
    return f"{fingerprint}/{build}"


def folder_name(test: str) -> str:
    """A readable relative path with `/`, unique for each test: `a/test_x.py/TestA.test_y`."""
    path, _, names = test.partition("::")
    folders = [_component(part, keep=".") for part in path.split("/")]
    return "/".join([*folders, _shortened(".".join(_escaped(name) for name in names.split("::")))])


def file_name(recorded_at: str, commit: str, seed: int, fingerprint: str) -> str:
    """The name of a run's file: unique for each run, and in the order of time."""
    digest = hashlib.sha256("\n".join((recorded_at, commit, str(seed), fingerprint)).encode()).hexdigest()
    return f"{re.sub('[^0-9T]', '', recorded_at[:19])}-{digest[:8]}{SUFFIX}"


def _component(part: str, keep: str) -> str:
    escaped = _escaped(part, keep)
    return _shortened("%2E" + escaped[1:] if escaped.startswith(".") else escaped)


def _escaped(part: str, keep: str = "") -> str:
    """ASCII letters, digits, `_`, `-` and `keep`; other characters as %XX, an empty text as `%`."""
    text = urllib.parse.quote(part, safe=keep, errors="surrogatepass").replace("~", "%7E")
    return (text if "." in keep else text.replace(".", "%2E")) or "%"


def _shortened(name: str) -> str:
    """A name that file systems accept; a long one ends in `~` and the hash of the whole name."""
    # All other `~` are escaped, so a shortened name never equals another test's name.
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 40]}~{hashlib.sha256(name.encode()).hexdigest()[:32]}"
