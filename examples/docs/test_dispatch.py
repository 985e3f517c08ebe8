from pytest_ftgate import ftgate

TEXTS = [b"word " * 200] * 64


@ftgate.contract("dispatch < 5 ms", "payload <= 64 KiB")
@ftgate.compare(processes=["fork"], workers=2)
def test_sizes(executor):
    return sum(executor.map(len, TEXTS))
