"""What threads pay for one object of a published package in place of one each, for docs/races.md.

pytest benchmarks/races/packages_sharing.py --ftgate -v --ftgate-test-time=20s -o ftgate_launches=3
"""

from __future__ import annotations

import importlib
import os

from pytest_ftgate import ftgate, threads

BOTH = [{"SHARE": "one"}, {"SHARE": "each"}]


def sharing(package, make, module=""):
    """`make` returns an object of the package's module: one for all workers, or one for each."""

    def decorate(body):
        test = ftgate.compare(threads, workers=2, pythons=["3.14t"], env=BOTH, packages=[package])(body)
        test = ftgate.contract("threads[SHARE=one].wall < 1.5 * threads[SHARE=each].wall", "garbage < 1")(test)

        @test.shared
        def made(context):
            one = importlib.import_module(module or package.partition("==")[0])
            each = [make(one) for _ in range(context.workers)]
            return each[:1] * context.workers if os.environ.get("SHARE") == "one" else each

        return test

    return decorate


@sharing("multidict==6.9.1", lambda multidict: multidict.MultiDict((str(n), n) for n in range(64)))
def test_multidict_getitem(worker):
    own, names = worker.shared[worker.index], [str(n) for n in range(64)]
    for _ in range(1000):
        for name in names:
            own[name]


@sharing("frozenlist==1.8.0", lambda frozenlist: frozenlist.FrozenList(range(64)))
def test_frozenlist_getitem(worker):
    own = worker.shared[worker.index]
    for n in range(100_000):
        own[n & 63]


@sharing("regex==2026.11.19", lambda regex: regex.compile(r"(\w+)@(\w+)\.com"))
def test_regex_search(worker):
    own = worker.shared[worker.index]
    for _ in range(10_000):
        own.search("some words before someone@example.com")


@sharing("msgspec==0.22.0", lambda msgspec: msgspec.json.Decoder())
def test_msgspec_decode(worker):
    own = worker.shared[worker.index]
    for _ in range(10_000):
        own.decode(b'{"a": [1, 2, {"b": "c"}]}')


@sharing("bitarray==3.12.3", lambda bitarray: bitarray.bitarray(1000))
def test_bitarray_count(worker):
    own = worker.shared[worker.index]
    for _ in range(100_000):
        own.count()


@sharing("kiwisolver==1.5.1", lambda kiwisolver: kiwisolver.Variable("v"))
def test_kiwisolver_value(worker):
    own = worker.shared[worker.index]
    for _ in range(100_000):
        own.value()


@sharing("xxhash==4.1.0", lambda xxhash: xxhash.xxh64())
def test_xxhash_update(worker):
    own = worker.shared[worker.index]
    for _ in range(50_000):
        own.update(b"some bytes")


def synchronized(wrapt):
    @wrapt.synchronized
    def add(counts):
        counts[0] += 1

    return add


@sharing("wrapt==2.5.2", synchronized)
def test_wrapt_synchronized(worker):
    add, counts = worker.shared[worker.index], [0]
    for _ in range(5000):
        add(counts)


def counter(prometheus_client):
    return prometheus_client.Counter("n", "n", registry=prometheus_client.CollectorRegistry())


@sharing("prometheus-client==0.26.0", counter, "prometheus_client")
def test_prometheus_inc(worker):
    own = worker.shared[worker.index]
    for _ in range(20_000):
        own.inc()


@sharing("cachetools==8.0.2", lambda func: func.lru_cache(maxsize=50)(lambda n: n), "cachetools.func")
def test_cachetools_lru(worker):
    own = worker.shared[worker.index]
    for n in range(20_000):
        own(n % 40)


@sharing("limits==5.8.0", lambda storage: storage.MemoryStorage(), "limits.storage")
def test_limits_incr(worker):
    own = worker.shared[worker.index]
    for _ in range(3000):
        own.incr(f"key {worker.index}", 10_000)
