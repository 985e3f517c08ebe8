"""Reads one side of a comparison at the places that a check launch read, and the code of its Python sources."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Collection
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from ...kit.files import content_of
from ...runner import reads
from .code import Parts, parts

LARGE_BYTES: Final = 64 << 20
"""A larger file is not searched for paths of its side."""
ABSENT: Final = "absent"
IS_FOLDER: Final = "folder"
_AT_START: Final = ("*.pth", "*.start", "__editable__*", "*customize.py")  # .start: since 3.15, PEP 829
_NOT_LISTED: Final = ("__pycache__", ".git")
_LOADED: Final = 2
_ZEROS: Final = 8
"""A flag of a section of a shared library, and a kind of section that has no content in the file."""


class Place(NamedTuple):
    """A path below the `top` of a checkout or below its `environment`."""

    base: str
    path: str

    def __str__(self) -> str:
        return re.sub("^.*/site-packages/", "", self.path) or "its folder"


class SideFiles:
    """The files of one side: the top of its checkout, and the environment of one target."""

    def __init__(self, top: Path, environment: Path) -> None:
        self.bases = {"top": str(top), "environment": str(environment)}
        spelled = {(name, path) for name, base in self.bases.items() for path in (base, os.path.realpath(base))}
        self._spelled = sorted(spelled, key=lambda each: -len(each[1]))
        self._found: dict[tuple[str, Place], str] = {}

    def place_of(self, path: str) -> Place | None:
        """The place of an absolute path, also through a link; None outside, where both sides have the same."""
        for spelling in (path, os.path.realpath(path)):
            for name, base in self._spelled:
                if spelling == base or spelling.startswith(f"{base}/"):
                    return Place(name, spelling[len(base) + 1 :])
        return None

    def fingerprint(self, kind: str, place: Place) -> str:
        """A text of all that a reader of that kind sees there: if two texts are equal, it sees no difference.

        A path of this side within a file counts as the same path of the other.
        """
        if (kind, place) not in self._found:
            try:
                found = self._seen(kind, os.path.join(self.bases[place.base], place.path))
            except (FileNotFoundError, NotADirectoryError):
                found = ABSENT
            except OSError as error:
                found = f"error {error.errno}"
            self._found[kind, place] = found
        return self._found[kind, place]

    def _seen(self, kind: str, path: str) -> str:
        """The text of a path for a reader of that kind. Raises OSError."""
        if kind == reads.NAMES:
            return repr(sorted(name for name in os.listdir(path) if name not in _NOT_LISTED))
        if kind == reads.MODULE or (kind == reads.ASKED and path.endswith(".py")):
            return IS_FOLDER if stat.S_ISDIR(os.stat(path).st_mode) else "file"
        if kind == reads.FOLDER:
            # Names, kinds and sizes: a reader learns all of them without an event. The comments of a Python source are
            # part of its size, and count where it is read, if they do.
            listed = []
            with os.scandir(path) as entries:
                for each in entries:
                    if each.name not in _NOT_LISTED:
                        sized = not each.is_dir() and not each.name.endswith(".py")
                        size = each.stat(follow_symlinks=False).st_size if sized else 0
                        listed.append((each.name, each.is_dir(), size))
            return repr(sorted(listed))
        link = f"link to {self._neutral(os.fsencode(os.readlink(path)))!r} " if os.path.islink(path) else ""
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return link + IS_FOLDER
        if not stat.S_ISREG(status.st_mode):
            return f"{link}special {status.st_mode}"
        with open(path, "rb") as file:
            if status.st_size > LARGE_BYTES:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            else:
                content = file.read()
                if path.endswith(".dist-info/METADATA"):  # its body is the project's README
                    content = content.partition(b"\n\n")[0]
                digest = hashlib.sha256(self._neutral(loaded_part(content))).hexdigest()
        return f"{link}{digest} {'executable' if status.st_mode & stat.S_IXUSR else ''}"

    def parts(self, place: Place, ran: Collection[str] | None) -> Parts:
        """The executed code of a Python source, if there is one, when `ran` was called; None: all of it."""
        try:
            source = content_of(Path(self.bases[place.base], place.path))
        except OSError:
            source = b""
        return parts(self._neutral(source), ran)

    def _neutral(self, content: bytes) -> bytes:
        for name, path in self._spelled:
            content = content.replace(os.fsencode(path), name.encode())
        return content

    def differing_packages(self, other: SideFiles) -> dict[str, frozenset[str]]:
        """Distributions that are not the same, with their files; and files that run when an interpreter starts, bare.

        Distributions installed from a folder are left out: their files are compared where they are read.
        """
        mine, theirs = self._packages, other._packages
        return {
            name: frozenset(mine.get(name, ("",))[1:] + theirs.get(name, ("",))[1:])
            for name in sorted({*mine, *theirs})
            if mine.get(name) != theirs.get(name)
        }

    @cached_property
    def _packages(self) -> dict[str, tuple[str, ...]]:
        """The identity of each distribution and its files, by its name."""
        environment = Path(self.bases["environment"])
        sites = [*environment.glob("lib/python*/site-packages"), environment / "Lib/site-packages"]
        found = dict[str, tuple[str, ...]]()
        for distribution in metadata.distributions(path=[str(site) for site in sites]):
            if "file://" not in (distribution.read_text("direct_url.json") or ""):
                files = sorted((distribution.read_text("RECORD") or "").splitlines())
                kept = [line for line in files if not line.startswith("..") and ".dist-info/" not in line]
                digest = hashlib.sha256("\n".join(kept).encode()).hexdigest()
                names = (line.rsplit(",", 2)[0] for line in kept)
                found[distribution.metadata["Name"] or "?"] = (f"{distribution.version} {digest}", *names)
        for path in (path for site in sites for name in _AT_START for path in site.glob(name)):
            place = Place("environment", str(path.relative_to(environment)))
            found[path.name] = (self.fingerprint(reads.FILE, place),)
        return found


def loaded_part(content: bytes) -> bytes:
    """The part of a shared library that is loaded into memory, without its build id; other content stays as it is.

    The rest is debugging information, and both name the folder in which the library was built.
    """
    if content[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        return content
    try:
        (table,) = struct.unpack_from("<Q", content, 0x28)
        size, count, names_at = struct.unpack_from("<HHH", content, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", content, table + index * size) for index in range(count)]
        names = content[sections[names_at][4] :]
    except (struct.error, IndexError):
        return content
    parts = [content[:0x28]]
    for name_at, kind, flags, address, offset, length in sections:
        name = names[name_at:].split(b"\0", 1)[0]
        if flags & _LOADED and name != b".note.gnu.build-id":
            data = b"" if kind == _ZEROS else content[offset : offset + length]
            parts.append(b"%s %d %d %d %d " % (name, kind, flags, address, length) + data)
    return b"".join(parts)
