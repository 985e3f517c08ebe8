"""pytest-xdist: the workers run all other tests and hand their cells over; the controller measures them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from ..kit.text import first_of, plural
from .collection import CELL, cells_of

CHANNEL = "ftgate"
"""What a worker gets from the controller, to tell it of its cells."""
SHOWN = 3
FOUND = pytest.StashKey[set[str]]()


def found(config: pytest.Config) -> set[str]:
    """What features have found while tests were collected; the controller gets it from the workers."""
    return config.stash.setdefault(FOUND, set())


def distributes(config: pytest.Config) -> bool:
    """Whether pytest-xdist starts workers: with `-n`, or `--dist` and `--tx`. Source: xdist.plugin."""
    return config.getoption("dist", "no") != "no" and bool(config.getoption("tx", ()))


class XdistWorker:
    """In a worker: collects as any run does, and runs no cell."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.channel: Any = config.workerinput[CHANNEL]  # type: ignore[attr-defined]
        self.collected: list[str] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> Generator[None]:
        """Remember all cells before any is deselected."""
        self.collected = [*cells_of(items)]
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Hand over the cells that all plugins have left, also those that choose last, as --lf does."""
        self.channel.send((self.collected, [*cells_of(session.items)], [*found(self.config)]))
        session.items[:] = [item for item in session.items if CELL not in item.stash]


class XdistController:
    """In the controller: hears of the cells, and measures them when the workers have ended."""

    def __init__(self, tell: Callable[[list[str], list[str]], None]) -> None:
        """`tell` is called with the node ids of all cells, and of those that were not deselected."""
        self.tell = tell
        self.collected: list[str] = []
        self.planned: list[str] = []
        self.others = self.cells = 0
        """The tests that the workers run, and the cells that this process measures."""
        self.errors = 0
        self.lost: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Called for each worker before it starts. Source: xdist.newhooks."""
        channel = node.gateway.newchannel()
        channel.setcallback(self._hear)
        node.workerinput[CHANNEL] = channel

    def _hear(self, told: tuple[list[str], list[str], list[str]]) -> None:
        """In a thread of execnet's: all cells, those that were not deselected, and what features have found."""
        self.collected, self.planned, of_features = told
        self.cells = len(self.planned)
        found(self.session.config).update(of_features)
        self.tell(self.collected, self.planned)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Called when a worker has collected. Source: xdist.newhooks."""
        self.others = len(ids)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count errors of collection, of the workers and of this process."""
        self.errors += report.failed

    def pytest_runtest_logstart(self) -> None:
        """The progress is that of the whole run; pytest-xdist counts what the workers run."""
        self.session.testscollected = self.others + self.cells

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Within all other wrappers: for them, the cells are part of the loop."""
        done = yield
        nodes: Any = session.config.pluginmanager.get_plugin("dsession")
        nodes.nodemanager.teardown_nodes()
        self._go_on()
        self._collect()
        self._go_on()
        self._refuse_lost()
        for item, following in zip(session.items, [*session.items[1:], None], strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._go_on()
        return done

    def _go_on(self) -> None:
        """Raise what ends a run, as pytest's own loop does."""
        session = self.session
        if self.errors and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{plural(self.errors, 'error')} during collection")
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _refuse_lost(self) -> None:
        if self.lost and not self.errors:
            raise pytest.UsageError(
                f"the workers have collected {plural(len(self.lost), 'cell')} that the controller, which measures, has "
                f"not: {first_of(self.lost, SHOWN)}; what is collected must not depend on PYTEST_XDIST_WORKER"
            )

    def _collect(self) -> None:
        """Collect the files with cells: quietly, since what the workers have said of the collection holds."""
        session, option = self.session, self.session.config.option
        files = dict.fromkeys(session.config.rootpath / each.partition("::")[0] for each in self.collected)
        # Outside of the rootdir a node id has no file, and in an argument brackets begin parameters: then everything is
        # collected again.
        nameable = all(path.is_file() and "[" not in str(path) for path in files)
        verbosity = session.config.get_verbosity()
        option.verbose = min(verbosity, -1)
        try:
            session.perform_collect([*map(str, files)] if nameable else None)
        finally:
            option.verbose = verbosity
        self.cells = len(session.items)
        session.testscollected = self.others + self.cells

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Of these files, what the workers have collected: their arguments may have named single tests."""
        report, known = (yield), {*self.collected}
        report.result = [each for each in report.result if not isinstance(each, pytest.Item) or each.nodeid in known]
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Take what the workers' plugins have left of all tests; those of this process have nothing to choose from."""
        cells = cells_of(items)
        self.lost = [nodeid for nodeid in self.planned if nodeid not in cells]
        items[:] = chosen = [cells[nodeid] for nodeid in self.planned if nodeid in cells]
        yield
        items[:] = chosen
