import gc

from pytest_ftgate import ftgate

PRICES = []


@ftgate.contract("unshared < 16 MiB")
@ftgate.compare(processes=["fork"], workers=2)
def test_prices(worker):
    gc.collect()  # a call of your code
    return len(PRICES)


@test_prices.shared
def prices(context):
    PRICES.extend({"price": number} for number in range(200_000))
    gc.freeze()
