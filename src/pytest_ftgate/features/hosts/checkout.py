"""The project on a host of pytest-xdist: its commits are sent by git, and checked out in a folder of ours there.

`Shipment` is the controller's side, `serve` the host's; between them is a channel of execnet, which sends and receives
simple values, and raises OSError and EOFError once it is closed.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import filelock
import msgspec

from ...kit.errors import FtgateError
from ...kit.files import hide_from_git
from ...kit.git import DEEPEN, AgainstError, Repository, environment, git
from ...measure.machine import read_machine
from ...run.folder import RunFolder
from ...run.sides import worktrees
from ...targets import find

CHUNK_BYTES: Final = 1 << 20
_KEPT: Final = "refs/ftgate"
_INDEX_LOCK: Final = ".git/index.lock"


# ---- the controller's side


class Shipment:
    """The commits of a project that its hosts need: the working tree as it is, and the one that it is compared with."""

    def __init__(self, root: Path, folder: Path, reference: str) -> None:
        """`root` is the project's, `folder` its `.ftgate`, `reference` a commit or "". Raises FtgateError."""
        try:
            repository = Repository(root)
            if repository.commit("HEAD") is None:
                raise AgainstError(f"the repository of {root} has no commit yet; commit something first")
            if repository.shallow:
                raise AgainstError(f"a shallow clone cannot be sent: {DEEPEN}")
            places = folder.absolute() / "worktrees"
            hide_from_git(places)
            with filelock.FileLock(f"{places}.lock"):
                self.commit = worktrees.snapshot(repository, places)
            if inner := worktrees.of_tree(repository, "ls-tree", "-r", "-z", self.commit, cwd=repository.top):
                raise AgainstError(f"the submodule {inner[0].path} cannot be sent: vendor it, or measure without hosts")
            first = repository.git("rev-list", "--max-parents=0", "HEAD").split()[-1]
        except AgainstError as error:
            raise FtgateError(f"hosts get the project by git: {error}") from error
        self.repository = repository
        self.commits = [commit for commit in (self.commit, reference) if commit]
        self.project = f"{repository.top.name}-{first[:12]}"

    def deliver(self, channel: Any, have: Iterable[str], timeout_s: float) -> str:
        """Send what the host does not have; the folder of the checkout there. Raises FtgateError, EOFError."""
        known = [commit for commit in have if self.repository.commit(commit)]
        if set(self.commits) - set(known):
            # The objects of the commits without those that are reached from the known ones, as git's pack format.
            wanted = [*self.commits, *(f"^{commit}" for commit in known)]
            with tempfile.TemporaryFile() as pack:
                done = subprocess.run(
                    ["git", "pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset"],
                    cwd=self.repository.root,
                    env=environment(),
                    input="".join(f"{each}\n" for each in wanted).encode(),
                    stdout=pack,
                    stderr=subprocess.PIPE,
                )
                if done.returncode:
                    said = done.stderr.decode(errors="replace").strip()
                    raise FtgateError(f"hosts get the project by git: git pack-objects: {said}")
                pack.seek(0)
                while chunk := pack.read(CHUNK_BYTES):
                    channel.send(chunk)
        channel.send(b"")
        channel.send(self.commits)
        return str(answer(channel, timeout_s)["folder"])


def answer(channel: Any, timeout_s: float) -> dict[str, Any]:
    """What the host says next. Raises FtgateError with its error, EOFError if the connection is closed."""
    said: dict[str, Any] = channel.receive(timeout_s)
    if "error" in said:
        raise FtgateError(said["error"])
    return said


# ---- the host's side


def serve(channel: Any) -> None:
    """Check out what the controller sends, and keep this host for it until the channel is closed."""
    with contextlib.suppress(EOFError, OSError):  # the controller is gone
        try:
            machine = msgspec.json.encode(read_machine()).decode()
            channel.send({"version": version("pytest-ftgate"), "machine": machine})
            asked = channel.receive()
            cache = find.cache_folder()
            with _reserved(cache, asked["owner"]):
                folder = _checked_out(channel, cache / asked["project"])
                RunFolder(folder / asked["prefix"], "").prune()
                channel.send({"folder": str(folder)})
                while True:
                    channel.send(channel.receive())  # the controller asks whether this host is still there
        except (FtgateError, OSError) as error:
            channel.send({"error": str(error)})


def _checked_out(channel: Any, folder: Path) -> Path:
    """The folder, in which the controller's commits are, and the first of them is checked out."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").is_dir():
        git(folder, "init", "--quiet")
    repository = Repository(folder)
    (folder / _INDEX_LOCK).unlink(missing_ok=True)  # of a run that was killed
    channel.send({"have": repository.git("for-each-ref", "--format=%(objectname)", _KEPT).split()})
    # The objects of a pack; no chunk where the host has them all.
    pack = folder / ".git" / "ftgate.pack"
    try:
        with pack.open("w+b") as file:
            file.writelines(iter(channel.receive, b""))
            if file.tell():
                file.seek(0)
                command = ["git", "index-pack", "--stdin", "--fix-thin"]
                done = subprocess.run(
                    command, cwd=folder, env=environment(), stdin=file, capture_output=True, text=True
                )
                if done.returncode:
                    raise FtgateError(f"git index-pack: {done.stderr.strip()}")
    finally:
        pack.unlink()
    commits = channel.receive()
    for number, commit in enumerate(commits):
        repository.git("update-ref", f"{_KEPT}/{number}", commit)
    repository.git("checkout", "--quiet", "--force", "--detach", commits[0])
    repository.git("clean", "--quiet", "-d", "--force", "--force")
    return folder


@contextlib.contextmanager
def _reserved(cache: Path, owner: str) -> Iterator[None]:
    """Keep every other run of this user from this host. Raises FtgateError that says whose it is."""
    note = cache / "host.owner"
    try:
        with filelock.FileLock(cache / "host.lock", timeout=0):
            note.write_text(owner, encoding="utf-8")
            yield
    except filelock.Timeout:
        who = note.read_text(encoding="utf-8") if note.exists() else "another run"
        raise FtgateError(f"{who} measures there: wait for its end, or end it there") from None
