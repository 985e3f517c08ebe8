"""JUnit files of several jobs, shards or workers, joined into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..kit.errors import FtgateError

if TYPE_CHECKING:
    from junitparser import JUnitXml, TestCase, TestSuite

Name: TypeAlias = tuple[str, str]
XFAILED = ("pytest.xfail", "xfailed")
CASES_SHOWN = 5
"""Cases in several files that the error names."""


def merge(paths: Sequence[Path], output: Path | None) -> int:
    """Write the joined file and print its totals. Raises FtgateError."""
    if output is None:
        raise FtgateError("JUnit files are joined into one: name it with -o OUT.xml")
    merged = joined_junit({path: _read(path) for path in paths})
    written = BytesIO()
    merged.write(written)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(written.getvalue())
    except OSError as error:
        raise FtgateError(f"{output}: cannot be written: {error.strerror}") from None
    counts = ((merged.failures, "failed"), (merged.errors, "in error"), (merged.skipped, "skipped"))
    said = ", ".join(f"{count} {word}" for count, word in counts if count) or "none failed"
    print(f"{output}: {merged.tests} cases of {len(paths)} files: {said}")
    return 0


def joined_junit(files: dict[Path, JUnitXml]) -> JUnitXml:
    """All suites of all files, without cases that are skipped in one and run in another.

    Raises FtgateError for a case that was run in two.
    """
    from junitparser import JUnitXml

    ran: dict[Name, list[Path]] = {}
    for path, xml in files.items():
        for name in dict.fromkeys(_case_name(case) for suite in xml for case in suite if _ran(case)):
            ran.setdefault(name, []).append(path)
    _refuse({name: paths for name, paths in ran.items() if len(paths) > 1})
    merged, skipped = JUnitXml(), set[Name]()
    for path, xml in files.items():
        for suite in _suites(xml):
            for case in list(suite.iterchildren(suite.testcase)):
                name = _case_name(case)
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


def _case_name(case: TestCase) -> Name:
    return case.classname or "", case.name or ""


def _refuse(twice: dict[Name, list[Path]]) -> None:
    if not twice:
        return
    lines = [f"  {'.'.join(filter(None, name))}: {', '.join(map(str, paths))}" for name, paths in twice.items()]
    more = [f"  and {len(lines) - CASES_SHOWN} more"] if len(lines) > CASES_SHOWN else []
    said = "case was run in two files" if len(lines) == 1 else "cases were run in two files or more"
    head = f"{len(lines)} {said}: which result holds is not known; leave the other files out"
    raise FtgateError("\n".join([head, *lines[:CASES_SHOWN], *more]))


def _read(path: Path) -> JUnitXml:
    """The JUnit file at that path. Raises FtgateError, which names it."""
    from junitparser import JUnitXml, JUnitXmlError

    try:
        content = path.read_bytes()
    except OSError as error:
        raise FtgateError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return JUnitXml.fromstring(content)
    except (SyntaxError, JUnitXmlError, ValueError) as error:
        hint = "was its run killed?" if not content.strip() else "write it again with --ftgate-report junit:PATH"
        raise FtgateError(f"{path} is not a JUnit file: {error}; {hint}") from None
