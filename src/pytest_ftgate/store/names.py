"""Names of the folders and files of baselines, and keys of their entries."""

from __future__ import annotations

import hashlib
import operator
import re
import urllib.parse
from collections.abc import Iterable

from ..kit import text
from ..kit.errors import FtgateError
from ..kit.text import split_nodeid
from .schema import LONGEST_NAME

SUFFIX = ".json"


def join_nodeid(test: str, label: str) -> str:
    """The node id of a test's cell: the inverse of `split_nodeid`."""
    return f"{test}[{label}]"


def matches(pattern: str, nodeid: str) -> bool:
    """Whether a CELL names a cell: its node id, its test's, or either with `*` and `?`; brackets are plain text."""
    return any(text.matches(pattern, name) for name in (nodeid, split_nodeid(nodeid)[0]))


def named(name: str, nodeids: Iterable[str]) -> list[str]:
    """The node ids (of cells or tests) that a person means by a name, in their order; none if there is no such name.

    A pattern, as in `matches`, or a whole name; else the end of one (`test_x`, `test_a.py::test_x[cell]`), the name of
    a file, or a part of a test's name. Raises FtgateError with all candidates where one of the latter fits several.
    """
    known = list(nodeids)
    if found := [nodeid for nodeid in known if matches(name, nodeid)]:
        return found
    head, _, rest = name.partition("[")
    test, label = split_nodeid(name) if "::" in head else (head, rest.removesuffix("]"))
    whole = {nodeid: split_nodeid(nodeid) for nodeid in known}
    tests = {nodeid: of for nodeid, (of, cell) in whole.items() if not (label and cell) or cell == label}
    files = {nodeid: of.partition("::")[0] for nodeid, of in tests.items()}
    for names, fits in ((tests, _ends_with), (files, _ends_with), (tests, operator.contains)) if test else ():
        candidates = sorted({of for of in names.values() if fits(of, test)})
        if len(candidates) > 1:
            raise FtgateError("\n  ".join([f"{name} fits several, name one of them:", *candidates]))
        if candidates:
            return [nodeid for nodeid, of in names.items() if of in candidates]
    return []


def _ends_with(whole: str, name: str) -> bool:
    """Whether a name is the end of a whole one, from a folder, file, class or function on; `.py` may be left out."""
    return re.search(rf"(^|/|::){re.escape(name)}(\.py)?$", whole) is not None


def entry_key(fingerprint: str, build: str) -> str:
    """`<fingerprint>/<build key>`, as it stands in a file."""
    return f"{fingerprint}/{build}"


def folder_name(test: str) -> str:
    """A readable relative path with `/`, unique for each test: `a/test_x.py/TestA.test_y`."""
    path, _, names = test.partition("::")
    # A name that starts with a dot would be hidden, or lead out of the folder.
    folders = [_shortened(re.sub(r"^\.", "%2E", _escaped(part, keep="."))) for part in path.split("/")]
    return "/".join([*folders, _shortened(".".join(_escaped(name) for name in names.split("::")))])


def file_name(recorded_at: str, commit: str, seed: int, fingerprint: str) -> str:
    """The name of a run's file: unique for each run, and in the order of time."""
    digest = hashlib.sha256("\n".join((recorded_at, commit, str(seed), fingerprint)).encode()).hexdigest()
    return f"{re.sub('[^0-9T]', '', recorded_at[:19])}-{digest[:8]}{SUFFIX}"


def is_recording(path: str) -> bool:
    return re.search(r"(^|/)\d{8}T\d{6}-[0-9a-f]{8}\.json$", path) is not None


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
