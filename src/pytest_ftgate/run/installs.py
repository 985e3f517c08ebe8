"""What is installed for a side of a comparison, and what a test requires of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from .. import pythons
from ..pythons import Step, Steps
from .git import Checkout, mapped

EDITABLE = ("-e", "--editable")


def steps_of(steps: Steps, old_root: Path, checkout: Checkout | None, requires: tuple[str, ...] = ()) -> Steps:
    """Install steps of the project, or of a checkout of it, with a test's `requires` and the checkout's own last.

    An absolute path in the repository is moved to the checkout; a relative one that leads out of it is not. A version
    that the checkout asks for takes the place of whatever else installs the same distribution, and its extras.
    """
    if checkout is None:
        return _with_last(steps, requires)
    old_root = old_root.resolve()
    moved = tuple(
        step if pythons.is_command(step) else tuple(revision_argument(word, old_root, checkout) for word in step)
        for step in steps
    )
    if checkout.copied:
        moved = tuple(_as_copy(step, checkout) for step in moved)
    wanted = {_distribution(checkout.project, word) for word in checkout.install}
    extras = set[str]()
    kept = tuple(_without(step, wanted, checkout.project, extras) for step in _with_last(moved, requires))
    return _with_last(tuple(filter(None, kept)), tuple(_with_extras(word, extras) for word in checkout.install))


def described(checkout: Checkout, requires: Iterable[str]) -> str:
    """The label of a checkout, with what of a test's `requires` its version takes the place of."""
    wanted = {_distribution(checkout.project, word) for word in checkout.install}
    replaced = [word for word in requires if _distribution(checkout.project, word) in wanted]
    if not replaced:
        return checkout.label
    return f"{checkout.label} in place of {', '.join(str(Requirement(word)) for word in replaced)} (requires=)"


def _with_last(steps: Steps, words: tuple[str, ...]) -> Steps:
    """The steps with these words in the last one, which then resolves all at once; after a command in one more."""
    if not words:
        return steps
    if not steps or pythons.is_command(steps[-1]):
        return (*steps, words)
    return (*steps[:-1], (*steps[-1], *words))


def _as_copy(step: Step, checkout: Checkout) -> Step:
    """A step that installs no editable copy of `checkout.copied`."""
    following = (*step[1:], "")
    return tuple(
        word
        for word, value in zip(step, following, strict=True)
        if word not in EDITABLE or pythons.distribution_of(checkout.project, value) != checkout.copied
    )


def _without(step: Step, wanted: set[str], project: Path, extras: set[str]) -> Step:
    """A step without the words that install a distribution of `wanted`, whose extras are added to `extras`."""
    if not wanted or pythons.is_command(step):
        return step
    kept: list[str] = []
    for word in step:
        option = kept[-1] if kept and kept[-1].startswith("-") and "=" not in kept[-1] else ""
        name = pythons.distribution_of(project, word) if option else _distribution(project, word)
        if name not in wanted or option not in ("", *EDITABLE):
            kept.append(word)
            continue
        if option:
            kept.pop()
        extras.update(_extras(word))
    return tuple(kept)


def _distribution(project: Path, word: str) -> str:
    """The canonical name of what a word installs; "" for an option, or anything that does not say."""
    if word.startswith("-"):
        return ""
    if found := pythons.distribution_of(project, word):
        return found
    try:
        return str(canonicalize_name(Requirement(word).name))
    except InvalidRequirement:
        return ""


def _extras(word: str) -> Iterator[str]:
    _, bracket, rest = word.partition("[")
    if bracket:
        yield from (extra.strip() for extra in rest.partition("]")[0].split(","))


def _with_extras(word: str, extras: set[str]) -> str:
    if not extras:
        return word
    try:
        requirement = Requirement(word)
    except InvalidRequirement:
        return f"{word.partition('[')[0]}[{','.join(sorted({*extras, *_extras(word)}))}]"
    requirement.extras |= extras
    return str(requirement)


def revision_argument(argument: str, old_root: Path, checkout: Checkout) -> str:
    """An install argument of the old root, changed for another checkout."""
    option, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    place, bracket, extras = value.partition("[")
    url, scheme, path = place.rpartition("file://")
    if old_root == checkout.project or not path:
        return argument
    if Path(path).is_absolute():
        path = mapped(path, checkout.top(old_root), checkout.top(checkout.project))
    elif ".." in Path(path).parts and not (checkout.project / path).exists() and (old_root / path).exists():
        path = os.path.normpath(old_root / path)
    return f"{option}{equals}{url}{scheme}{path}{bracket}{extras}"
