"""The distribution's source package of CPython: download it from a mirror and verify its checksum."""

from __future__ import annotations

import hashlib
import re
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ..errors import FtgateError
from ..model import Struct

APT: Final = Path("/etc/apt")
TIMEOUT_S: Final = 30.0
"""For an answer, and for each part of it."""
DOWNLOAD_S: Final = 900.0
MOST_BYTES: Final = 128 << 20
"""A download ends at these; the packages have 23 MB, and a mirror may send bytes one by one, or for ever."""
_CHUNK: Final = 1 << 18

OnProgress = Callable[[str], None]
"""Called with one line about the current step."""


class SourcePackage(Struct, frozen=True):
    """One upstream tarball in the distribution's pool; `folder` is its top folder."""

    version: str
    pool: str
    sha256: str
    folder: str


class SourceUnavailable(FtgateError):
    """No mirror has the source package, or its checksum is wrong."""


KNOWN: Final = (
    SourcePackage(
        version="3.14.7",
        pool="pool/main/p/python3.14/python3.14_3.14.7.orig.tar.xz",
        sha256="3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81",
        folder="Python-3.14.7",
    ),
    SourcePackage(
        version="3.13.5",
        pool="pool/main/p/python3.13/python3.13_3.13.5.orig.tar.xz",
        sha256="93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640",
        folder="Python-3.13.5",
    ),
)


def known_package(version: str) -> SourcePackage | None:
    """The package for a version prefix (`3.14`, `3.14.7`); None if none is known."""
    for package in KNOWN:
        if package.version == version or package.version.startswith(f"{version}."):
            return package
    return None


def mirrors(apt: Path = APT) -> tuple[str, ...]:
    """The package mirrors in this machine's apt configuration, in its order.

    Security archives, and archives without a `main` component, are left out.
    """
    uris: list[str] = []
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    for path in files:
        if path.suffix not in (".list", ".sources") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        entries = _deb822(text) if path.suffix == ".sources" else _one_line(text)
        for uri, suites, components in entries:
            security = "security" in uri or all("security" in suite for suite in suites)
            if "main" in components and not security and uri.startswith(("http://", "https://", "file:")):
                uris.append(uri.rstrip("/"))
    return tuple(dict.fromkeys(uris))


def fetch(package: SourcePackage, folder: Path, progress: OnProgress, apt: Path = APT) -> Path:
    """The verified tarball of `package` in `folder`, downloaded if needed. Raises SourceUnavailable."""
    tarball = folder / package.pool.rpartition("/")[2]
    if tarball.is_file() and _sha256(tarball) == package.sha256:
        return tarball
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    for mirror in mirrors(apt):
        failure = _download(f"{mirror}/{package.pool}", package, tarball, progress)
        if failure is None:
            return tarball
        failures.append(failure)
    tried = "; ".join(failures) or "no package mirror is set up on this machine (apt's sources)"
    raise SourceUnavailable(
        f"the source package of CPython {package.version} is not available: {tried}. "
        f"Connect this machine to a network, or put the file at {tarball}"
    )


def extract(tarball: Path, into: Path) -> None:
    """Unpack a verified tarball."""
    with tarfile.open(tarball) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(into, filter="data")
        else:  # the first releases of Python 3.11; the content is known by its checksum
            archive.extractall(into)


def _download(url: str, package: SourcePackage, tarball: Path, progress: OnProgress) -> str | None:
    """Download to `tarball`; the reason if it fails."""
    unfinished = tarball.with_name(tarball.name + ".part")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer, unfinished.open("wb") as file:
            total, ends_s = int(answer.headers.get("Content-Length") or 0), time.monotonic() + DOWNLOAD_S
            while chunk := answer.read1(_CHUNK):  # what is there: `read` waits until all of it has come
                file.write(chunk)
                if max(total, file.tell()) > MOST_BYTES:
                    return f"the file of a mirror has more than {MOST_BYTES >> 20} MiB"
                if time.monotonic() > ends_s:
                    return f"a mirror did not send the file within {DOWNLOAD_S:g} s"
                size = f" of {total / 2**20:.0f}" if total else ""
                progress(f"downloading the source package: {file.tell() / 2**20:.1f}{size} MiB")
        actual = _sha256(unfinished)
        if actual != package.sha256:
            return f"the file of a mirror has the SHA-256 {actual}, not {package.sha256}"
        unfinished.replace(tarball)
        return None
    except urllib.error.HTTPError as error:
        return f"a mirror answered {error.code} for {package.pool}"
    except (OSError, ValueError) as error:
        return f"a mirror could not be reached ({error})"
    finally:
        unfinished.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _one_line(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """(URI, suites, components) of each `deb [options] URI suite component...` line."""
    for line in text.splitlines():
        match = re.match(r"\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+([^#]*)", line)
        if match:
            yield match[1], [match[2]], match[3].split()


def _deb822(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """(URI, suites, components) of each enabled stanza of a deb822 file."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
        folded = re.sub(r"\n[ \t]+", " ", stanza)
        fields = {
            name.strip().lower(): value.split()
            for name, colon, value in (line.partition(":") for line in folded.splitlines())
            if colon
        }
        if fields.get("enabled", ["yes"])[:1] in (["no"], ["false"]):
            continue
        for uri in fields.get("uris", []):
            yield uri, fields.get("suites", []), fields.get("components", [])
