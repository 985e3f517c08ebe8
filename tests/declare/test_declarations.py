"""Declarations of roles, commands and servers: what they become, and what is said of wrong ones."""

# Type checkers refuse what is refused here.
# mypy: disable-error-code="arg-type, call-arg, list-item, dict-item"

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from example import Example

from pytest_ftgate import command, executor, ftgate, interpreters, load, serial, tasks, threads
from pytest_ftgate.declare import plan
from pytest_ftgate.declare.arguments import DeclarationError
from pytest_ftgate.declare.tests import check_arguments, check_placeholders, spec_of
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.measure import cell_run
from pytest_ftgate.model.spec import Load, Service, Source, Spec, parse_target

READY = "http://127.0.0.1:{port}/"
ROLES = {"producer": 2, "writer": 1}


def source_of(body: Any) -> Source:
    return Source(path="test_a.py", line=body.__ftgate__.line, module="test_a", qualname=body.__name__)


def spec(body: Any) -> Spec:
    return spec_of(body.__ftgate__, source_of(body), f"test_a.py::{body.__name__}")


def labels(body: Any, *targets: str) -> list[str]:
    return [choice.label for choice in plan.choices(spec(body), [parse_target(target) for target in targets])]


def worked(worker: Any) -> None: ...


def asked(server: Any) -> None: ...


async def awaited(worker: Any) -> None: ...


async def answered(server: Any) -> None: ...


def compared(*args: Any, **kwargs: Any) -> Any:
    def test_it(worker: Any) -> None: ...

    return ftgate.compare(*args, **kwargs)(test_it)


def served(*args: Any, **kwargs: Any) -> Any:
    def test_it(server: Any) -> None: ...

    given: dict[str, Any] = {"ready": READY, "load": load("/"), **kwargs}
    return ftgate.serve(*args, **given)(test_it)


# ---- executors and event loops of the user's own


def made(workers: int) -> None: ...


def driven(executor: Any) -> None: ...


def test_an_executor_of_ones_own_is_named_by_its_name() -> None:
    body = ftgate.compare(threads, executor("loky", made, processes=True), workers=[1, 2])(driven)
    assert labels(body, "3.14t") == ["3.14t-threads-w1", "3.14t-loky-w1", "3.14t-threads-w2", "3.14t-loky-w2"]
    own = spec(body).executors[1]
    assert (own.kind, own.name, own.in_processes, own.qualifier) == ("executor", "loky", True, "loky")


def test_tasks_of_another_loop_stand_beside_tasks() -> None:
    body = ftgate.compare(tasks, tasks("uvloop", made))(awaited)
    assert labels(body, "3.14") == ["3.14-tasks-w2", "3.14-uvloop-w2"]


def factory(token: Any) -> Any:
    return ftgate.compare(token)(driven if token.kind == "executor" else awaited)


LOKY = "two executors are named 'loky'"
WRONG_FACTORIES: dict[str, tuple[Callable[[], Any], str]] = {
    "a name": (lambda: factory(executor("lo ky", made)), "executor(...) takes a name made of letters"),
    "ours": (lambda: factory(executor("fork", made)), "that is not an executor's: 'fork'"),
    "no function": (
        lambda: factory(executor("loky", "loky")),
        "takes a function that gets the number of workers and returns an Executor",
    ),
    "argument": (
        lambda: factory(executor("loky", made, process=True)),
        "unknown argument 'process' (did you mean 'processes'?)",
    ),
    "processes": (lambda: factory(executor("loky", made, processes=1)), "processes= takes True or False, not 1"),
    "no loop": (lambda: factory(tasks("uvloop")), "another kind is written tasks(name, loop_factory)"),
    "None": (lambda: factory(tasks("uvloop", None)), "takes a function that gets nothing, returns a loop, not None"),
    "not driven": (
        lambda: compared(executor("loky", made)),
        "only our own workers can be released together",
    ),
    "a kind each": (
        lambda: ftgate.compare(executor("loky", made), executor("loky", made, processes=True))(driven),
        LOKY,
    ),
    # The second was dropped.
    "a function each": (lambda: ftgate.compare(executor("loky", made), executor("loky", len))(driven), LOKY),
}


# ---- roles


def sharded(*executors: Any, workers: Any = ROLES, **options: Any) -> Any:
    test = compared(*executors, workers=workers, **options)
    test.role("writer")(lambda worker: None)
    return test


