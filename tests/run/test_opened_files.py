"""What the kernel tells of files that are opened and changed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ftgate.features.unchanged.opened_files import FileEvent, OpenedFiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def test_what_any_process_opens_or_changes_below_the_folders_is_told(tmp_path: Path) -> None:
    roots = (tmp_path / "one", tmp_path / "two")
    for root in roots:
        (root / "deep").mkdir(parents=True)
        (root / "deep" / "a.txt").write_text("x")
    with OpenedFiles.watching(roots) as watch:
        assert watch is not None
        assert watch.events() == []
        libc = ctypes.CDLL(None)
        os.close(libc.open(os.fsencode(roots[0] / "deep" / "a.txt"), os.O_RDONLY))
        subprocess.run(["cat", roots[1] / "deep" / "a.txt"], check=True, capture_output=True)
        (roots[1] / "made.txt").write_text("x")
        os.listdir(roots[0] / "deep")
        events = watch.events()
        assert watch.events() == []
    assert events is not None
    assert events[:2] == [FileEvent(str(root / "deep" / "a.txt"), changed=False) for root in roots]
    assert {event.path for event in events if event.changed} == {str(roots[1] / "made.txt")}


def test_folders_of_bytecode_are_not_watched_and_no_descriptor_is_left(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    before = os.listdir("/proc/self/fd")
    with OpenedFiles.watching([tmp_path]) as watch:
        (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"")
        assert watch is not None
        assert watch.events() == []
    assert os.listdir("/proc/self/fd") == before


def test_more_events_than_the_kernel_keeps_are_no_events(tmp_path: Path) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for name in "ab":
        (tmp_path / name).touch()
    with OpenedFiles.watching([tmp_path]) as watch:
        assert watch is not None
        for number in range(most + 10):
            os.close(os.open(tmp_path / "ab"[number % 2], os.O_RDONLY))
        assert watch.events() is None


def test_where_a_folder_cannot_be_watched_there_is_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "walk", lambda root: iter([(str(root / "gone"), [], [])]))
    before = os.listdir("/proc/self/fd")
    with OpenedFiles.watching([tmp_path]) as watch:
        assert watch is None
    assert os.listdir("/proc/self/fd") == before
