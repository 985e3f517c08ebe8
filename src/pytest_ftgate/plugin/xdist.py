"""pytest-xdist: what the controller gives to its workers, and what they tell it while they measure.

Each worker has a channel of its own to the controller, which execnet carries beside that of pytest-xdist.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import pytest

from ..run.turns import MeasuringTurn
from .progress import REDRAW_S, Progress


class Relay:
    """The progress of a worker, which the controller shows: each call goes to `Handover`, and on to its `Progress`."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._sent_s = 0.0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return partial(self._send, name)

    def advance(self, label: str, phase: str, done: int, wanted: int, left_s: float | None = None) -> None:
        """What is done now; not more often than it is shown."""
        now_s = time.monotonic()
        if wanted <= 0 or now_s - self._sent_s >= REDRAW_S:
            self._sent_s = now_s
            self._send("advance", label, phase, done, wanted, left_s)

    def end(self) -> None:
        """This worker has ended, the run has not."""
        self._send("clear")

    def _send(self, name: str, *arguments: object) -> None:
        with contextlib.suppress(OSError):  # the controller is gone
            self._channel.send((name, arguments))


class WorkerTurns:
    """In a worker: no test of it runs while another worker measures."""

    def __init__(self, turn: MeasuringTurn) -> None:
        self.turn = turn

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """A worker that takes the place of another collects while others measure."""
        with self.turn.running("its collection"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Also the fixtures of a cell."""
        with self.turn.running(item.nodeid):
            return (yield)


class Handover:
    """In the controller: gives each worker what it needs, and shows what the workers tell."""

    def __init__(self, given: Callable[[], dict[str, Any]], progress: Progress) -> None:
        """`given` is what a worker gets that starts now: the run, its seed, and how long it has taken in s."""
        self.given = given
        self.progress = progress
        self.collected: dict[str, None] = {}
        self.planned: dict[str, None] = {}
        self.down: list[str] = []
        """The workers that were killed or crashed, each with what it measured."""
        self._measuring: dict[str, str] = {}
        self._started = False
        self._lock = threading.RLock()
        """Workers are heard in threads of execnet's; pytest writes in the main thread."""

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[Any]) -> None:
        """Refuse workers of other machines: a report and its baselines are of this one. Source: xdist.newhooks."""
        if others := [str(spec) for spec in specs if not spec.popen]:
            raise pytest.UsageError(
                f"--ftgate measures on this machine, and --tx {others[0]} starts a worker on another: run pytest "
                "there, with --ftgate-shard, and join the reports by ftgate merge"
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Called for each worker before it starts. Source: xdist.newhooks."""
        channel, worker = node.gateway.newchannel(), node.gateway.id
        channel.setcallback(lambda message: self._hear(worker, *message))
        node.workerinput["ftgate"] = {**self.given(), "channel": channel}

    def _hear(self, worker: str, name: str, arguments: Sequence[Any]) -> None:
        with self._lock:
            if name == "collected":  # the node ids of all cells, and of those that were not deselected
                self.collected |= dict.fromkeys(arguments[0])
                self.planned |= dict.fromkeys(arguments[1])
            elif name == "start":
                if not self._started:
                    self._started = True
                    self.progress.start(*arguments)
            else:
                getattr(self.progress, name)(*arguments)
                if name == "begin":
                    self._measuring[worker] = arguments[0]
                elif name == "clear":
                    self._measuring.pop(worker, None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None, object, object]:
        """Remove the progress while pytest writes."""
        with self._lock:
            self.progress.erase()
            return (yield)

    pytest_runtest_logreport = pytest_runtest_logfinish = pytest_runtest_logstart

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker has ended. Source: xdist.newhooks."""
        measured = self._measuring.pop(node.gateway.id, "")
        if not error:
            return
        with self._lock:
            self.progress.clear()
            if measured:
                self.progress.warn(f"{node.gateway.id} ended while it measured {measured}, which is lost")
            self.down.append(f"worker {node.gateway.id} ended{f' while it measured {measured}' if measured else ''}")
