"""`ftgate merge`: one JUnit file out of those of several jobs, shards or workers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..errors import FtgateError

if TYPE_CHECKING:
    from junitparser import JUnitXml, TestCase, TestSuite

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

Name: TypeAlias = tuple[str, str]
XFAILED = ("pytest.xfail", "xfailed")
SHOWN = 5
"""Cases in several files that the error names."""


def register(subparsers: Subparsers) -> None:
    """Add `ftgate merge` to the command line."""
    parser = subparsers.add_parser(
        "merge",
        help="join JUnit files of shards or machines into one",
        description="Join JUnit files, of --ftgate-report junit:PATH or of pytest's --junit-xml, into one; totals are "
        "counted again. A case that was run in two of the files is an error; one that was skipped in some of them is "
        "taken from the file in which it was run.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a JUnit file")
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="the file to write")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the joined file and print its totals. Raises FtgateError."""
    merged = joined({path: _read(path) for path in args.files})
    written = BytesIO()
    merged.write(written)
    try:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_bytes(written.getvalue())
    except OSError as error:
        raise FtgateError(f"{args.output}: cannot be written: {error.strerror}") from None
    counts = ((merged.failures, "failed"), (merged.errors, "in error"), (merged.skipped, "skipped"))
    said = ", ".join(f"{count} {word}" for count, word in counts if count) or "none failed"
    print(f"{args.output}: {merged.tests} cases of {len(args.files)} files: {said}")
    return 0


def joined(files: dict[Path, JUnitXml]) -> JUnitXml:
    """All suites of all files, without cases that are skipped in one and run in another.

    Raises FtgateError for a case that was run in two.
    """
    from junitparser import JUnitXml

    ran: dict[Name, list[Path]] = {}
    for path, xml in files.items():
        for name in dict.fromkeys(_name(case) for suite in xml for case in suite if _ran(case)):
            ran.setdefault(name, []).append(path)
    _refuse({name: paths for name, paths in ran.items() if len(paths) > 1})
    merged, skipped = JUnitXml(), set[Name]()
    for path, xml in files.items():
        for suite in _suites(xml):
            for case in list(suite.iterchildren(suite.testcase)):
                name = _name(case)
                if not _ran(case) and (name in skipped or ran.get(name, [path]) != [path]):
                    suite._elem.remove(case._elem)  # `suite.remove` compares with every case
                elif not _ran(case):
                    skipped.add(name)
        for suite in xml:
            merged.append(suite)
    merged.update_statistics()
    return merged


def _suites(parent: Iterable[TestSuite]) -> Iterator[TestSuite]:
    """All suites, also those within others."""
    for suite in parent:
        yield suite
        yield from _suites(suite.testsuites())


def _ran(case: TestCase) -> bool:
    """Whether it was run: one that failed as expected was, although it counts as skipped."""
    return not case.is_skipped or any(each.type in XFAILED for each in case.result)


def _name(case: TestCase) -> Name:
    return case.classname or "", case.name or ""


def _refuse(twice: dict[Name, list[Path]]) -> None:
    if not twice:
        return
    lines = [f"  {'.'.join(filter(None, name))}: {', '.join(map(str, paths))}" for name, paths in twice.items()]
    more = [f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    said = "case was run in two files" if len(lines) == 1 else "cases were run in two files or more"
    head = f"{len(lines)} {said}: which result holds is not known; leave the other files out"
    raise FtgateError("\n".join([head, *lines[:SHOWN], *more]))


def _read(path: Path) -> JUnitXml:
    """The JUnit file at that path. Raises FtgateError, which names it."""
    from junitparser import JUnitXml, JUnitXmlError

    try:
        content = path.read_bytes()
    except OSError as error:
        raise FtgateError(f"{path}: cannot be read: {error.strerror}") from None
    if content.lstrip()[:1] in (b"{", b"["):
        raise FtgateError(
            f"{path} is JSON: ftgate merge joins JUnit files, which --ftgate-report junit:PATH or --junit-xml writes"
        )
    try:
        return JUnitXml.fromstring(content)
    except (SyntaxError, JUnitXmlError, ValueError) as error:
        hint = "was its run killed?" if not content.strip() else "write it again with --ftgate-report junit:PATH"
        raise FtgateError(f"{path} is not a JUnit file: {error}; {hint}") from None