def test_roles_are_counted_together_and_stand_in_the_id() -> None:
    role_counts = [{"producer": 8, "writer": 1}, {"producer": 8, "writer": 4}]
    test = sharded(threads, processes=["fork"], workers=role_counts)
    assert spec(test).workers == (9, 12)
    assert spec(test).role_counts == tuple(tuple(role_count.items()) for role_count in role_counts)
    assert labels(test, "3.14") == [
        "3.14-threads-producer8-writer1",
        "3.14-fork-producer8-writer1",
        "3.14-threads-producer8-writer4",
        "3.14-fork-producer8-writer4",
    ]
    found = plan.choices(spec(test), [parse_target("3.14")])
    assert [choice.roles for choice in found[1:3]] == [tuple(role_count.items()) for role_count in role_counts]


def test_a_role_has_one_body_for_all_or_one_of_an_executor() -> None:
    test = compared(threads, tasks, workers=ROLES)
    test.variant(tasks)(awaited)
    test.role("writer")(worked)
    test.role("writer", tasks)(awaited)
    assert spec(test).role_counts
    declared = test.__ftgate__
    assert declared.role_for("writer", "threads", None) is worked
    assert declared.role_for("writer", "tasks", None) is awaited
    assert declared.role_for("reader", "tasks", None) is None
    test.role("writer", threads, tasks)(other := lambda worker: None)  # as with variants, the last one fits
    assert declared.role_for("writer", "tasks", None) is other
    test.role("writer")(worked)
    assert declared.role_for("writer", "threads", None) is other


def _written(act: Callable[[Any], object], *executors: Any, workers: Any = ROLES) -> Any:
    test = compared(*executors, workers=workers)
    act(test)
    return test


def _both(body: Callable[..., Any]) -> Callable[[Any], object]:
    return lambda test: test.role("writer")(body)


WRONG_ROLES: dict[str, tuple[Callable[[], Any], str]] = {
    "one role": (lambda: sharded(threads, workers={"writer": 1}), "takes two or more roles"),
    "no whole number": (
        lambda: sharded(threads, workers={"producer": 8, "writer": 0}),
        "a whole number from 1 for each",
    ),
    "a bad name": (lambda: sharded(threads, workers={"producer": 8, "writer-1": 2}), "whose names are letters"),
    "other roles": (
        lambda: sharded(threads, workers=[ROLES, {"writer": 1, "producer": 2}]),
        "the same roles in the same order",
    ),
    "a number beside": (lambda: sharded(threads, workers=[ROLES, 3]), "the same roles in the same order, not 3"),
    "no body": (lambda: compared(threads, workers=ROLES), "the role 'writer' has no body for threads"),
    "no roles": (lambda: _written(_both(worked), threads, workers=2), "no such role; workers= has no roles"),
    "leads": (
        lambda: _written(lambda test: (_both(worked)(test), test.role("producer")(worked)), threads),
        "the test itself is the body of 'producer', the leading role",
    ),
    "no executor": (
        lambda: _written(lambda test: test.role("writer", "threads")(worked), threads),
        "@test_it.role('writer'): 'threads' is not an executor",
    ),
    "another executor": (
        lambda: _written(lambda test: test.role("writer", tasks)(awaited), threads),
        "@test_it.role('writer'): tasks is not among the executors of the test",
    ),
    "takes no worker": (lambda: _written(_both(asked), threads), "asked is the body of a role: it takes `worker`"),
    "serial": (lambda: sharded(serial), "serial runs one worker after another"),
    "command": (lambda: sharded(threads, command("x", ["x"])), "a command has no roles"),
    "coroutine": (lambda: _written(_both(awaited), threads), "tasks take an `async def`, other executors a plain"),
    "stop": (lambda: _written(lambda test: test.stop(worked), threads, workers=2), "it needs workers= with roles"),
}


def test_stop_and_roles_take_what_they_are_given() -> None:
    test = sharded(interpreters)
    test.stop(lambda: None)
    with pytest.raises(DeclarationError, match=r"is @test\.stop, which takes one argument: the shared state"):
        check_arguments(test.__ftgate__, source_of(test), {})
    test = compared(threads, workers=ROLES)

    def writer(worker: Any, tmp_path: Path) -> None: ...

    test.role("writer")(writer)
    with pytest.raises(DeclarationError, match="fixture 'tmp_path' cannot be used"):
        check_arguments(test.__ftgate__, source_of(test), {})


# ---- commands


def test_a_command_runs_once_and_not_a_target_each() -> None:
    test = compared(threads, command("rust", ["native", "--workers", "{workers}"], build=["make"]), workers=[2, 8])
    assert labels(test, "3.14t", "3.14") == [
        "3.14t-threads-w2",
        "rust-w2",
        "3.14-threads-w2",
        "3.14t-threads-w8",
        "rust-w8",
        "3.14-threads-w8",
    ]
    program = spec(test).executors[1].program
    assert program is not None
    assert (program.argv, program.build) == (("native", "--workers", "{workers}"), ("make",))


