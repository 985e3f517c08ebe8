"""Hosts of `--tx ssh=...`: which gets which test, and what is refused; tests/faults/test_hosts.py has real ones."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import execnet
import pytest
import scipy.special  # noqa: F401 -- pytester forgets what a run imports, and NumPy cannot be imported again
from example import Example, assert_usage_error

from pytest_ftgate.features.hosts import has_hosts
from pytest_ftgate.features.hosts.checkout import answer
from pytest_ftgate.features.hosts.controller import SERVE, _relative
from pytest_ftgate.features.hosts.scheduler import HostScheduler

ITEMS = ["a.py::test_x[1]", "a.py::test_x[2]", "a.py::test_y", "b.py::test_z[1]", "b.py::test_z[2]", "b.py::test_w"]


class FakeNode:
    """A worker that runs nothing; `run` has the scheduler believe that it did."""

    def __init__(self, host: str) -> None:
        self.workerinput: dict[str, Any] = {"ftgate_host": host}
        self.queue: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Bench:
    """Hosts by name with their class, as pytest-xdist drives them; `ran` has what each ran."""

    def __init__(self, collect: bool = True, **classes: str) -> None:
        self.scheduler = HostScheduler(classes)
        self.nodes = {name: FakeNode(name) for name in classes}
        self.ran: dict[str, list[str]] = {name: [] for name in classes}
        for name in classes if collect else ():
            self.collect(name)

    def collect(self, name: str, items: Sequence[str] = ITEMS) -> None:
        if self.nodes[name] not in self.scheduler.nodes:
            self.scheduler.add_node(self.nodes[name])
        self.scheduler.add_node_collection(self.nodes[name], items)
        if self.scheduler.collection_is_completed:
            self.scheduler.schedule()

    def run(self, name: str, count: int = 1) -> None:
        """Run items as pytest-xdist's worker does: one only if there is a next one, or the end."""
        node = self.nodes[name]
        for _ in range(count):
            assert len(node.queue) > 1 or node.shutting_down
            index = node.queue.pop(0)
            self.ran[name].append(ITEMS[index])
            self.scheduler.mark_test_complete(node, index)

    def finish(self) -> None:
        """Run what there is, the hosts in turn."""
        while not self.scheduler.tests_finished:
            for name, node in self.nodes.items():
                if len(node.queue) > 1 and name in self.scheduler.alive:
                    self.run(name)
        for name, node in self.nodes.items():
            if name in self.scheduler.alive:
                node.shutdown()
                self.run(name, len(node.queue))
                assert self.scheduler.remove_node(node) is None
        assert not self.scheduler.nodes

    def lose(self, name: str) -> str | None:
        """What pytest-xdist does when a worker's connection ends; the item that it takes for lost."""
        self.scheduler.host_down(name)
        return self.scheduler.remove_node(self.nodes[name])


def hosts_of(bench: Bench, test: str) -> set[str]:
    return {name for name, ran in bench.ran.items() for nodeid in ran if nodeid.partition("[")[0] == test}


def test_each_test_is_run_once_by_one_host_of_a_class() -> None:
    bench = Bench(one="x", two="x", three="x")
    bench.finish()
    assert sorted(nodeid for ran in bench.ran.values() for nodeid in ran) == sorted(ITEMS)
    assert all(len(hosts_of(bench, nodeid.partition("[")[0])) == 1 for nodeid in ITEMS)
    assert not bench.scheduler.not_run()


def test_each_class_runs_each_test() -> None:
    bench = Bench(one="x", other="y", two="x")
    bench.finish()
    assert bench.ran["other"] == ITEMS
    assert sorted(bench.ran["one"] + bench.ran["two"]) == sorted(ITEMS)


def test_a_host_gets_no_more_than_it_needs_to_go_on() -> None:
    bench = Bench(one="x")
    assert bench.nodes["one"].queue == [0, 1]
    bench.run("one")
    assert bench.nodes["one"].queue == [1, 2]


def test_a_lost_host_costs_the_test_that_it_ran_alone() -> None:
    bench = Bench(one="x", two="x")
    bench.run("one")  # test_x is under way, and the second host has test_y and test_z
    assert bench.lose("one") == "a.py::test_x[2]"
    bench.finish()
    assert sorted(bench.ran["two"]) == sorted(ITEMS[2:])
    assert bench.scheduler.not_run() == []


def test_what_a_lost_host_had_not_begun_goes_to_the_others() -> None:
    bench = Bench(collect=False, one="x", two="x")
    bench.collect("one", ITEMS)
    bench.run("one", 2)  # of test_x nothing is left, test_y waits for what follows
    bench.collect("two", ITEMS)
    assert bench.lose("one") == "a.py::test_y"  # the next one, test_z, was given out too
    bench.finish()
    assert sorted(bench.ran["two"]) == sorted(ITEMS[3:])


