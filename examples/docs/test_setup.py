from pytest_ftgate import ftgate, threads

import random


@ftgate.compare(threads, processes=["fork"])
def test_sort(worker):
    worker.local.items.sort()


@test_sort.setup
def shuffle(worker):
    worker.local.items = random.Random(worker.index).sample(range(1000), 1000)
