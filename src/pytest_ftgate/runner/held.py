"""Held iterations: workers call the body until all of them stop after the same number of calls.

The same number, since a call may wait for calls of other workers. They share words of memory: a list for threads, as
reading a file would let go of the GIL, whose waits are sampled, and a file for all others. Word 0 is that number and
whether it is final, word 1 + i how many calls worker i has begun or is about to begin. Each word has one writer.
"""

from __future__ import annotations

import os
import time

from .clock import now_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


ENDLESS = 1 << 61
PAUSE_S = 0.001
WORD_BYTES = 8


class FileWords:
    """Words in a file, each read and written at once."""

    def __init__(self, path: str, count: int = 0) -> None:
        """Open the file; with a `count`, make it, with the words of an iteration without an end."""
        self.path = path
        self.file = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if count else 0), 0o600)
        for place, word in enumerate(first_words(count)):
            self[place] = word

    def __getitem__(self, place: int) -> int:
        return int.from_bytes(os.pread(self.file, WORD_BYTES, place * WORD_BYTES), "little")

    def __setitem__(self, place: int, word: int) -> None:
        os.pwrite(self.file, word.to_bytes(WORD_BYTES, "little"), place * WORD_BYTES)

    def close(self) -> None:
        os.close(self.file)


def first_words(workers: int) -> list[int]:
    """The words of an iteration before anything has ended it."""
    return [ENDLESS << 1, *[0] * workers] if workers else []


class CallTally:
    """A worker's part: how many calls it may begin."""

    def __init__(self, words: list[int] | FileWords, index: int) -> None:
        self.words = words
        self.place = 1 + index

    def allowed(self, calls: int, batch: int) -> int:
        """How many more calls, at most `batch`, after `calls`; 0 at the end, which it may have to wait for."""
        while True:
            # Announced before the number is read: whoever sets it sees who may have missed it.
            self.words[self.place] = calls + batch
            last, final = divmod(self.words[0], 2)
            more = max(0, min(batch, last - calls))
            if more < batch:
                self.words[self.place] = calls + more
            if more or final:
                return more
            time.sleep(PAUSE_S)


class Stop:
    """Stops the workers 0 to `workers` - 1 after the same number of calls."""

    def __init__(self, words: list[int] | FileWords, workers: int, pause: Callable[[float], bool]) -> None:
        """`pause` waits for so many seconds; whether a worker has ended by itself meanwhile."""
        self.words = words
        self.workers = workers
        self.pause = pause

    def begun(self) -> list[int]:
        return [self.words[1 + index] for index in range(self.workers)]

    def wait_for_first(self) -> None:
        while min(self.begun()) < 2 and not self.pause(PAUSE_S):
            pass

    def after(self, seconds: float) -> None:
        """Let the workers stop after so many seconds, or once one has ended by itself."""
        ended = self.pause(seconds)
        last = max(self.begun())
        while True:
            self.words[0] = last << 1
            # After a pause nobody can be under way who has not seen it, unless it is announced.
            ended = ended or self.pause(PAUSE_S)
            highest = max(self.begun())
            if ended or highest <= last:
                self.words[0] = last << 1 | 1
                return
            last = highest + 2 * (highest - last)


class TaskTally:
    """As CallTally, for tasks of one event loop, between which nothing runs: the first one after the time sets the end.

    Word 0 is that time in ns, or 0 as long as nobody knows it, word 1 the number of calls, the rest as for CallTally.
    """

    def __init__(self, words: list[int], index: int) -> None:
        self.words = words
        self.place = 2 + index

    def allowed(self, calls: int, batch: int) -> int:
        """1 for another call after `calls`, 0 at the end."""
        words = self.words
        if words[1] == ENDLESS and 0 < words[0] <= now_ns():
            words[1] = max(words[2:])
        if calls >= words[1]:
            return 0
        words[self.place] = calls + 1
        return 1


def task_words(workers: int) -> list[int]:
    """The words of TaskTally at the beginning."""
    return [0, ENDLESS, *[0] * workers]
