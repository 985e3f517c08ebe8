"""Which host measures which test: whole tests, one at a time on a host, each test once on every class of hosts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from ...kit.text import first_of, split_nodeid
from ...kit.values import grouped

ENOUGH: Final = 2
"""A worker of pytest-xdist runs an item once it has the next one, or was told to end."""
NAMED: Final = 5


class Node(Protocol):
    """A worker of pytest-xdist as the controller has it."""

    workerinput: dict[str, Any]

    @property
    def shutting_down(self) -> bool:
        """Whether it was told to end."""
        ...

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        """Have it run these items of its collection."""
        ...

    def shutdown(self) -> None:
        """Have it end after what it was given."""
        ...


class HostScheduler:
    """A scheduler of pytest-xdist (xdist.scheduler.protocol) for hosts of one or several classes.

    A test goes to whichever host of its class is free, with all its items. What a lost host was running is lost with
    it; what it had not begun goes to the other hosts of its class.
    """

    def __init__(self, classes: Mapping[str, str]) -> None:
        """`classes` has the class, a machine's fingerprint, of each host by the host's name."""
        self.classes = dict(classes)
        self.alive = set(classes)
        self.lost: list[str] = []
        self._items: dict[str, list[str]] = {}
        self._tests: dict[str, deque[list[int]]] = {}
        self._pending: dict[Node, list[int]] = {}
        self._ready: list[Node] = []

    # -- what pytest-xdist asks ------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        """Whether a host has collected its tests: it does not wait for slower ones."""
        return bool(self._ready)

    @property
    def has_pending(self) -> bool:
        return any(self._pending.values())

    @property
    def tests_finished(self) -> bool:
        """Whether nothing is left to be given out, so that the workers can run their last items and end."""
        classes = {self.classes[host] for host in self.alive}
        if any(each not in self._tests or self._tests[each] for each in classes):
            return False
        return all(len(pending) < ENOUGH for pending in self._pending.values())

    def add_node(self, node: Node) -> None:
        self._pending[node] = []

    def add_node_collection(self, node: Node, collection: Sequence[str]) -> None:
        """A worker has collected; the first one of a class says which tests it has."""
        host = self._host(node)
        own, items = self.classes[host], list(collection)
        known = self._items.setdefault(own, items)
        if own not in self._tests:
            self._tests[own] = deque(_by_test(items, range(len(items))).values())
        if items != known:
            first = next(iter(sorted(set(items) ^ set(known))), "the same in another order")
            self.lost.append(
                f"{host} was not used: it collected other tests than the hosts of its class ({first}); name the "
                "targets with ftgate_python, and install the same packages on all of them"
            )
            self.alive.discard(host)
            node.shutdown()
        else:
            self._ready.append(node)

    def schedule(self) -> None:
        """Give every idle worker its next test."""
        for node in self._ready:
            self._fill(node)

    def mark_test_complete(self, node: Node, item_index: int, duration: float = 0) -> None:
        self._pending[node].remove(item_index)
        self._fill(node)

    def mark_test_pending(self, item: str) -> None:
        """Not asked for by a run of ours."""
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: Node, indices: Sequence[int]) -> None:
        """Not asked for: nothing is taken from a worker."""
        raise NotImplementedError

    def remove_node(self, node: Node) -> str | None:
        """A worker has ended: the item that it was running, if it was. Raises KeyError if it never started."""
        pending = self._pending.pop(node)
        self._ready = [each for each in self._ready if each is not node]
        if not pending:
            return None
        own = self.classes[self._host(node)]
        items, running = self._items[own], len(pending) >= ENOUGH or node.shutting_down
        crashed = items[pending[0]] if running else None
        tests = _by_test(items, pending)
        if crashed is not None:
            del tests[test_of(crashed)]
        self._tests[own].extendleft(reversed(tests.values()))
        self.schedule()
        return crashed

    # -- what the run asks -----------------------------------------------------------------------------------------

    def host_down(self, host: str) -> None:
        self.alive.discard(host)

    def not_run(self) -> list[str]:
        """A sentence for each class that has no host left, with the tests that were not begun."""
        found = []
        for own in dict.fromkeys(self.classes.values()):
            left = any(self.classes[host] == own for host in self.alive)
            tests = [test_of(self._items[own][group[0]]) for group in self._tests.get(own, ())]
            if not left and (tests or own not in self._tests):
                were = f"{first_of(tests, NAMED) or 'tests'} {'was' if len(tests) == 1 else 'were'}"
                found.append(f"no host of {own} is left, and {were} not run there")
        return found

    def _fill(self, node: Node) -> None:
        tests, pending = self._tests[self.classes[self._host(node)]], self._pending[node]
        while tests and len(pending) < ENOUGH and not node.shutting_down:
            group = tests.popleft()
            pending += group
            node.send_runtest_some(group)

    def _host(self, node: Node) -> str:
        return str(node.workerinput["ftgate_host"])


def test_of(nodeid: str) -> str:
    """The test that an item belongs to."""
    return split_nodeid(nodeid)[0]


def _by_test(items: Sequence[str], indices: Iterable[int]) -> dict[str, list[int]]:
    """The indices of some items by the test that each belongs to."""
    return grouped((test_of(items[index]), index) for index in indices)
