"""The references that a run compares with: pairs of checkouts, tests in them, and paths as people know them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePath
from typing import NamedTuple

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ...kit.git import AgainstError, Repository, mapped, shown
from ...measure.round_plan import Listener
from ...model.report import Figures, SiteFigures
from ...model.spec import Spec
from ...targets import environments
from ...targets.environments import Step, Steps
from ..folder import RunFolder
from . import trees, worktrees
from .checkout import Checkout

INSTALLED = re.compile(r".*(?:^|/)(lib(?:64)?/python\d+\.\d+t?/.*)", re.DOTALL)


class Newest(NamedTuple):
    """The newest recording of a cell: its commit and tree, and where it is stored."""

    commit: str
    tree: str
    file: Path


class References:
    """Checks out what a run compares with, once."""

    def __init__(self, folder: RunFolder, against: str, listener: Listener) -> None:
        """`against` is the value of `--ftgate-against`, "" without it."""
        self.folder = folder
        self.against = against
        self.listener = listener
        self._pairs: dict[str, worktrees.Pair | AgainstError] = {}
        self._trees: dict[str, str] = {}
        self._cleaned: set[str] = set()

    def requested(self) -> worktrees.Pair:
        """Both sides of `--ftgate-against`. Raises AgainstError."""
        return self._pair("")

    def recorded(self, newest: Newest, test: str) -> worktrees.Pair:
        """The commit of the newest recording of a cell of this test, and the working tree. Raises AgainstError.

        Of an edited tree it is the commit that brought the recording's file, if that has the tree. NothingToCompare
        where the working tree has the files that were recorded.
        """
        commit, tree, file = newest
        now = self.tree
        if now and now == self._tree(commit):
            raise worktrees.NothingToCompare(f"the files are those of {shown(commit)}")
        if now and now == tree:
            raise worktrees.NothingToCompare("the files are those that were recorded")
        try:
            if not commit:
                raise AgainstError("the baseline names no commit: it was recorded outside of git")
            pair = self._pair(commit)
            trouble = AgainstError(f"{pair.reference.label} has no such test")
            if not worktrees.lacks(pair.reference, test):
                return pair
        except AgainstError as error:
            trouble = error
        brought = worktrees.introduced(self.folder.root, file) if tree else ""
        if not brought or self._tree(brought) != tree:
            raise trouble
        return self._pair(brought)

    @cached_property
    def tree(self) -> str:
        """That of the working tree, without recordings, when it was first asked for; empty without git."""
        return trees.working_tree(self.folder.root, self.folder.path)

    def _tree(self, commit: str) -> str:
        """That of a commit; empty if it is not here."""
        if commit not in self._trees:
            self._trees[commit] = ""
            with suppress(AgainstError):
                self._trees[commit] = trees.tree_of(Repository(self.folder.root), commit)
        return self._trees[commit]

    def clean(self, pair: worktrees.Pair) -> None:
        """Remove what earlier runs left in both checkouts, once in a process. Only for the run that measures."""
        for checkout in (pair.reference, pair.changed):
            if checkout.root not in self._cleaned:
                self._cleaned.add(checkout.root)
                worktrees.remove_extras(self.folder.root, checkout, self.folder.path / "envs")

    def prune(self) -> None:
        """At the end of a run: remove worktrees that no run has used for long."""
        if any(isinstance(each, worktrees.Pair) and each.changed.commit for each in self._pairs.values()):
            worktrees.prune(self.folder.root, self.folder.path)

    def relocated(self, spec: Spec, checkout: Checkout) -> Spec:
        """A test as it is in a checkout."""
        return worktrees.relocated(spec, self.folder.root, checkout)

    def hint(self, detail: str, checkout: Checkout | None) -> str:
        """A possible cause of a workload's error, in a checkout or the project; empty if none is known."""
        rebuilt = environments.rebuild_hint(detail)
        if rebuilt or checkout is None:
            return rebuilt
        return worktrees.ignored_hint(detail, checkout, self.folder.root)

    def shown(self, figures: Figures) -> Figures:
        """Figures with the files of lock sites as people know them: below the root, else from the library on."""
        replace, named = msgspec.structs.replace, self._named

        def of_site(site: SiteFigures) -> SiteFigures:
            holders = (
                replace(each, file=named(each.file), waiter_file=named(each.waiter_file)) for each in site.holders
            )
            return replace(site, file=named(site.file), holders=tuple(holders))

        return replace(figures, sites=tuple(map(of_site, figures.sites)))

    def _named(self, file: str) -> str:
        for pair in self._pairs.values():
            if isinstance(pair, worktrees.Pair):
                file = mapped(file, pair.changed.project, self.folder.root)
        return shown_path(file, self.folder.root)

    def _pair(self, commit: str) -> worktrees.Pair:
        """Both sides of a commit, or for "" of what was requested. Raises AgainstError."""
        if commit not in self._pairs:
            self.listener.advance(shown(commit) if commit else self.against, "checking out", 0, 0, None)
            root, folder = self.folder.root, self.folder.path
            try:
                if commit:
                    self._pairs[commit] = pair = worktrees.commit_pair(root, commit, folder)
                    self.clean(pair)
                else:
                    self._pairs[commit] = worktrees.pair(root, self.against, folder)
            except AgainstError as error:
                self._pairs[commit] = error
        found = self._pairs[commit]
        if isinstance(found, AgainstError):
            raise found
        return found


