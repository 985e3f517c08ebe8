import pytest

from pytest_ftgate import command, ftgate, load


@ftgate.serve(
    command("1x8", ["granian", "--interface", "wsgi", "--blocking-threads", "8", "--port", "{port}", "app:app"]),
    command("1x64", ["granian", "--interface", "wsgi", "--blocking-threads", "64", "--port", "{port}", "app:app"]),
    ready="http://127.0.0.1:{port}/json",
    load=load("{path}", connections=64),
    duration=10,
    window=2,
    timeout=30,
    packages=["granian", "flask"],
)
@pytest.mark.parametrize("path", ["/json", "/wait"])
def test_wsgi(server, path):
    assert server.get(path)
