from multidict import CIMultiDict, CIMultiDictProxy
from pytest_ftgate import ftgate, processes, threads

HEADERS = CIMultiDictProxy(CIMultiDict([("Accept", "text/html"), ("Host", "example"), ("Accept", "text/plain")]))


@ftgate.compare(threads, processes, packages=["multidict==6.8.0"])
def test_accept(worker):
    seen = {tuple(HEADERS.getall("Accept", ())) for _ in range(20_000)}
    return sorted(seen)
