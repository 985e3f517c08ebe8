"""The end of a run, however it ends: what is missing is said, every file is written, then baselines are stored."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ..errors import FtgateError
from ..model import Report, first_line
from ..report import formats
from . import report_files
from .folder import LAST_RUN
from .privacy import without_home
from .session import Session

Write = Callable[[Report], object]


class Ending:
    """Writes what a run leaves. What cannot be written is one of `troubles`, and everything else still is.

    `files` are the writers by what they are called in an error; one that is added here is called at least once, and
    again with the report as it is then after baselines were stored or another file could not be written.
    """

    def __init__(self, session: Session, targets: Sequence[str], folder: Path) -> None:
        """`targets` are of the form `KIND:PATH`, their paths relative to `folder`."""
        self.session = session
        self.files: dict[str, Write] = {f".ftgate/{LAST_RUN}": self._keep}
        self.written: dict[str, Path] = {}
        self.troubles: list[str] = []
        for target in targets:
            self.files[target] = self._writer(target, folder)

    def finish(self, report: Report) -> Report:
        """Write the files, store the baselines; the report as it is then.

        The files come first: if the process dies while baselines are stored, the measurement is not lost.
        """
        report = self._write(report)
        stored = report
        try:
            stored = self.session.store(report)
        except Exception as error:  # noqa: BLE001 -- a failure is reported, whatever it is
            self._note("the baselines cannot be stored", error)
        if self.troubles or stored.updates != report.updates:
            stored = self._write(stored)
        return stored

    def _write(self, report: Report) -> Report:
        """Write every file, and again if one of them fails: then the others say so."""
        missing = report.partial
        while True:
            texts = (missing, *(first_line(trouble) for trouble in self.troubles if first_line(trouble) not in missing))
            report = msgspec.structs.replace(report, partial=without_home("; ".join(filter(None, texts))))
            if not self._failed(report):
                return report

    def _failed(self, report: Report) -> list[str]:
        """Write every file once; those that failed are not written again."""
        failed = []
        for name, write in self.files.items():
            try:
                write(report)
            except Exception as error:  # noqa: BLE001 -- the other files are still written
                self._note(f"{name} cannot be written", error)
                failed.append(name)
        for name in failed:
            del self.files[name]
        return failed

    def _note(self, what: str, error: Exception) -> None:
        """Name what failed; a mistake of ours comes with its traceback."""
        if isinstance(error, OSError) and error.strerror:
            name = str(error.filename2 or error.filename or "")  # of a renamed file where it was to go
            reason = error.strerror if name in what else f"{error.strerror}: {name}"
        elif isinstance(error, (FtgateError, OSError)):
            reason = str(error)
        else:
            reason = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        self.troubles.append(without_home(f"{what}: {reason}"))  # as the report says it: it is not said twice

    def _keep(self, report: Report) -> None:
        """A run that ended before its first result does not replace the last one that has some."""
        if report.tables:
            self.session.keep(formats.pieces("json", report))

    def _writer(self, target: str, folder: Path) -> Write:
        def write(report: Report) -> None:
            self.written[target] = report_files.write(target, report, folder)

        return write


def missing(stopped: str, planned: int, unasked: int, in_part: int, lost: int) -> str:
    """Why rows are missing: `interrupted: 3 of 12 cells were not run, 1 was measured in part`; empty if none is.

    Of `planned` cells these were never asked for, measured in part, and failed without a row. `stopped` says what ended
    the run.
    """
    counted = ((unasked, "not run"), (in_part, "measured in part"), (lost, "not measured because of an error"))
    parts: list[str] = []
    for number, what in counted:
        if number:
            of = "" if parts else f" of {planned} cells"
            parts.append(f"{number}{of} {'was' if number == 1 else 'were'} {what}")
    return ": ".join(filter(None, (stopped, ", ".join(parts))))
