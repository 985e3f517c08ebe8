import time

from pytest_ftgate import ftgate, threads


@ftgate.contract("lock_ceiling >= 8")
@ftgate.compare(threads, workers=[1, 2])
def test_get(worker):
    with worker.shared:
        time.sleep(0.001)
    time.sleep(0.015)


@test_get.shared
def shared(context):
    return context.Lock()
