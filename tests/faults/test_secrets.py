"""A secret goes into every way in, and is looked for in every way out.

New options, forms of a report and commands are found by their tables: what they take and write is looked at, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from example import Example
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pytest_ftgate import cli
from pytest_ftgate.declare.options import Option, read, table
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.kit.hiding import HIDDEN, without_secrets
from pytest_ftgate.report.json import formats

UNRESERVED = string.ascii_letters + string.digits + "-._~"
IN_ADDRESSES = f"{UNRESERVED}%!$&()*+,;="
"""What a password may hold as it is; anything else is written with a `%`."""
# It begins with what no text of ours holds, so that what is found is a secret.
secrets = st.text(UNRESERVED, min_size=8, max_size=30).map("Zq7".__add__)
passwords = st.text(IN_ADDRESSES, min_size=1, max_size=30).map("Zq7".__add__)
NAMES = {"python", "baselines", "report", "update", "against", "existing"}
"""Options whose values are names that a user gives: of targets, folders, files, cells and commits."""


def address(secret: str) -> str:
    return f"https://user:{secret}@index.invalid/simple"


# ---- texts

AROUND = st.text(st.characters(exclude_characters="@:=?&/-", exclude_categories=["Cs"]), max_size=20)


@given(
    passwords, st.sampled_from(["user:", "", "a.b:"]), AROUND, AROUND, st.sampled_from(["https", "git+https", "ssh"])
)
def test_an_address_keeps_all_but_its_credentials(secret: str, user: str, before: str, after: str, scheme: str) -> None:
    text = f"{before} {scheme}://{user}{secret}@host:8080/path@v1?a=b@c {after}"
    assert without_secrets(text) == f"{before} {scheme}://{HIDDEN}@host:8080/path@v1?a=b@c {after}"
    assert without_secrets(without_secrets(text)) == without_secrets(text)


@given(secrets, st.sampled_from(["PYPI_TOKEN={}", "?sig=1&access_token={}", "--api-key={}", "--password {}"]))
def test_what_stands_beside_the_name_of_a_secret_goes(secret: str, form: str) -> None:
    text = f"echo {form.format(secret)} 1"
    assert without_secrets(text) == f"echo {form.format(HIDDEN)} 1"


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:{port}/users/@me",
        "https://host:8080/a@b",
        "http://[::1]:80/@x",
        "ssh://git@host/x.git",
        "sorted(words, token=next(it))",
        "--tokenizer fast",
        "TOKENS=3",
        "mail me@host",
        "a://b\nc@d",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


@given(
    st.recursive(st.text(max_size=30) | passwords.map(address), lambda each: st.lists(each, max_size=4), max_leaves=8)
)
def test_json_stays_json(value: Any) -> None:
    def hidden(value: Any) -> Any:
        return [hidden(each) for each in value] if isinstance(value, list) else without_secrets(value)

    text = json.dumps(value)
    assert "Zq7" not in without_secrets(text)
    assert json.dumps(json.loads(without_secrets(text))) == without_secrets(text)


def test_a_long_text_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that goes back over what it has seen would take hours: this test would not end."""
    for part in ("-", "://", "://a:b", "TOKEN_", "--token", "?token", "a://b:x/", "authorization: "):
        without_secrets(part * (200_000 // len(part)))


# ---- options: errors


@settings(max_examples=300)
@given(
    st.sampled_from(table()),
    secrets,
    st.sampled_from(["{}", "'{}", "{0} {0}", "{0},{0}", "$ {}", "{} x"]),
)
def test_no_error_quotes_a_secret_of_an_option(option: Option, secret: str, form: str) -> None:
    value = form.format(address(secret))
    said = [refusal({option.name: [value]}, {}, option), refusal({}, {option.name: value}, option)]
    assert not [text for text in said if secret in text]


def refusal(cli: Mapping[str, Any], ini: Mapping[str, Any], option: Option) -> str:
    try:
        read(cli, ini, [option])
    except FtgateError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("word", ["against", "existing", "report"])
def test_no_usage_error_quotes_credentials(pytester: pytest.Pytester, scripted_runs: None, word: str) -> None:
    example = Example(pytester, {"pytest.ini": "[pytest]\nftgate_python = 3.14t\n", "test_a.py": "def test_it(): ..."})
    result = example.run_pytest("--ftgate", f"--ftgate-{word}={address('Zq7secret')}")
    said = result.stdout.str() + result.stderr.str()
    assert "Zq7secret" not in said
    assert result.ret == pytest.ExitCode.USAGE_ERROR, said


# ---- whole runs

TESTS = """
    import os
    import pytest
    from pytest_ftgate import command, load

    TAKEN = {name: os.environ[name] for name in ("ONE_TOKEN", "OTHER_TOKEN", "PLAIN")}

    @ftgate.compare(
        threads,
        serial,
        command("own", ["own", f"--index={os.environ['ADDRESS']}"], env={"PLAIN": TAKEN["PLAIN"]}),
        workers=[1, 2],
        env={"PLAIN": TAKEN["PLAIN"], "ADDRESS": os.environ["ADDRESS"]},
        packages=[f"own @ {os.environ['ADDRESS']}"],
    )
    def test_first(worker):
        return 1

    @ftgate.compare(threads, workers=1, env=[{"KEY_TOKEN": TAKEN["ONE_TOKEN"]}, {"KEY_TOKEN": TAKEN["OTHER_TOKEN"]}])
    def test_in_ids(worker):
        return 1

    @ftgate.contract("wall < 1 us")
    @ftgate.compare(threads, workers=1, env=[{"WHERE": os.environ["ADDRESS"]}, {"WHERE": TAKEN["OTHER_TOKEN"]}])
    def test_broken(worker):
        return 1

    @ftgate.compare(threads, workers=1)
    def test_missing(worker):
        return 1

    def test_plain(): ...
"""
CONFTEST = """
    import os
    import fake_run
    from fake_launcher import failed

    def start(self, request):
        if "missing" in request.cell.nodeid:  # as what an installer, a server or a client prints
            raise failed(f"no {os.environ['ADDRESS']}", "Bearer " + os.environ["ONE_TOKEN"])
        return fake_run.FakeLauncher.start(self, request)

    fake_run.ByName.start = start
"""
QUICK = ("-p", "fake_run", "--ftgate", "-oftgate_launches=2", "-oftgate_iterations=2", "--ftgate-seed=3")


def carrying(option: Option, secret: str, *, anywhere: bool) -> str | None:
    """A value that the option takes and that has a secret, in an address or `anywhere`; None if it can have none."""
    addresses = (f"--find-links {address(secret)} own", address(secret))
    for value in (f"$ echo {secret}", secret) if anywhere else addresses:
        try:
            option.parse(value)
        except (ValueError, FtgateError):
            continue
        return value
    return None


def hiding(secret: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """Words of the command line that have the secret; variables have it, too."""

    def given(part: str, *, anywhere: bool = False) -> dict[Option, str]:
        options = [option for option in table() if option.name not in NAMES]
        found = {option: carrying(option, secret + part, anywhere=anywhere) for option in options}
        return {option: value for option, value in found.items() if value is not None}

    for option, value in given("word").items():
        if not option.ini_only:
            yield (f"{option.cli}={value}",)
    for option, value in given("ini").items():
        yield ("-o", f"{option.dest}={value}")
    theirs = [f"-o{option.dest}={value}" for option, value in given("addopts", anywhere=True).items()]
    theirs += [f"{option.cli}={value}" for option, value in given("more", anywhere=True).items() if not option.ini_only]
    assert any(word.startswith("--ftgate-install=") for word in theirs)
    os.environ["PYTEST_ADDOPTS"] = shlex.join([*theirs, "-o", f"pythonpath={address(secret)}"])
    for name in ("ADDRESS", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_DEFAULT_INDEX", "HTTPS_PROXY"):
        os.environ[name] = address(secret)
    os.environ |= {"PLAIN": f"{secret}plain", "ONE_TOKEN": f"{secret}one", "OTHER_TOKEN": f"{secret}other"}
    os.environ |= {"UV_INDEX_OWN_PASSWORD": f"{secret}own", "GITHUB_ACTIONS": "true"}
    os.environ["GITHUB_STEP_SUMMARY"] = str(folder / "summary")
    yield ("-o", f"cache_dir={address(secret)}", f"--deselect=PYPI_TOKEN={secret}")


@pytest.fixture
def example(pytester: pytest.Pytester, scripted_runs: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    before = dict(os.environ)
    yield Example(
        pytester, {"pytest.ini": "[pytest]\nftgate_python = 3.14t\n", "test_a.py": TESTS, "conftest.py": CONFTEST}
    )
    os.environ.clear()
    os.environ |= before


def left(folder: Path) -> dict[str, bytes]:
    """The files that a run has left in a folder, by name, and their names."""
    found = {
        str(path.relative_to(folder)): path for path in folder.rglob("*") if path.suffix not in (".py", ".pyc", ".ini")
    }
    return {
        name: name.encode() + b"\n" + (path.read_bytes() if path.is_file() else b"") for name, path in found.items()
    }


def guessed(out: Mapping[str, bytes], texts: list[str]) -> list[tuple[str, str]]:
    """Where a digest of a text stands, as who knows all but a secret could try it out."""
    digests = {
        made(text.encode()).hexdigest()[:6]: text
        for text in texts
        for made in (hashlib.sha256, hashlib.sha1, hashlib.md5, hashlib.sha512, hashlib.blake2b, hashlib.blake2s)
    }
    words = (
        (name, word[:6])
        for name, content in out.items()
        for word in re.findall(r"[0-9a-f]{8,}", content.decode("utf-8", "replace"))
    )
    return [(name, digests[word]) for name, word in words if word in digests]


def run(example: Example, secret: str, *more: str) -> dict[str, bytes]:
    """What a run leaves and prints that has the secret everywhere; one that no way out has."""
    words = [word for given in hiding(secret, example.folder) for word in given]
    reports = [f"--ftgate-report={kind}:out.{kind}" for kind in ("json", *formats())]
    result = example.run_pytest(*QUICK, *reports, *words, *more)
    assert {"passed", "failed"} <= result.parseoutcomes().keys(), result.stdout.str()
    assert len(example.rows("out.json")) == 10
    out = left(example.folder)
    assert {"summary", "junit.xml", *(f"out.{kind}" for kind in ("json", *formats()))} <= out.keys()
    out |= {"stdout": result.stdout.str().encode(), "stderr": result.stderr.str().encode()}
    for name, content in out.items():
        place = content.find(secret.encode())
        assert place < 0, f"{name}: {content[max(0, place - 300) : place + 50]!r}"
    for name in ("stdout", "out.json", "out.html", "out.md", "junit.xml", "summary"):
        assert HIDDEN.encode() in out[name], name
    return out


@settings(
    max_examples=2,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(secret=secrets)
def test_no_way_out_has_what_came_in(example: Example, secret: str) -> None:
    out = run(example, secret, "-vv", "--ftgate-update", "--junit-xml=junit.xml")
    assert any(name.startswith("baselines/") for name in out)
    values = [secret, f"{secret}plain", f"{secret}one", address(secret)]
    assert guessed(out, [*values, *(f"PLAIN={value}" for value in values)]) == []


def test_neither_workers_nor_commands_say_it(
    example: Example, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "Zq7secret"
    run(example, secret, "-n1", "--ftgate-shard=1/1", "--junit-xml=junit.xml")
    assert HIDDEN in example.report("out.json")["shard"]["options"]["--ftgate-install"]
    monkeypatch.chdir(example.folder)
    actions: Any = cli.build_parser()._subparsers
    commands: list[tuple[str, ...]] = []
    for name, parser in actions._group_actions[0].choices.items():
        own = parser._subparsers
        commands += [(name, more) for more in own._group_actions[0].choices] if own else [(name,)]
    assert {("report",), ("decide",), ("history",), ("baseline", "show")} <= set(commands)
    for words in commands:
        with contextlib.suppress(SystemExit):  # it takes more words
            cli.main(words)
        said = capsys.readouterr()
        assert secret not in said.out + said.err, words
    assert [name for name, content in left(example.folder).items() if secret.encode() in content] == []


def test_what_a_failed_install_prints_is_kept_without_it(
    pytester: pytest.Pytester, interpreters_on_path: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        @ftgate.compare(serial, workers=1)
        def test_it(worker): ...
    """
    example = Example(pytester, {"pytest.ini": "[pytest]\nftgate_python = 3.14t\n", "test_a.py": text})
    secret = "Zq7secret"
    monkeypatch.setenv("OWN_TOKEN", f"{secret}token")
    noise = " ".join(f"line{number}" for number in range(60))
    install = f"$ printf '%s\\n' {address(secret)} $OWN_TOKEN {noise}; exit 3"
    words = ("--ftgate", f"--ftgate-install={install}", "-v", "--junit-xml=junit.xml", "--ftgate-report=html:out")
    result = example.run_fresh(*words)
    [row] = example.rows()
    assert row["verdict"]["decision"] == "error"
    out = {**left(example.folder), "stdout": result.stdout.str().encode(), "stderr": result.stderr.str().encode()}
    assert [name for name, content in out.items() if secret.encode() in content] == []
    [log] = [content for name, content in out.items() if name.endswith(".log")]
    assert f"https://{HIDDEN}@index.invalid/simple\n{HIDDEN}\nline0\n".encode() in log
    assert f"printf '%s\\n' https://{HIDDEN}@index.invalid/simple $OWN_TOKEN".encode() in out["stdout"]
