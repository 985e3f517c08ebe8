"""The way of a project to a host: what is sent, what stands there then, and what cannot be sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import project as projects
import pytest

from pytest_ftgate.features.hosts.checkout import Shipment, answer, serve
from pytest_ftgate.kit.errors import FtgateError

CLOSED = object()


class End:
    """One end of a channel in this process."""

    def __init__(self, inbox: Queue[Any], outbox: Queue[Any]) -> None:
        self.inbox, self.outbox = inbox, outbox
        self.sent_bytes = 0

    def send(self, item: object) -> None:
        self.sent_bytes += len(item) if isinstance(item, bytes) else 0
        self.outbox.put(item)

    def receive(self, timeout: float | None = None) -> Any:
        item = self.inbox.get(timeout=timeout or 60)
        if item is CLOSED:
            raise EOFError
        return item


@contextmanager
def host() -> Iterator[End]:
    """The controller's end of a channel to a host."""
    there: Queue[Any] = Queue()
    here: Queue[Any] = Queue()
    serving = threading.Thread(target=serve, args=(End(there, here),))
    serving.start()
    end = End(here, there)
    try:
        yield end
    finally:
        end.send(CLOSED)
        serving.join()


def delivered(shipment: Shipment, end: End) -> Path:
    assert "fingerprint" in answer(end, 60)["machine"]
    end.send({"project": shipment.project, "prefix": shipment.repository.prefix, "owner": "the first run"})
    return Path(shipment.deliver(end, answer(end, 60)["have"], 60))


Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Git in a project with one commit."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("one = 1\n" * 1000)
    projects.commit(project, "one")
    return partial(projects.git, project)


@pytest.fixture
def project(git: Git, tmp_path: Path) -> Path:
    return tmp_path / "project"


def shipment_of(project: Path, reference: str = "") -> Shipment:
    return Shipment(project, project / ".ftgate", reference)


def test_the_working_tree_is_there_as_it_is_and_the_reference_too(project: Path, git: Git) -> None:
    first = git("rev-parse", "HEAD")
    git("commit", "--quiet", "--allow-empty", "-m", "two")
    (project / "a.py").write_text("two = 2\n")
    (project / "new.py").write_text("new = 1\n")
    before = git("status", "--porcelain")
    shipment = shipment_of(project, first)
    with host() as end:
        folder = delivered(shipment, end)
    assert folder.name == f"project-{first[:12]}"
    assert (folder / "a.py").read_text() == "two = 2\n"
    assert (folder / "new.py").exists()
    assert projects.git(folder, "cat-file", "-t", first) == "commit"
    assert git("status", "--porcelain").splitlines() == [*before.splitlines(), *([])]
    assert git("for-each-ref", "refs/ftgate") == "", "nothing of the user's repository is written"


def test_what_the_host_has_is_not_sent_again(project: Path, git: Git) -> None:
    with host() as end:
        folder = delivered(shipment_of(project), end)
        all_bytes = end.sent_bytes
    (folder / "a.py").write_text("edited there\n")
    (folder / "left.py").write_text("")
    (folder / ".git" / "index.lock").write_text("")  # of a run that was killed
    with host() as end:
        assert delivered(shipment_of(project), end) == folder
        assert end.sent_bytes == 0 < all_bytes
    assert (folder / "a.py").read_text() == (project / "a.py").read_text()
    assert not (folder / "left.py").exists()
    (project / "b.py").write_text("b = 1\n")
    with host() as end:
        delivered(shipment_of(project), end)
        assert end.sent_bytes > 0
    assert (folder / "b.py").exists()


def test_a_host_is_one_run_s_at_a_time(project: Path) -> None:
    shipment = shipment_of(project)
    with host() as first:
        delivered(shipment, first)
        with host() as second, pytest.raises(FtgateError, match="the first run measures there: wait for its end"):
            delivered(shipment, second)
    with host() as third:
        delivered(shipment, third)


def test_a_connection_that_ends_leaves_the_host_free(project: Path) -> None:
    shipment = shipment_of(project)
    with host() as end:
        answer(end, 60)
        end.send({"project": shipment.project, "prefix": "", "owner": "cut off"})
        answer(end, 60)
        end.send(b"PACK")
    with host() as end:
        assert (delivered(shipment, end) / "a.py").exists()


def test_a_pack_that_is_damaged_is_an_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipment = shipment_of(project)
    with host() as end:
        put = end.outbox.put
        monkeypatch.setattr(end.outbox, "put", lambda item: put(item[::-1] if isinstance(item, bytes) else item))
        with pytest.raises(FtgateError, match="git index-pack: "):
            delivered(shipment, end)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda git, folder: git("checkout", "--quiet", "--orphan", "empty"), "has no commit yet"),
        (lambda git, folder: (folder / ".git" / "shallow").write_text(git("rev-parse", "HEAD") + "\n"), "a shallow"),
        (
            lambda git, folder: git("update-index", "--add", "--cacheinfo", f"160000,{git('rev-parse', 'HEAD')},lib"),
            "the submodule lib cannot be sent",
        ),
    ],
    ids=["empty", "shallow", "submodule"],
)
def test_what_cannot_be_sent_is_said(project: Path, git: Git, made: Callable[[Git, Path], object], said: str) -> None:
    made(git, project)
    with pytest.raises(FtgateError, match=said):
        shipment_of(project)


def test_a_project_outside_of_git_cannot_be_sent(tmp_path: Path) -> None:
    with pytest.raises(FtgateError, match="hosts get the project by git: "):
        shipment_of(tmp_path)
