import os

from pytest_ftgate import ftgate, threads


@ftgate.contract("threads[SHARE=one].wall < 1.5 * threads[SHARE=each].wall")
@ftgate.compare(threads, workers=2, env=[{"SHARE": "one"}, {"SHARE": "each"}])
def test_store(worker):
    cache = worker.shared[worker.index]
    for number in range(200_000):
        cache[number % 64] = number


@test_store.shared
def caches(context):
    if os.environ["SHARE"] == "one":
        return [{}] * context.workers
    return [{} for _ in range(context.workers)]
