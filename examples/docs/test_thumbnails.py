from pytest_ftgate import executor, ftgate, threads


def thumbnail(number):
    return number


def with_loky(workers):
    import loky

    return loky.ProcessPoolExecutor(workers)


@ftgate.compare(threads, executor("loky", with_loky, processes=True), packages=["loky"])
def test_thumbnails(executor):
    return list(executor.map(thumbnail, range(64)))
