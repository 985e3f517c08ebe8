"""One run: prepares targets and references, measures each test, judges it and makes the report.

Start at `session.py`.
"""

__all__ = [
    "acceptances",
    "assembly",
    "base",
    "config",
    "ending",
    "git",
    "history",
    "host_checkout",
    "libraries",
    "once",
    "others",
    "privacy",
    "report_files",
    "session",
    "trial",
]
