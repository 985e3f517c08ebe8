"""Executors of other libraries beside those of the standard library: joblib's loky, a dask cluster, an initializer.

A factory gets the number of workers. It returns a `concurrent.futures.Executor`, or a context manager that gives one.
"""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_ftgate import executor, ftgate, threads

TEXT = "the quick brown fox jumps over the lazy dog " * 2000
PARTS = [TEXT[start : start + 4000] for start in range(0, len(TEXT), 4000)]

local = threading.local()


def with_loky(workers):
    loky = pytest.importorskip("loky")
    return loky.ProcessPoolExecutor(workers)


@contextlib.contextmanager
def with_dask(workers):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


def with_initializer(workers):
    return ThreadPoolExecutor(workers, initializer=make_table)


def make_table():
    """What each thread makes once, and its tasks use."""
    local.table = dict.fromkeys("aeiou", 1)


def vowels(part):
    table = getattr(local, "table", None) or dict.fromkeys("aeiou", 1)
    return sum(table.get(letter, 0) for letter in part)


@ftgate.limit("wall", margin="25%", effect="50%")  # a cluster's time differs by up to a fifth from start to start
@ftgate.contract(
    "executor[initialized].wall < 2 * threads.wall",
    "executor[dask].dispatch > 2 * executor[loky].dispatch",
)
@ftgate.compare(
    threads,
    executor("loky", with_loky, processes=True),
    executor("dask", with_dask, processes=True),
    executor("initialized", with_initializer),
    processes=["fork"],
    reuse="pool",
    packages=["loky", "distributed"],
)
def test_vowels(executor):
    futures = [executor.submit(vowels, part) for part in PARTS]  # dask's `map` submits no single tasks
    return sum(future.result() for future in futures)
