"""Which tests seem to run what has changed, by names alone: before anything is launched. An order, and no verdict."""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ...kit.files import content_of
from ...kit.git import Repository

MOST_FILES: Final = 200
"""Sources that are read; where more have changed, no order is known."""
MOST_NAMES: Final = 100
"""Names that are looked for at once: more are those of half a project."""


class _Definition(NamedTuple):
    """What a source binds to a name, and the names in there."""

    name: str
    text: str
    mentions: frozenset[str]


def distances(top: Path, commit: str) -> Mapping[tuple[str, str], int]:
    """By file and name of a function in the repository at `top`: through how many others it leads to what differs from
    a commit, if it seems to. Raises AgainstError, and OSError for a file that cannot be read.
    """
    repository = Repository(top)
    files = [name for name in repository.git("diff", "--name-only", "-z", commit, "--", "*.py").split("\0") if name]
    if len(files) > MOST_FILES:
        return {}
    # 1. What differs itself.
    found: dict[tuple[str, str], int] = {}
    for file in files:
        mine, other = _read(top / file), repository.git("show", f"{commit}:./{file}", allowed=(0, 128))
        forms = [_forms(_definitions(source)) for source in (mine, other.encode(errors="surrogateescape"))]
        found |= {(file, name): 0 for name in {**forms[0], **forms[1]} if forms[0].get(name) != forms[1].get(name)}
    # 2. What mentions that, and so on.
    sources: dict[str, list[_Definition]] = {}
    names, seen = {name for _, name in found}, set[str]()
    for distance in range(1, MOST_FILES):
        if not 0 < len(names) <= MOST_NAMES:
            break
        seen |= names
        words = [word for name in sorted(names) for word in ("-e", name)]
        listed = repository.git("grep", "-lzwF", *words, "--", "*.py", allowed=(0, 1))
        sources |= {
            file: _definitions(_read(top / file)) for file in listed.split("\0") if file and file not in sources
        }
        if len(sources) > MOST_FILES:
            break
        near = [(file, each.name) for file in sources for each in sources[file] if each.mentions & names]
        found = dict.fromkeys(near, distance) | found
        names = {name for _, name in near} - seen
    return found


def _read(path: Path) -> bytes:
    return content_of(path) if path.is_file() else b""


def _forms(definitions: Iterable[_Definition]) -> dict[str, list[str]]:
    forms = defaultdict(list)
    for each in definitions:
        forms[each.name].append(each.text)
    return forms


def _definitions(source: bytes) -> list[_Definition]:
    """What a source defines; nothing if this interpreter cannot read it."""
    try:
        with warnings.catch_warnings(action="ignore"):
            body = ast.parse(source).body
        return [_Definition(name, ast.dump(node), _mentions(node)) for name, node in _bound(body)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _bound(body: Iterable[ast.stmt], owner: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The names that statements bind, each with what it is bound to. Special methods are called by the class's name."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner if owner and node.name.startswith("__") else node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _bound(node.body, node.name)
            yield from ((node.name, each) for each in (*node.bases, *node.decorator_list))
        elif isinstance(node, ast.ImportFrom):
            yield from ((each.asname, each) for each in node.names if each.asname)
        else:
            bound = (each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
            yield from ((each.id, node) for each in bound)


def _mentions(node: ast.AST) -> frozenset[str]:
    found = set[str]()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
        elif isinstance(each, ast.alias):
            found.add(each.name)
    return frozenset(found)