def test_a_command_that_is_told_no_number_of_workers_stands_once() -> None:
    assert labels(compared(command("c", ["./c"]), workers=[2, 8]), "3.14") == ["c"]
    counted = command("c", ["./c"], env={"THREADS": "{workers}"})
    assert labels(compared(counted, workers=[2, 8]), "3.14") == ["c-w2", "c-w8"]


WRONG_COMMANDS: dict[str, tuple[Callable[[], Any], str]] = {
    "no name": (lambda: compared(threads, command("", ["x"])), "takes a name made of letters"),
    "an executor's name": (lambda: compared(threads, command("spawn", ["x"])), "that is not an executor's: 'spawn'"),
    "one text": (
        lambda: compared(threads, command("x", "make all")),
        "takes a command line as a list of strings, not 'make all'",
    ),
    "no words": (lambda: compared(threads, command("x", [])), "as a list of strings, not []"),
    "build": (lambda: compared(threads, command("x", ["x"], build="make")), "build= takes a command line as a list"),
    "unknown": (
        lambda: compared(threads, command("x", ["x"], biuld=["make"])),
        "unknown argument 'biuld' (did you mean 'build'?)",
    ),
    "env": (lambda: compared(threads, command("x", ["x"], env={"A": 1})), "env= takes a dict of strings"),
    "pythons": (lambda: compared(threads, command("x", ["x"], pythons=["3.14"])), "pythons= is for servers"),
    "two of a name": (lambda: compared(command("x", ["x"]), command("x", ["y"])), "two executors are named 'x'"),
    # Options of a comparison.
    "programs": (lambda: compared(threads, programs=["cargo"]), "programs= takes a dict such as"),
    "packages": (lambda: compared(threads, packages="flask"), "packages= takes a list of requirements"),
    "a package": (lambda: compared(threads, packages=["-r more.txt"]), "'-r more.txt' is an option"),
    "window": (lambda: compared(threads, window=1), "window= is the length of an iteration of duration="),
    "windows": (lambda: compared(threads, duration=1, window=0), "window= takes a number of seconds above 0"),
    "ready": (lambda: compared(threads, ready="x"), "unknown argument 'ready'"),
}


def test_a_placeholder_that_nothing_fills_in() -> None:
    test = compared(command("x", ["x", "{wrokers}"]))
    with pytest.raises(DeclarationError, match=r"nothing fills in \{wrokers\} \(did you mean 'workers'"):
        check_placeholders(test.__ftgate__, spec(test), [])
    test = compared(command("x", ["x", "{size}", "{}", "a{1..3}"]))
    check_placeholders(test.__ftgate__, spec(test), ["size"])


def test_a_command_has_no_port_and_a_server_no_seconds() -> None:
    for test, word in ((compared(command("x", ["{port}"])), "port"), (served(["x", "{seconds}"]), "seconds")):
        with pytest.raises(DeclarationError, match=rf"nothing fills in \{{{word}\}}"):
            check_placeholders(test.__ftgate__, spec(test), [])


def test_seconds_are_those_of_a_window() -> None:
    words = ["x", "{seconds}"]
    told = compared(command("x", words), duration=1)
    check_placeholders(told.__ftgate__, spec(told), [])
    of_environment = command("x", ["x"], env={"SECONDS": "{seconds}"})
    for test in (compared(command("x", words)), compared(of_environment)):
        with pytest.raises(DeclarationError, match="the length of an iteration of duration=, which is missing"):
            check_placeholders(test.__ftgate__, spec(test), [])
    built = compared(command("x", words, build=words), duration=1)
    with pytest.raises(DeclarationError, match="build= runs once, before any window"):
        check_placeholders(built.__ftgate__, spec(built), [])


def test_two_cells_of_one_name() -> None:
    test = compared(command("x", ["x", "{workers}"]), command("x-w2", ["x"]))
    with pytest.raises(FtgateError, match=r"test_a.py:.* two cells would be named x-w2"):
        labels(test, "3.14")


def test_a_parameter_may_not_hide_a_placeholder() -> None:
    test = compared(command("x", ["x"]))
    with pytest.raises(DeclarationError, match="'port' is an argument of the cell itself"):
        check_arguments(test.__ftgate__, source_of(test), {"port": False})


# ---- servers


