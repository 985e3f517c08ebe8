"""Long calls of published packages, of which some keep the GIL, for docs/races.md.

pytest benchmarks/races/packages_gil.py --ftgate --ftgate-test-time=16s -o ftgate_launches=3
"""

from __future__ import annotations

import random

from pytest_ftgate import ftgate, threads

DATA = random.Random(1).randbytes(3_000_000)


def alone(package):
    def decorate(body):
        test = ftgate.compare(threads, workers=1, pythons=["3.14"], packages=[package])(body)
        return ftgate.contract("gap < 20 ms")(test)

    return decorate


@alone("orjson==3.13.0")
def test_orjson_loads(worker):
    import orjson

    orjson.loads(b"[" + b"1," * 3_000_000 + b"1]")


@alone("simplejson==4.3.0")
def test_simplejson_dumps(worker):
    import simplejson

    simplejson.dumps(list(range(600_000)))


@alone("msgspec==0.22.0")
def test_msgspec_decode(worker):
    import msgspec

    msgspec.json.decode(b"[" + b"1," * 3_000_000 + b"1]")


@alone("bitarray==3.12.3")
def test_bitarray_sort(worker):
    from bitarray import bitarray

    bitarray(80_000_000).sort()


@alone("pyyaml==6.0.4")
def test_yaml_load(worker):
    import yaml

    yaml.load("[" + "a, " * 40_000 + "b]", yaml.CSafeLoader)


@alone("lxml==6.1.3")
def test_lxml_fromstring(worker):
    from lxml import etree

    etree.fromstring(b"<r>" + b"<a><b/></a>" * 400_000 + b"</r>")


@alone("zstandard==0.25.0")
def test_zstandard_compress(worker):
    import zstandard

    zstandard.ZstdCompressor(level=12).compress(DATA)


@alone("brotli==1.2.1")
def test_brotli_compress(worker):
    import brotli

    brotli.compress(DATA[:400_000], quality=9)


@alone("xxhash==4.1.0")
def test_xxhash_digest(worker):
    import xxhash

    for _ in range(10):
        xxhash.xxh32_digest(DATA * 8)


@alone("pillow==13.0.0")
def test_pillow_resize(worker):
    from PIL import Image

    Image.new("RGB", (3000, 3000)).resize((2000, 2000), Image.LANCZOS)


@alone("numpy==2.5.5")
def test_numpy_sort(worker):
    import numpy as np

    np.sort(np.random.default_rng(1).random(3_000_000))


@alone("regex==2026.11.19")
def test_regex_search(worker):
    import regex

    regex.compile("(?:abcdefgh){e<=3}").search("abcdxefgyabd " * 1500)
