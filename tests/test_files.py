"""Files that are whole or not there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_ftgate.kit.files import content_of, write_whole


def test_two_threads_write_the_same_file_at_once(tmp_path: Path) -> None:
    file = tmp_path / "a"

    def meanwhile() -> Iterator[bytes]:
        yield b"first"
        with ThreadPoolExecutor(1) as pool:
            pool.submit(write_whole, file, [b"second"]).result()
        assert file.read_bytes() == b"second"
        yield b" whole"

    write_whole(file, meanwhile())
    assert file.read_bytes() == b"first whole"
    assert list(tmp_path.iterdir()) == [file]


def test_what_was_there_stays_where_writing_fails(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"before")

    def half() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(file, half())
    assert file.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_only_a_regular_file_is_read(tmp_path: Path, kind: str) -> None:
    """A device has no end, and a pipe waits for a writer."""
    file = tmp_path / "a"
    if kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    with pytest.raises(OSError, match="directory" if kind == "folder" else "it is not a regular file"):
        content_of(file)


def test_a_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"1234")
    assert content_of(file, 4) == b"1234"
    with pytest.raises(OSError, match="it is larger than 3 B"):
        content_of(file, 3)
