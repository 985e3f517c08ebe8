from pytest_ftgate import ftgate, threads


@ftgate.limit("wall", margin="3%", effect="10%")  # 3 % slower is not a regression, a pass rules out 10 %
@ftgate.limit("uss", floor="1 MiB")  # nor is one more MiB, in addition to the default 2 %
@ftgate.compare(threads, processes=["spawn"])
def test_parse(worker): ...
