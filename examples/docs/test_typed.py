from pytest_ftgate import Context, Worker, ftgate, threads


@ftgate.compare(threads, workers=[1, 8])
def test_lookup(worker: Worker) -> int:
    return len(worker.shared)


@test_lookup.shared
def cache(context: Context) -> dict[str, int]:
    return {"a": 1}
