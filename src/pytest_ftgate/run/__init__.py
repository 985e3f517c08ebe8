"""One run: prepares targets and references, measures each test, judges it and makes the report.

Start at `session.py`.
"""

__all__ = ["acceptances", "config", "ending", "git", "history", "once", "privacy", "report_files", "session"]