def test_a_server_has_a_cell_for_each_target_and_program() -> None:
    test = served(["serve", "{port}"], load=load("/x", connections=3, generator="oha"), packages=["flask"])
    found = spec(test)
    assert labels(test, "3.14", "3.14t") == ["3.14-server", "3.14t-server"]
    assert found.service == Service(ready=READY, load=Load(path="/x", connections=3, generator="oha"))
    assert (found.body, found.reuse, found.duration_s, found.window_s) == ("server", "pool", 6.0, 1.0)
    assert found.packages == ("flask",)


def test_programs_for_some_targets_alone() -> None:
    test = served(
        command("2x5", ["serve"]),
        command("free", ["serve", "{workers}"], pythons=["3.14t"]),
        workers=[1, 2],
    )
    assert labels(test, "3.14", "3.14t") == ["3.14-2x5", "3.14t-2x5", "3.14t-free-w1", "3.14t-free-w2"]


def registered(name: str) -> Any:
    """A body beside a server."""
    test = served(["x", "{port}"])
    getattr(test, name)(lambda server: None)
    return test


WRONG_SERVERS: dict[str, tuple[Callable[[], Any], str]] = {
    "no command": (served, "it needs a command line"),
    "no ready": (
        lambda: served(["x"], ready=None),
        "ready= takes the URL that answers once the server is ready, not None",
    ),
    "scheme": (lambda: served(["x"], ready="ftp://x/"), "ready= takes the URL"),
    "no load": (lambda: served(["x"], load="/"), "load= takes load(path, connections=...), not '/'"),
    "connections": (lambda: served(["x"], load=load("/", connections=0)), "connections= takes a whole number from 1"),
    "generator": (lambda: served(["x"], load=load("/", generator="ab")), "generator= takes wrk or oha, not 'ab'"),
    "load's words": (
        lambda: served(["x"], load=load("/", header={})),
        "load(): unknown argument 'header' (did you mean 'headers'?); it takes method, body",
    ),
    "no path": (lambda: served(["x"], load=load([])), "load() takes a path, a list of paths, or a dict such as"),
    "a path": (lambda: served(["x"], load=load({"/a b": 1})), "a path is a text without spaces such as"),
    "path of": (lambda: served(["x"], load=load([b"/a"])), "a path is a text without spaces such as"),
    "path twice": (lambda: served(["x"], load=load(["/a", "/a"])), "a path is twice in ['/a', '/a']; a dict says"),
    "times": (lambda: served(["x"], load=load({"/a": 0.5})), "each path comes a whole number of times from 1"),
    "many": (lambda: served(["x"], load=load({"/a": 999, "/b": 2})), "add up to more than 1000; make them smaller"),
    "method": (lambda: served(["x"], load=load("/", method="post")), "method= takes GET, POST, PUT, PATCH, DELETE"),
    "body": (
        lambda: served(["x"], load=load("/", body={"a": 1})),
        "not {'a': int}; json.dumps(...) makes a text of it",
    ),
    "headers": (lambda: served(["x"], load=load("/", headers=["a: b"])), "headers= takes a dict such as"),
    "header": (lambda: served(["x"], load=load("/", headers={"a b": "c"})), "takes names of headers such as"),
    "value": (
        lambda: served(["x"], load=load("/", headers={"a": "b\r\nc: d"})),
        "header a takes one line of ASCII text",
    ),
    "rate": (lambda: served(["x"], load=load("/", rate=0)), "rate= takes requests per second above 0, not 0"),
    "rate of wrk": (
        lambda: served(["x"], load=load("/", rate=5, generator="wrk")),
        "wrk cannot send at a constant rate=; take generator='oha', or drop rate=",
    ),
    "roles": (lambda: served(["x"], workers=ROLES), "workers= of a server takes whole numbers"),
    "reuse": (lambda: served(["x"], reuse="pool"), "unknown argument 'reuse'"),
    "build": (lambda: served(command("x", ["x"], build=["make"])), "a server has no build step"),
    "workers": (lambda: served(["x", "{port}"], workers=[1, 2]), "{workers}, which no command line has"),
    "awaited": (
        lambda: ftgate.serve(["x", "{port}"], ready=READY, load=load("/"))(answered),
        "answered is a coroutine, which is never awaited",
    ),
    "a worker": (
        lambda: ftgate.serve(["x"], ready=READY, load=load("/"))(worked),
        "worked takes `server` and checks an answer",
    ),
    **{
        name: (partial(registered, name), f"@test_it.{name} is for @ftgate.compare; a server is a program")
        for name in ("shared", "check", "stop")
    },
}


WRONG = {"factory": WRONG_FACTORIES, "role": WRONG_ROLES, "command": WRONG_COMMANDS, "server": WRONG_SERVERS}


