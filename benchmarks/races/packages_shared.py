"""Objects of published packages that three threads share without the GIL, for docs/races.md.

pytest benchmarks/races/packages_shared.py --ftgate --ftgate-until=failure --ftgate-test-time=14s
"""

from __future__ import annotations

import importlib

from pytest_ftgate import ftgate, threads


def share(package, make=None, module=""):
    """`make` returns what the workers of a launch share, of the package's module."""

    def decorate(body):
        test = ftgate.compare(threads, workers=3, pythons=["3.14t"], packages=[package])(body)

        @test.shared
        def made(kind):
            return make(importlib.import_module(module or package.partition("==")[0])) if make else None

        return test

    return decorate


def update(worker):
    for number in range(300):
        worker.shared.update({str(key): number for key in range(20)})
        worker.shared.clear()


@share("multidict==6.8.0", lambda multidict: multidict.MultiDict())
def test_multidict_before(worker):
    update(worker)


@share("multidict==6.9.0", lambda multidict: multidict.MultiDict())
def test_multidict(worker):
    update(worker)


@share("frozenlist==1.8.0", lambda frozenlist: frozenlist.FrozenList())
def test_frozenlist(worker):
    for number in range(3000):
        worker.shared.append(number)
        worker.shared.pop()


@share("lru-dict==1.4.1", lambda lru: lru.LRU(50), "lru")
def test_lru(worker):
    for number in range(3000):
        worker.shared[number % 97] = number
        worker.shared.get(number % 89)


def counter(wrapt):
    @wrapt.synchronized
    def add(counts):
        counts[0] += 1

    return add, [0]


@share("wrapt==2.5.2", counter)
def test_wrapt(worker):
    add, counts = worker.shared
    for _ in range(1000):
        before = counts[0]
        add(counts)
        assert counts[0] > before


@share("regex==2026.11.19", lambda regex: regex.compile("(?:abc|def){e<=1}"))
def test_regex(worker):
    return sum(len(worker.shared.findall("abc def ghi " * 20)) for _ in range(50))


def compressed(compressor):
    import zstandard

    data = bytes(range(256)) * 100
    return {zstandard.ZstdDecompressor().decompress(compressor.compress(data)) == data for _ in range(50)}


@share("zstandard==0.25.0", lambda zstandard: zstandard.ZstdCompressor())
def test_zstandard(worker):
    return sorted(compressed(worker.shared))


@share("zstandard==0.25.0")
def test_zstandard_one_each(worker):
    import zstandard

    return sorted(compressed(zstandard.ZstdCompressor()))


def configs(propcache):
    class Config:
        @propcache.cached_property
        def value(self):
            return object()

    return [Config() for _ in range(2000)], {}


@share("propcache==0.5.4", configs)
def test_propcache(worker):
    made, seen = worker.shared
    return all(seen.setdefault(id(each), each.value) is each.value for each in made)


@share("msgspec==0.22.0", lambda msgspec: (msgspec.json.Encoder(), msgspec.json.Decoder()))
def test_msgspec(worker):
    encoder, decoder = worker.shared
    return sum(len(decoder.decode(encoder.encode({"a": [1, {"b": "c" * n}]}))) for n in range(1000))


@share("bitarray==3.12.3", lambda bitarray: bitarray.bitarray(100))
def test_bitarray(worker):
    for _ in range(3000):
        worker.shared.append(1)
        worker.shared.pop()


def solver(kiwisolver):
    solver, value, other = kiwisolver.Solver(), kiwisolver.Variable("v"), kiwisolver.Variable("w")
    solver.addConstraint(other == value + 1)
    solver.addEditVariable(value, "strong")
    return solver, value


@share("kiwisolver==1.5.1", solver)
def test_kiwisolver(worker):
    shared, value = worker.shared
    for number in range(1000):
        shared.suggestValue(value, number)
        shared.updateVariables()


@share("xxhash==4.1.0", lambda xxhash: xxhash.xxh64())
def test_xxhash(worker):
    for _ in range(3000):
        worker.shared.update(b"abc" * 100)
        worker.shared.intdigest()


@share("cachetools==8.0.2", lambda func: func.ttl_cache(maxsize=50, ttl=0.001)(lambda n: n), "cachetools.func")
def test_cachetools(worker):
    return sum(worker.shared(number % 70) for number in range(2000))
