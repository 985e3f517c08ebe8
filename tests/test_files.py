"""Files that are whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_ftgate.kit.files import write_whole


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
