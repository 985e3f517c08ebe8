"""State of each process and interpreter that runs workers: what `@test.shared` made, and what workers let through."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

shared: "Any" = None
without_shared: str = ""
"""The name of the test whose body was loaded last, if it has no `@test.shared`."""
adapter: str = ""
"""The file that has made the bodies of tests without a decorator."""
passed: "tuple[type[BaseException], ...]" = ()
"""Errors of a body in the main thread that its worker lets through: in a plain test run, those that end the run."""
