"""Describes a workload's error. It is imported for the first error, so it costs other workloads no memory."""

from __future__ import annotations

import os
import sys

from . import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
SHORT = 200
"""Characters of a value, or of an assert, that are shown."""
NAMES = 12
"""Names of an assert whose values are shown."""
REASON = 2000
DETAIL = 20_000
"""Characters of an error that are kept, of its reason and of all else: each cell may have one, in several forms."""


def headline(error: BaseException) -> str:
    """`raised ValueError: its first line`; of an assert without a text `assert total == 46 (total = 45)`."""
    text = _without_shared(error) or str(error).strip().partition("\n")[0]
    if not text:
        values = ", ".join(f"{name} = {value}" for name, value in _values(error))
        text = _failed_assert(error)[0][:SHORT] + (f" ({values})"[:SHORT] if values else "")
    return f"raised {type(error).__name__}" + (f": {text}" if text else "")


def detail(error: BaseException) -> str:
    """The workload's own traceback, the runner's frames left out, and the values of a failed assert."""
    import traceback

    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_code):
        trace = trace.tb_next
    written = traceback.TracebackException(type(error), error, trace)
    while len(written.stack) > 1 and _is_path_of_ours(written.stack[-1].filename):
        written.stack.pop()  # of a refusal: its last line is the workload's call
    values = [f"  {name} = {text}\n" for name, text in _values(error)]
    return "".join([*written.format(), _without_shared(error), *(["where\n"] if values else []), *values])


def capped(text: str, most: int) -> str:
    """The beginning and the end of a text of more than `most` characters, with its length.

    Half as much is left, so that what is said before it has room: it is not capped twice.
    """
    if len(text) <= most:
        return text
    return f"{text[: most // 4]} ... ({len(text):,} characters) ... {text[-most // 4 :]}"


def _without_shared(error: BaseException) -> str:
    """Why a body found None as the state that its workers share; "" of any other error."""
    test, trace = state.without_shared, error.__traceback__
    if not test or not isinstance(error, (AttributeError, TypeError)) or "NoneType" not in str(error):
        return ""
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if "worker" in frame.f_locals and "shared" in frame.f_code.co_names and not is_ours(frame.f_code):
            return f"worker.shared is None: {test} has no @{test}.shared"
    return ""


def is_ours(code: CodeType) -> bool:
    """Whether code is the runner's, or the adapter's."""
    return _is_path_of_ours(code.co_filename)


def _is_path_of_ours(path: str) -> bool:
    return path == state.adapter or os.path.abspath(path).startswith(HERE)


# ---- a failed assert


def _failed_assert(error: BaseException) -> tuple[str, list[Any], Any]:
    """The text of the assert that failed, its names and attributes as nodes, and its frame; "" where it is unknown.

    Also where pytest has rewritten the module: the error itself says more then.
    """
    trace = error.__traceback__ if isinstance(error, AssertionError) else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or "@pytest_ar" in trace.tb_frame.f_globals:
        return "", [], None
    import ast
    from linecache import getlines

    frame = trace.tb_frame
    source = "".join(getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        asserts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    except (SyntaxError, ValueError, RecursionError):
        return "", [], None
    around = [node for node in asserts if node.lineno <= trace.tb_lineno <= (node.end_lineno or node.lineno)]
    if not around:
        return "", [], None
    node = around[-1]
    named = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))]
    return " ".join((ast.get_source_segment(source, node) or "").split()), named, frame


def _values(error: BaseException) -> Iterator[tuple[str, str]]:
    """The names in a failed assert, and attributes of these, with their values; only `__repr__` is called."""
    _, nodes, frame = _failed_assert(error)
    values: dict[str, Any] = {}
    for node in nodes:
        name = node.id if hasattr(node, "id") else f"{getattr(node.value, 'id', '')}.{node.attr}"
        base, _, attribute = name.partition(".")
        if not base or (base not in frame.f_locals and base not in frame.f_globals):
            continue
        value = frame.f_locals[base] if base in frame.f_locals else frame.f_globals[base]
        if attribute:
            value = _attribute(value, attribute)
        if not callable(value) and not hasattr(type(value), "__get__") and not isinstance(value, type(sys)):
            values[name] = value
    # An object says less than its attributes.
    bases = {name.partition(".")[0] for name in values if "." in name}
    shown = [name for name in values if name not in bases]
    for name in shown[:NAMES]:
        yield name, _shown(values[name])
    texts = [values[name] for name in shown if type(values[name]) in (str, bytes)]
    if len(shown) == len(texts) == 2 and type(texts[0]) is type(texts[1]) and max(map(len, texts)) > SHORT:
        yield _difference(*texts)


def _difference(one: Any, other: Any) -> tuple[str, str]:
    """Where two long texts begin to differ, which their shortened forms may not show."""
    shortest = min(len(one), len(other))
    place = next((index for index in range(shortest) if one[index] != other[index]), shortest)
    around = slice(max(0, place - 20), place + 20)
    return f"from index {place}", f"{one[around]!r} and {other[around]!r}"


def _attribute(value: Any, name: str) -> Any:
    """An attribute without running code of the workload; a descriptor where that is not possible."""
    from inspect import getattr_static
    from types import MemberDescriptorType

    attribute = getattr_static(value, name, getattr_static)
    return attribute.__get__(value) if isinstance(attribute, MemberDescriptorType) else attribute


def _shown(value: Any) -> str:
    import reprlib

    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = SHORT
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = short.maxfrozenset = 12
    try:
        return short.repr(value)
    except Exception as error:
        return f"<a {type(value).__name__} whose repr raised {type(error).__name__}>"
