"""Words for people: lists, shares, suggestions and placeholders; and what others wrote, made safe to print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

_PLACEHOLDER = r"\{([^\W\d]\w*)\}"


def placeholders(text: str) -> list[str]:
    """The names in braces of a text, known or not."""
    return re.findall(_PLACEHOLDER, text)


def expanded(words: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """The words with `{name}` replaced by its value, for the names in `values`; other braces stay as they are."""

    def value(match: re.Match[str]) -> str:
        return values.get(match[1], match[0])

    return [re.sub(_PLACEHOLDER, value, word) for word in words]


# ---- what others wrote


# OSC, DCS and their like; one that begins anew has no text of the first, so that a search never goes over it twice.
_STRINGS = r"(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
_SEQUENCES = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]"  # CSI, and what ESC alone begins
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_BIDI = r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # would reorder what stands beside them
_UNSAFE = f"{_STRINGS}|{_SEQUENCES}|{_CONTROLS}|{_BIDI}"
# `::add-mask::` after blanks alone and `##[group]` anywhere in a line are commands to the runners of GitHub, and
# `##vso[` to Azure's. A line may be wrapped at any blank.
_COMMAND = re.compile(r"(?<!\S)::(?=[A-Za-z])|(?<=#)#(?=\w*\[)")


def plain(text: str) -> str:
    """A text of a workload, git or an error without what would move the cursor, colour a terminal or reorder a line.

    Its line breaks are `\\n`, and tabs are spaces. Half of a surrogate pair is spelled with a backslash, and a command
    to the runner of a CI has one in it. Characters without a width stay: scripts and emoji need the joiners, and they
    move nothing.
    """
    if text.isascii() and text.isprintable():  # nearly all texts: a large report has some hundred for each cell
        return _COMMAND.sub(r"\\\g<0>", text) if "::" in text or "##" in text else text
    lines = re.sub("\r\n|\u2028|\u2029|\x85", "\n", text).replace("\t", "    ")
    return _COMMAND.sub(r"\\\g<0>", re.sub(_UNSAFE, "", lines).encode("utf-8", "backslashreplace").decode())


def takes_unicode(stream: object) -> bool:
    return str(getattr(stream, "encoding", None)).lower().startswith("utf")


# ---- words


COMMIT_DIGITS = 10
"""The digits of a commit that are shown."""
MOST_DIGITS = 12
"""More than the usual ones, at most, that a figure and its limit are written with."""


def apart(value: float, limit: float, written: Callable[[float, int], str]) -> tuple[str, str]:
    """A figure and the limit beside it, with as many digits as it takes to tell them apart, if they are not equal.

    `written(number, more)` is a number with `more` digits than usual. Rounding keeps an order, so texts that differ are
    in that of the numbers, and `+5 % is beyond +5 %` cannot be said.
    """
    texts = (written(value, 0), written(limit, 0))
    for more in range(1, MOST_DIGITS):
        if texts[0] != texts[1] or value == limit:
            break
        texts = (written(value, more), written(limit, more))
    return texts


def p_value(p: float, limit: float) -> str:
    """`p = 0.00021, limit 0.0016`: both with the same digits, so that none that is within its limit exceeds it."""
    return f"p = {p:.2g}, limit {limit:.2g}"


def percent(fraction: float) -> str:
    """`2 %` of 0.02."""
    return f"{100 * fraction:.6g} %"


def plural(count: int, word: str, words: str = "") -> str:
    """`1 core`, `2 cores`; `words` is a plural that does not end in `s` alone."""
    return f"{count} {word if count == 1 else words or f'{word}s'}"


def listed(words: Sequence[str], last: str = "or") -> str:
    """`a, b or c`."""
    texts = list(map(str, words))
    return f" {last} ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def first_of(words: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def split_nodeid(nodeid: str) -> tuple[str, str]:
    """`a.py::test_x[cell]` -> (`a.py::test_x`, `cell`); brackets in the path stay in the path.

    Before a cell has its test it is `[cell]`.
    """
    path, separator, rest = nodeid.partition("::") if "::" in nodeid else ("", "", nodeid)
    names, _, label = rest.partition("[")
    return path + separator + names, label.removesuffix("]")


def matches(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern with `*` and `?` says; brackets are plain text."""
    regex = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def did_you_mean(word: Any, known: Sequence[str]) -> str:
    """A hint in brackets where a known word is close, else nothing."""
    import difflib  # only a mistake needs it

    by_folded = {str(name).lower(): str(name) for name in known}
    close = difflib.get_close_matches(str(word).lower(), by_folded, 1)
    return f" (did you mean {by_folded[close[0]]!r}?)" if close else ""
