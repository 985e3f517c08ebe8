from pytest_ftgate import ftgate, threads


@ftgate.contract(
    "threads[OMP_NUM_THREADS=1].wall < 1.5 * threads[OMP_NUM_THREADS=workers].wall",
    "scaling >= 0.8 * ceiling",
)
@ftgate.compare(
    threads,
    workers=[1, "cores"],
    env=[{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "{workers}"}],
    pin=True,
)
def test_solve(worker): ...