def shown_path(file: str, root: PurePath | None) -> str:
    """A source file's name as people know it: with `/`, and without absolute paths of this machine.

    For an installed file, the part from its last `lib/pythonX.Y`; else the path relative to `root` if it is below it;
    else the name alone. An unknown file ("") stays empty.
    """
    if not file:
        return ""
    path = PurePath(file)
    nowhere = not (path.is_absolute() or ".." in path.parts)
    if root is not None and path.is_relative_to(root):
        path, nowhere = path.relative_to(root), True
    if installed := INSTALLED.search(path.as_posix()):
        return installed[1]
    return path.as_posix() if nowhere else path.name


# ---- what is installed for a side of a comparison, and what a test requires of it

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
        step if environments.is_command(step) else tuple(revision_argument(word, old_root, checkout) for word in step)
        for step in steps
    )
    if not (checkout.install or checkout.copied):
        return _with_last(moved, requires)
    # Without what the checkout's own take the place of, and with no editable install of what it has as a copy.
    wanted, extras = {_distribution(checkout.project, word) for word in checkout.install}, set[str]()
    left: list[Step] = []
    for step in _with_last(moved, requires):
        kept: list[str] = []
        for word in step:
            option = kept[-1] if kept and kept[-1].startswith("-") and "=" not in kept[-1] else ""
            name = environments.distribution_of(checkout.project, word) if option else ""
            name = name if option or environments.is_command(step) else _distribution(checkout.project, word)
            replaced = name != "" and name in wanted and option in ("", *EDITABLE)
            if option in EDITABLE and (replaced or name == checkout.copied != ""):
                kept.pop()
            if replaced:
                extras.update(_extras(word))
            else:
                kept.append(word)
        left += [tuple(kept)] if kept else []
    return _with_last(tuple(left), tuple(_with_extras(word, extras) for word in checkout.install))


def described(checkout: Checkout, requires: Iterable[str]) -> str:
    """The label of a checkout, with what of a test's `requires` its version takes the place of."""
    wanted = {_distribution(checkout.project, word) for word in checkout.install}
    replaced = [word for word in requires if _distribution(checkout.project, word) in wanted]
    if not replaced:
        return checkout.label
    return f"{checkout.label} in place of {', '.join(str(Requirement(word)) for word in replaced)} (packages=)"


def _with_last(steps: Steps, words: tuple[str, ...]) -> Steps:
    """The steps with these words in the last one, which then resolves all at once; after a command in one more."""
    if not words:
        return steps
    if not steps or environments.is_command(steps[-1]):
        return (*steps, words)
    return (*steps[:-1], (*steps[-1], *words))


def _distribution(project: Path, word: str) -> str:
    """The canonical name of what a word installs; "" for an option, or anything that does not say."""
    if word.startswith("-"):
        return ""
    if found := environments.distribution_of(project, word):
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


# ---- the version that both sides of a comparison are built as: that of the newest tag of the project's history
#
# setuptools-scm would write another one into each side's files, and nothing would be unchanged.


def variables(root: Path, project: Path) -> dict[str, str]:
    """The environment variables by which a build of `project`, a checkout of the one at `root`, is of that version."""
    variable = environments.version_variable(project)
    if not variable:
        return {}
    words = ("describe", "--tags", "--abbrev=0", "--match=*[0-9]*")
    found = re.search(r"\d+(\.\d+)*", Repository(root).git(*words, allowed=(0, 128)))
    return {variable: found[0] if found else "0"}
