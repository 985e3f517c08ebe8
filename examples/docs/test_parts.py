from pytest_ftgate import ftgate, tasks, threads


@ftgate.compare(threads, tasks, processes=["fork", "spawn"])
def test_x(worker):
    counts, lock = worker.shared
    with lock:
        counts[worker.index] = 1


@test_x.shared  # creates what the workers share, of the kinds that suit the executor
def state(context):
    return context.dict(), context.Lock()


@test_x.variant(tasks)  # another body for some executors
async def as_tasks(worker): ...


@test_x.variant(processes=["spawn"])  # for one start method; plain `processes` is every one of the test
def spawned(worker): ...


@test_x.check  # asserts on the results, instead of comparing them between cells
def check(results): ...  # a list with one item per worker; for an `executor` body, what it returned
