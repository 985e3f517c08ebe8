"""The references that a run compares with: pairs of checkouts, tests in them, and paths as people know them."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

import msgspec

from .. import pythons
from ..files import write_whole
from ..judge.judge import ComparedWith
from ..measure.run_context import Listener
from ..model import Figures, Spec
from . import git, mending, worktrees
from .folder import RunFolder, decoded

INSTALLED = re.compile(r".*(?:^|/)(lib(?:64)?/python\d+\.\d+t?/.*)", re.DOTALL)


class References:
    """Checks out what a run compares with, once for all processes of the run."""

    def __init__(self, folder: RunFolder, against: str, listener: Listener) -> None:
        """`against` is the value of `--ftgate-against`, "" without it."""
        self.folder = folder
        self.against = against
        self.listener = listener
        self._pairs: dict[str, worktrees.Pair | git.AgainstError] = {}
        self._cleaned: set[str] = set()

    def requested(self) -> worktrees.Pair:
        """Both sides of `--ftgate-against`. Raises AgainstError."""
        return self._pair(self.against, None, "")

    def recorded(self, compared_with: ComparedWith, test: str) -> worktrees.Pair:
        """The commit of a stored baseline of this test, and the working tree. Raises AgainstError."""
        pair = self._pair(f"{compared_with.commit} {compared_with.baseline}", compared_with, test)
        self.clean(pair)
        return pair

    def clean(self, pair: worktrees.Pair) -> None:
        """Remove what earlier runs left in both checkouts, once in a process. Only for the run that measures."""
        for checkout in (pair.reference, pair.changed):
            if checkout.root not in self._cleaned:
                self._cleaned.add(checkout.root)
                mending.remove_extras(self.folder.root, checkout, self.folder.path / "envs")

    def relocated(self, spec: Spec, checkout: git.Checkout) -> Spec:
        """A test as it is in a checkout, which counts as in use from now on."""
        worktrees.mark_used(checkout)
        return worktrees.relocated(spec, self.folder.root, checkout)

    def hint(self, detail: str, checkout: git.Checkout | None) -> str:
        """A possible cause of a workload's error, in a checkout or the project; empty if none is known."""
        rebuilt = pythons.rebuild_hint(detail, self.folder.root)
        if rebuilt or checkout is None:
            return rebuilt
        return worktrees.ignored_hint(detail, checkout, self.folder.root)

    def shown(self, figures: Figures) -> Figures:
        """Figures with the files of lock sites as people know them: below the root, else from the library on."""
        replace = msgspec.structs.replace
        return replace(figures, sites=tuple(replace(site, file=self._named(site.file)) for site in figures.sites))

    def _named(self, file: str) -> str:
        for pair in self._pairs.values():
            if isinstance(pair, worktrees.Pair):
                file = git.mapped(file, pair.changed.project, self.folder.root)
        return portable(file, self.folder.root)

    def _pair(self, key: str, compared_with: ComparedWith | None, test: str) -> worktrees.Pair:
        if key not in self._pairs:
            named = self.against if compared_with is None else git.shown(compared_with.commit)
            self.listener.advance(named, "checking out", 0, 0, None)
            try:
                self._pairs[key] = self._shared_pair(key, compared_with, test)
            except git.AgainstError as error:
                self._pairs[key] = error
        pair = self._pairs[key]
        if isinstance(pair, git.AgainstError):
            raise pair
        return pair

    def _shared_pair(self, key: str, compared_with: ComparedWith | None, test: str) -> worktrees.Pair:
        """The same worktrees for all processes of a run, whatever is edited meanwhile."""
        with self.folder.locked("pair"):
            shared = self.folder.shared("pair", key)
            if shared.exists():
                return decoded(shared, worktrees.Pair)
            pair = self._checked_out(compared_with, test)
            write_whole(shared, [msgspec.json.encode(pair)])
        return pair

    def _checked_out(self, compared_with: ComparedWith | None, test: str) -> worktrees.Pair:
        """The recorded commit, or the one that brought the baseline's file if the recorded one cannot be used.

        A new test, or uncommitted changes, are recorded first and then committed together with the baseline.
        """
        root, folder = self.folder.root, self.folder.path
        if compared_with is None:
            return worktrees.pair(root, self.against, folder)
        try:
            pair = worktrees.commit_pair(root, compared_with.commit, folder)
            if not worktrees.lacks(pair.reference, test):
                return pair
            trouble = git.AgainstError(f"{pair.reference.label}, at which it was recorded, has no such test")
        except worktrees.NothingToCompare:
            raise
        except git.AgainstError as error:
            trouble = error
        brought = worktrees.introduced(root, Path(compared_with.file))
        if not brought or brought == compared_with.commit:
            raise trouble
        pair = worktrees.commit_pair(root, brought, folder)
        if worktrees.lacks(pair.reference, test):
            raise trouble
        return pair


def portable(file: str, root: PurePath | None) -> str:
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
