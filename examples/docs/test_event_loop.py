import asyncio

from pytest_ftgate import ftgate, tasks, threads


@ftgate.limit("timer.wait", margin="10%")
@ftgate.compare(tasks, threads, workers=[1, 50])
async def test_fetch(worker):
    with worker.timed("wait"):
        await asyncio.sleep(0.001)  # a call of your library
