"""One run: prepares targets and references, measures each test, judges it and makes the report.

Start at `session.py`.
"""

__all__ = [
    "acceptances",
    "assembly",
    "config",
    "ending",
    "git",
    "history",
    "host_checkout",
    "once",
    "report_files",
    "session",
]
