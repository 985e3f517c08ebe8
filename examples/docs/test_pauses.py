import zlib

from pytest_ftgate import ftgate, threads

DATA = bytes(range(256)) * 4096


@ftgate.contract("gap < 20 ms")
@ftgate.compare(threads, workers=1)
def test_compress(worker):
    zlib.compress(DATA)  # a call of your library
