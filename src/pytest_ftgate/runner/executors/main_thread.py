"""What workers in the main thread share, whether they run one after another or as tasks."""

from __future__ import annotations

import gc

from .. import loading
from ..worker import END, SETUP, TEARDOWN, Order, Worker, make_worker
from .base import IterationResult, Observer, StandingTimes, carry_out, observe_barrier, process_map, raise_first_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..loading import Setup
    from ..setups import WorkerSetups


class MainThreadWorkers(StandingTimes):
    """Workers in the main thread; `work` is their part of an iteration, which starts tasks anew in any case."""

    loop: Any = None
    """What runs the coroutines of setups, where the workers are tasks."""

    def __init__(self, setup: Setup, shared: Any, fresh: bool) -> None:
        self.setup = setup
        self.shared = shared
        self.fresh = fresh
        self.workers: list[Worker] = []
        self.setups: list[WorkerSetups] = []

    def work(self, order: Order, observer: Observer) -> IterationResult:
        """Release the workers and wait for them."""
        raise NotImplementedError

    def iteration(self, order: Order, observer: Observer) -> IterationResult:
        """One iteration."""
        if self.fresh or not self.workers:
            self.workers = [make_worker(self.setup, index, self.shared) for index in range(self.setup["workers"])]
            found = (loading.body(self.setup).surroundings(worker, self.loop) for worker in self.workers)
            self.setups = [each for each in found if each]
        raise_first_error(carry_out(self.setups, observer, SETUP))
        gc.collect()
        result = self.work(order, observer)
        observer.done(self)
        ended = carry_out(self.setups, observer, TEARDOWN)
        observe_barrier(order, observer, self)
        if self.fresh:
            ended += carry_out(self.setups, observer, END)
        raise_first_error(result.reports)
        raise_first_error(ended)
        return result

    def process_map(self) -> dict[str, Any]:
        """The main thread works itself."""
        return process_map((), main_works=True)

    def close(self) -> None:
        """Let what has been set up be torn down."""
        raise_first_error(carry_out(self.setups, Observer(), TEARDOWN | END))