def test_an_item_that_waits_for_the_end_was_not_begun() -> None:
    bench = Bench(collect=False, one="x", two="x")
    for name in ("one", "two"):
        bench.collect(name, ITEMS[:2])
    bench.run("one")
    assert bench.nodes["one"].queue == [1]
    assert bench.lose("one") is None, "it runs nothing while it waits"
    assert bench.nodes["two"].queue == [1]


def test_the_only_host_of_a_class_is_lost() -> None:
    bench = Bench(one="x", other="y")
    bench.run("other")
    bench.lose("other")
    bench.finish()
    assert bench.ran["one"] == ITEMS
    (said,) = bench.scheduler.not_run()
    assert said == "no host of y is left, and a.py::test_y, b.py::test_z, b.py::test_w were not run there"


def test_a_host_that_is_lost_before_it_has_collected_does_not_hold_up_the_others() -> None:
    bench = Bench(collect=False, one="x", other="y")
    assert not bench.scheduler.tests_finished
    bench.collect("one")
    assert not bench.scheduler.tests_finished
    bench.scheduler.host_down("other")
    with pytest.raises(KeyError):
        bench.scheduler.remove_node(bench.nodes["other"])
    bench.finish()
    assert bench.ran["one"] == ITEMS
    assert bench.scheduler.not_run() == ["no host of y is left, and tests were not run there"]


def test_the_run_ends_when_every_host_is_lost() -> None:
    bench = Bench(one="x", two="x")
    bench.lose("one")
    bench.lose("two")
    assert bench.scheduler.tests_finished
    assert bench.scheduler.not_run()


def test_a_new_worker_of_a_host_goes_on() -> None:
    bench = Bench(one="x")
    bench.lose("one")
    bench.nodes["one"] = FakeNode("one")
    bench.scheduler.alive.add("one")
    assert not bench.scheduler.tests_finished
    bench.collect("one")
    bench.finish()
    assert bench.ran["one"] == ITEMS[2:]


def test_a_host_that_collects_other_tests_is_not_used() -> None:
    bench = Bench(collect=False, one="x", two="x")
    bench.collect("one")
    bench.collect("two", [*ITEMS[:-1], "b.py::test_other"])
    assert bench.nodes["two"].shutting_down
    assert not bench.nodes["two"].queue
    assert bench.lose("two") is None
    bench.finish()
    assert bench.ran["one"] == ITEMS
    (said,) = bench.scheduler.lost
    assert said.startswith("two was not used: it collected other tests than the hosts of its class (b.py::test_other)")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("tests/a.py::test_x", "tests/a.py::test_x"),
        ("/code/proj/tests/a.py::test_x", "../tests/a.py::test_x"),
        ("--junit-xml=/code/proj/out.xml", "--junit-xml=../out.xml"),
        ("/elsewhere/a.py", "/elsewhere/a.py"),
        ("-k=a or b", "-k=a or b"),
    ],
)
def test_a_path_of_the_repository_is_the_same_file_there(word: str, expected: str) -> None:
    assert _relative(word, Path("/code/proj"), Path("/code/proj/below")) == expected


def test_the_python_of_a_host_finds_what_serves_it() -> None:
    group = execnet.Group()
    try:
        said = answer(group.makegateway("popen").remote_exec(SERVE), 60)
        assert said["version"] == version("pytest-ftgate")
    finally:
        group.terminate(timeout=5.0)


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ([], False),
        (["popen", "2*popen//python=python3.14"], False),
        (["ssh=host"], True),
        (["popen", "2*ssh=host//python=python3"], True),
        (["socket=host:8888"], True),
    ],
)
def test_local_workers_are_not_hosts(pytester: pytest.Pytester, specs: list[str], expected: bool) -> None:
    config = pytester.parseconfig("--dist=load", *(word for spec in specs for word in ("--tx", spec)))
    assert has_hosts(config) is expected


BODY = "@ftgate.compare(threads, workers=[1])\ndef test_x(worker): ...\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tx", "popen", "--tx", "ssh=one"), "--ftgate measures on hosts of `--tx ssh=...` alone"),
        (("--tx", "2*ssh=me@one"), "a host measures with one worker: one stands in --tx twice"),
        (("--tx", "ssh=one", "--ftgate-time=60"), "with hosts, give --ftgate-test-time"),
        (("--tx", "ssh=one"), "hosts get the project by git: "),  # which is no repository
    ],
)
def test_what_hosts_cannot_do_is_refused_before_anything_starts(
    pytester: pytest.Pytester, words: tuple[str, ...], said: str
) -> None:
    assert_usage_error(Example(pytester, {"test_a.py": BODY}).run_pytest("--ftgate", "-d", *words), said)
