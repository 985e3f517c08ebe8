"""`--ftgate-shard`: the tests of this part stay, all others are deselected."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence

import pytest

from ..declare import plan
from ..declare.options import OPTIONS
from ..run.run import Session
from ..store.names import split_nodeid
from .collection import CELL
from .options import options_of


class Sharding:
    """Splits what is selected: cells by what their tests cost, other tests by their names."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self.part, self.parts = session.config.shard or (1, 1)
        self.config = config
        self.session = session
        self.tests = self.kept = 0

    @property
    def name(self) -> str:
        """`shard 2/5`."""
        return f"shard {self.part}/{self.parts}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Deselect the tests of other parts, after all others have selected theirs."""
        yield
        if not items:
            return
        whole = plan.plan_of(item.stash[CELL] for item in items if CELL in item.stash)
        part = self.session.take_part(whole, shared_options(self.config))
        cells = {cell.nodeid for group in part.groups for cell in group.cells}
        kept: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            own = item.stash[CELL][1].nodeid in cells if CELL in item.stash else self._has(item)
            (kept if own else others).append(item)
        self.tests = len(whole.groups) + len(plain_of(items))
        self.kept = len(part.groups) + len(plain_of(kept))
        if others:
            self.config.hook.pytest_deselected(items=others)
            items[:] = kept

    def _has(self, item: pytest.Item) -> bool:
        """Whether this part has a test without cells: all of its parameter sets have the same part."""
        name = split_nodeid(item.nodeid)[0].encode(errors="surrogatepass")
        return int(hashlib.sha256(name).hexdigest(), 16) % self.parts + 1 == self.part

    def pytest_report_collectionfinish(self) -> str:
        """How many tests are this part's."""
        return f"ftgate: {self.name} has {self.kept} of {self.tests} tests" if self.tests else ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A part without a test is no failure: there are more parts than tests."""
        split = self.tests or self.session.shard is not None
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and split:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say that there was nothing to do."""
        shard = self.session.shard
        if not self.kept and not (shard and shard.places) and (self.tests or shard):
            terminalreporter.write_line(f"ftgate: {self.name} is empty: there are fewer tests than shards")


def plain_of(items: Sequence[pytest.Item]) -> set[str]:
    """The tests without cells, each once whatever parameters it has."""
    return {split_nodeid(item.nodeid)[0] for item in items if CELL not in item.stash}


def shared_options(config: pytest.Config) -> dict[str, str]:
    """What was set by the command line, the environment or the project, of the options that all parts must share."""
    values = ((option, getattr(options_of(config), option.name)) for option in OPTIONS if not option.shard_own)
    return {option.cli: str(value) for option, value in values if value != option.default}
