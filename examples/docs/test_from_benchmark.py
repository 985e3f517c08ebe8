import json

from pytest_ftgate import ftgate, serial, threads

TEXT = json.dumps({str(i): [i] * 8 for i in range(200)})


# With pytest-benchmark: def test_parse(benchmark): benchmark(json.loads, TEXT)
@ftgate.compare(serial, threads, workers=[1, 8])
def test_parse(worker):
    json.loads(TEXT)
