from pytest_ftgate import ftgate, threads


@ftgate.require("threads[OMP_NUM_THREADS=1].wall < 1.5 * threads[OMP_NUM_THREADS=workers].wall")
@ftgate.require("scaling >= 0.8 * ceiling")
@ftgate.compare(
    threads,
    workers=[1, "cores"],
    environment=[{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "{workers}"}],
    cpus="each",
)
def test_solve(worker): ...
