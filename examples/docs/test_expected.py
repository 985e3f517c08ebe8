from pytest_ftgate import ftgate, threads


@ftgate.xfail("broken", threads, reason="the cache has one lock, issue 7")
@ftgate.xfail("regressed", processes=["fork"], pythons=["3.15"], workers=8, reason="python/cpython#148907")
@ftgate.contract(scaling=">= 1.6")
@ftgate.compare(threads, processes=["fork", "spawn"], workers=[1, 8])
def test_lookup(worker): ...