@pytest.mark.parametrize(
    ("make", "said"),
    [pytest.param(*each, id=f"{of}: {name}") for of, cases in WRONG.items() for name, each in cases.items()],
)
def test_what_cannot_be_declared_is_refused_with_its_place(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        spec(make())
    assert re.match(r"test_a\.py:\d+: @ftgate\.(compare|serve) of \w+: ", str(caught.value))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ready": READY.replace(":{port}", "")}, "has no {port}: a server gets a new free port"),
        ({"argv": ["x", "--port", "8000"]}, "command 'server' does not get its port"),
    ],
)
def test_a_server_is_told_its_port_and_asked_at_it(wrong: dict[str, Any], said: str) -> None:
    given = {"argv": ["x", "{port}"], **wrong}
    test = served(given.pop("argv"), **given)
    with pytest.raises(DeclarationError) as caught:
        check_placeholders(test.__ftgate__, spec(test), [])
    assert said in str(caught.value)
    told = served(command("x", ["x"], env={"PORT": "{port}"}))
    check_placeholders(told.__ftgate__, spec(told), [])


def test_what_a_program_is_asked_to_do_tells_baselines_apart() -> None:
    def measured(test: Any) -> str:
        (cell, *_) = plan.choices(spec(test), [parse_target("3.14")])
        return cell_run.measures(cell, spec(test))

    kinds = [
        served(["x", "{port}"]),
        served(["x", "--fast", "{port}"]),
        served(["x", "{port}"], load=load("/", connections=128)),
        served(["x", "{port}"], load=load("/", rate=128)),
        served(["x", "{port}"], load=load("/", body="x")),
        served(["x", "{port}"], load=load(["/", "/b"])),
        served(["x", "{port}"], packages=["granian==2.9"]),
        served(["x", "{port}"], window=2),
        compared(threads, packages=["numpy"]),
    ]
    assert len(set(map(measured, kinds))) == len(kinds)
    assert measured(served(["x", "{port}"])) == measured(kinds[0])
    assert measured(compared(threads)) == ""


def test_what_a_load_sends() -> None:
    def sent(*args: Any, **kwargs: Any) -> Load:
        service = spec(served(["x", "{port}"], load=load(*args, **kwargs))).service
        assert service is not None
        return service.load

    assert sent("/a").mix == (("/a", 1),)
    assert sent(["/a", "/b"]).mix == (("/a", 1), ("/b", 1))
    assert sent({"/a": 6, "/b": 2}).mix == (("/a", 3), ("/b", 1))
    posted = sent("/a", body=b"\xff", headers={"Content-Type": "image/gif"})
    assert (posted.method, posted.body_bytes, posted.headers) == ("POST", b"\xff", (("Content-Type", "image/gif"),))
    assert sent("/a", method="PUT", body="{a}").method == "PUT"
    steady = sent("/a", rate=500)
    assert (steady.rate, steady.generator) == (500.0, "oha")


def test_what_is_not_asked_of_a_load_does_not_change_its_digest() -> None:
    service = spec(served(["x", "{port}"])).service
    assert service is not None
    # Stored baselines hold a digest of this text.
    assert repr(service.load) == "Load(path='/', connections=10, generator=None)"


def test_servers_and_roles_are_collected(pytester: pytest.Pytester) -> None:
    text = f"""
        import pytest
        from pytest_ftgate import load

        @ftgate.compare(threads, workers={ROLES})
        def test_it(worker): ...

        @test_it.role("writer")
        def writer(worker): ...

        @pytest.mark.parametrize("path", ["/a", "/b"])
        @ftgate.serve(["x", "{{port}}"], ready="{READY}", load=load("{{path}}"))
        def test_server(server, path): ...

        @ftgate.serve(["x", "{{prt}}"], ready="{READY}", load=load("/"))
        def test_wrong(server): ...
    """
    result = Example(pytester, {"test_a.py": text}).run_pytest("--collect-only", "-q", "--ftgate-python=3.14")
    result.stdout.fnmatch_lines(["*@ftgate.serve of test_wrong: nothing fills in {prt} ?did you mean 'port'*"])
    text = text.replace("{prt}", "{port}")  # another size: both may be written in one second
    result = Example(pytester, {"test_a.py": text}).run_pytest("--collect-only", "-q", "--ftgate-python=3.14")
    result.stdout.fnmatch_lines(
        [
            "*test_it?3.14-threads-producer2-writer1?",
            "*test_server?3.14-server-/a?",
            "*test_server?3.14-server-/b?",
            "*test_wrong?3.14-server?",
        ]
    )
