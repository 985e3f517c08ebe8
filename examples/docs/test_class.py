import pytest

from pytest_ftgate import ftgate, threads


class TestCache:
    SIZE = 100

    @ftgate.compare(threads, processes=["fork"])
    @pytest.mark.parametrize("keys", [10, pytest.param(1000, id="full")])
    def test_fill(self, worker, keys):
        for number in range(keys):
            worker.shared[number % self.SIZE] = number

    @test_fill.shared
    def cache(self, context):
        return context.dict()
