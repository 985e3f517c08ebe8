"""The changes that `make mutants` tries."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import mutants_of

SOURCE = """
from __future__ import annotations
LIMIT = 2 + 3

def f(a: int | None, b: int) -> int | None:
    return {}
"""


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        ("a < b", ["a <= b", "a >= b"]),
        ("0 < a <= b", ["0 <= a <= b", "0 >= a <= b", "0 < a < b", "0 < a > b"]),
        ("a == b", ["a != b"]),
        ("a is None", ["a is not None"]),
        ("a not in b", ["a in b"]),
        ("a - b", ["a + b"]),
        ("-a", ["+a"]),
        ("not a", ["not not a"]),
        ("a and b", ["a or b"]),
        ("max(a, b)", ["min(a, b)"]),
        ("[each for each in a if each > 0]", ["each >= 0", "each <= 0"]),
        ("lambda c: c * b", ["c / b"]),
        ("a.max(b)", []),
    ],
)
def test_each_operator_of_a_function_is_changed_and_nothing_else(
    tmp_path: Path, expression: str, changed: list[str]
) -> None:
    file = tmp_path / "source.py"
    file.write_text(SOURCE.format(expression))
    found = list(mutants_of(str(file)))
    assert [each.after for each in found] == changed
    assert {line for each in found for line in each.lines} <= {6}
    assert all("f" in {name.partition(".")[0] for name, *_ in each.codes} for each in found)
