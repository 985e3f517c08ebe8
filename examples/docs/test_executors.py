import json
from pytest_ftgate import ftgate, interpreters, processes, threads

TEXT = json.dumps([{"id": number, "name": f"user {number}"} for number in range(200)])


@ftgate.compare(threads, processes, interpreters, workers=[1, 2])
def test_parse(worker):
    return len(json.loads(TEXT))
