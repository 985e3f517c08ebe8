import zlib
from pytest_ftgate import ftgate, threads

TEXT = b"the quick brown fox jumps over the lazy dog " * 20_000


@ftgate.contract("threads[3.14t].gil == off", "scaling >= 0.8 * ceiling")
@ftgate.compare(threads, workers=[1, 2])
def test_compress(worker):
    return len(zlib.compress(TEXT))
