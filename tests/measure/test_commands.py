"""Programs as executors: their words, what a run says, launches of real little programs, and tandems with them."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_launcher import EXECUTORS, FakeLauncher, measurement_of, spec_of
from project import executable

from pytest_ftgate.judge.judge import hypotheses
from pytest_ftgate.kit import marks, processes
from pytest_ftgate.kit.text import expanded
from pytest_ftgate.kit.values import Metric
from pytest_ftgate.measure.launch import CellUnsupported, LaunchFailed, request_here
from pytest_ftgate.measure.launchers import process as output
from pytest_ftgate.measure.launchers import programs
from pytest_ftgate.measure.launchers.command import (
    WAITS_UNKNOWN,
    CommandHandle,
    CommandLauncher,
    ProgramOutput,
    ProgramRun,
    iteration_of,
    program_environment,
    program_output,
    run_here,
)
from pytest_ftgate.measure.launchers.factory import Launchers, missing_programs
from pytest_ftgate.measure.launchers.process import Process
from pytest_ftgate.measure.round_plan import Allowance
from pytest_ftgate.measure.watch import memory
from pytest_ftgate.model.sample import Iteration, Sample, Timer, executor_cell
from pytest_ftgate.model.spec import Cell, Executor, Group, Load, Param, Program, Service, Source, Spec, Target
from pytest_ftgate.runner.protocol import COLD, MEASURED, WARMUP

MS = 1_000_000
WINDOW_NS = 250 * MS


# -- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("{workers}", "8"),
        ("--n={workers}:{folder}/x", "--n=8:/t/x"),
        ("{other} {} {0} {{workers}} ${workers}", "{other} {} {0} {8} $8"),
        ('{"a": {workers}}', '{"a": 8}'),
        ("{path}", "{workers}"),  # what was filled in is not looked at again
    ],
)
def test_placeholders_are_filled_in_once_and_other_braces_stay(word: str, expected: str) -> None:
    assert expanded([word], {"workers": "8", "folder": "/t", "path": "{workers}"}) == [expected]


def test_the_values_are_the_cells_with_parameters_as_they_print() -> None:
    spec = spec_of("threads", workers=3)
    (cell,) = cells_of(spec)
    cell = msgspec.structs.replace(
        cell, params=(Param(name="path", literal="'/json'"), Param(name="sizes", literal="(1, 2.5)"))
    )
    values = programs.values_of(cell, spec, "/env/bin/python", port=80)
    assert values == {
        "python": "/env/bin/python",
        "folder": str(Path("test_work.py").absolute().parent),
        "workers": "3",
        "path": "/json",
        "sizes": "(1, 2.5)",
        "port": "80",
    }


def test_a_program_is_looked_for_beside_the_python_then_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, elsewhere = tmp_path / "env" / "bin", tmp_path / "elsewhere"
    both = [executable(env / "one", ""), executable(elsewhere / "one", "")]
    two = executable(elsewhere / "two", "")
    (elsewhere / "plain").write_text("")
    monkeypatch.setenv("PATH", str(elsewhere))
    python = str(env / "python")
    assert programs.which("one", python) == str(both[0])
    assert programs.which("one", "") == str(both[1])
    assert programs.which("two", python) == str(two)
    assert programs.which("three", python) is None
    assert programs.which("plain", python) is None
    assert programs.which("elsewhere/two", python, str(tmp_path)) == str(two)
    assert programs.which(str(two), python) == str(two)
    assert programs.which("./two", python, str(tmp_path)) is None


def test_what_is_missing_names_the_mend() -> None:
    needs = (("sh", "never"), ("no-such-wrk", "apt install wrk"), ("no-such-apxs", "apt install apache2-dev"))
    assert programs.missing(needs[:1]) == ""
    assert programs.missing(needs[:2]) == "needs no-such-wrk: install it with `apt install wrk`"
    assert programs.missing(needs).endswith(", and no-such-apxs: install it with `apt install apache2-dev`")
    assert programs.reason_without("no-such-wrk", needs) == programs.missing(needs[:2])
    assert programs.reason_without("other", needs) == "needs other, which is not on PATH"
    assert programs.reason_without("./other", needs) == "needs ./other, which is not there"


# -- what a run says -----------------------------------------------------------------------------------------------


def test_the_last_line_that_is_an_object_counts() -> None:
    text = 'hello\n{"ops": 1}\n{"ops": 5, "seconds": 0.5, "version": "x"}\n[1]\n3\nbye {}\n'
    assert program_output(text) == ProgramOutput(ops=5, seconds=0.5)
    assert program_output("") is None
    assert program_output("[1]\nNone\n12") is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"ops": "many"}', "$.ops"),
        ('{"ops": -1}', "$.ops"),
        ('{"seconds": 0}', "$.seconds"),
        ('{"timers": {"wait": {"total_ns": 5}}}', "count"),
        ('{"counters": {"n": null}}', "$.counters"),
        ('{"ops": NaN}', "JSON is malformed"),
        (f'{{"peaks": {{"{"x" * 201}": 1}}}}', "length <= 200"),
    ],
)
def test_metrics_that_are_wrong_are_named(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("$", r"\$")):
        program_output(f"first\n{line}\nlast")


def test_a_turn_of_several_runs() -> None:
    runs = [
        ProgramRun(wall_ns=30 * MS, cpu_ns=5 * MS, output=ProgramOutput(ops=10, seconds=0.02)),
        ProgramRun(wall_ns=20 * MS, cpu_ns=1 * MS, output=ProgramOutput(ops=5)),
    ]
    assert iteration_of(runs) == Iteration(
        start_ns=10 * MS, work_ns=40 * MS, join_ns=0, wall_ns=50 * MS, cpu_ns=6 * MS, ops=15, rate=15 / 0.04
    )
    slower = [ProgramRun(wall_ns=MS, cpu_ns=0, output=ProgramOutput(ops=1, seconds=0.0011))]  # a clock that is not ours
    assert (iteration_of(slower).start_ns, iteration_of(slower).work_ns) == (0, MS)


# -- real programs -------------------------------------------------------------------------------------------------


def cells_of(spec: Spec, *targets: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            nodeid=f"{spec.nodeid}[{target}-{executor.label}-w{workers}]",
            target=Target(spec=target, request=target),
            executor=executor,
            workers=workers,
        )
        for target in targets or ("3.14",)
        for workers in spec.workers
        for executor in spec.executors
    )


def spec_with(*executors: Executor, path: Path = Path("test_work.py"), **declared: Any) -> Spec:
    spec = spec_of("threads", **declared)
    source = Source(path=str(path), line=1, module="test_work", qualname="test_work")
    return msgspec.structs.replace(spec, executors=executors, source=source)


def command(*argv: str, name: str = "rust", **fields: Any) -> Executor:
    return Executor(kind="command", program=Program(name=name, argv=argv, **fields))


class Bench:
    """Starts launches of commands that stand in `folder`, and ends them with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launcher = CommandLauncher()
        self.started: list[CommandHandle] = []

    def start(self, *argv: str, timeout_s: float = 20.0, needs: Any = (), workers: int = 2, **fields: Any) -> Any:
        spec = spec_with(command(*argv, **fields), path=self.folder / "test_work.py", workers=workers, programs=needs)
        (cell,) = cells_of(spec)
        request = request_here(cell, spec, sys.executable, timeout_s)
        request = msgspec.structs.replace(request, environment={"OF_TARGET": "1"}, hash_seed=7)
        self.started.append(self.launcher.start(request))
        return self.started[-1]

    def shell(self, text: str, **fields: Any) -> CommandHandle:
        handle: CommandHandle = self.start("sh", "-c", text, **fields)
        handle.ready()
        return handle


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for handle in bench.started:
        handle.kill()
        handle.kill()
        assert processes.marked(handle.mark) == []


def fails(act: Callable[[], object]) -> Any:
    with pytest.raises(LaunchFailed) as caught:
        act()
    return caught.value.error


SAYS = """echo '{"ops": 40, "seconds": 0.001, "counters": {"inserts": 3}, "peaks": {"depth": 7},
"timers": {"wait": {"count": 2, "total_ns": 10.4, "max_ns": 6}}}' | tr -d '\\n'; sleep 0.01"""


def test_a_launch_counts_its_measured_turns(bench: Bench) -> None:
    handle = bench.shell(SAYS)
    cold = handle.iteration(COLD, 1, 0)
    handle.iteration(WARMUP, 1, 0)
    iterations = [handle.iteration(MEASURED, 2, 0), handle.iteration(MEASURED, 1, 0)]
    assert (iterations[0].ops, iterations[1].ops, iterations[0].work_ns) == (80, 40, 2 * MS)
    assert iterations[0].rate == pytest.approx(40_000)
    assert iterations[0].wall_ns == iterations[0].start_ns + iterations[0].work_ns > 20 * MS
    finished = handle.finish()
    assert (finished.cold, finished.iterations) == (cold, tuple(iterations))
    assert finished.counters == {"inserts": 9}
    assert finished.peaks == {"depth": 7}
    assert finished.timers == {"wait": Timer(count=6, total_ns=30, max_ns=6)}
    assert finished.results == ()


def test_a_run_is_told_its_window_and_runs_in_the_folder_of_the_test(bench: Bench) -> None:
    handle: CommandHandle = bench.start(
        "sh", "-c", 'echo "$PWD $0 $1" >> seen; echo "{}"', "{seconds}", "{workers}", workers=8
    )
    handle.iteration(MEASURED, 1, WINDOW_NS)
    handle.iteration(MEASURED, 1, 2_000 * MS)
    seen = (bench.folder / "seen").read_text().splitlines()
    assert seen == [f"{bench.folder} 0.25 8", f"{bench.folder} 2 8"]


def test_the_time_of_children_counts(bench: Bench) -> None:
    burn = "import time\nwhile time.process_time() < 0.08: pass"
    iteration = bench.shell(f'"{sys.executable}" -c "{burn}"; true').iteration(MEASURED, 1, 0)
    assert iteration.cpu_ns >= 80 * MS
    assert iteration.wall_ns >= 70 * MS


def test_the_environment_is_a_launchs_and_the_programs_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("KEPT", "kept")
    handle = bench.shell("env > seen", environment=(("THREADS", "n={workers}"), ("PATH", "{folder}:/usr/bin:/bin")))
    handle.iteration(MEASURED, 1, 0)
    seen = dict(line.partition("=")[::2] for line in (bench.folder / "seen").read_text().splitlines())
    assert (seen["THREADS"], seen["OF_TARGET"], seen["KEPT"]) == ("n=2", "1", "kept")
    assert seen["PATH"] == f"{bench.folder}:/usr/bin:/bin"
    assert seen[marks.MARK] == handle.mark
    assert "PYTHONPATH" not in seen
    assert seen["PYTHONHASHSEED"] == "7"


def test_a_window_s_length_may_stand_in_the_environment(bench: Bench) -> None:
    metrics = '{"ops": 1}'
    handle = bench.shell(
        f"echo $SECONDS_TO_WORK > seen; echo '{metrics}'", environment=(("SECONDS_TO_WORK", "{seconds}"),)
    )
    handle.iteration(MEASURED, 1, 500 * MS)
    assert (bench.folder / "seen").read_text() == "0.5\n"


def test_the_programs_of_the_environment_come_first(bench: Bench) -> None:
    handle = bench.shell('echo "$PATH" > seen')
    handle.iteration(MEASURED, 1, 0)
    first = (bench.folder / "seen").read_text().partition(os.pathsep)[0]
    assert first == str(Path(sys.executable).parent)


def test_without_metrics_a_run_is_an_operation_but_a_window_says_nothing(bench: Bench) -> None:
    handle = bench.shell("echo done")
    iteration = handle.iteration(MEASURED, 3, 0)
    assert (iteration.ops, iteration.start_ns) == (3, 0)
    assert iteration.rate == pytest.approx(3e9 / iteration.wall_ns)
    error = fails(lambda: handle.iteration(MEASURED, 1, WINDOW_NS))
    assert error.reason.startswith("printed no JSON object")
    assert error.detail == "the last lines it printed:\ndone"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo so it is; echo why >&2; exit 3", "exited with code 3"),
        ("echo so it is; echo why >&2; kill -SEGV $$", "was killed by SIGSEGV"),
        ("echo so it is; echo '{\"ops\": []}'; echo why >&2", "printed metrics that cannot be used: Expected `float`"),
        ("echo so it is; echo '{\"seconds\": 200}'; echo why >&2", "reports 200 s of work but ran 0."),
        ("echo so it is; echo why >&2; yes", "printed more than 4 MiB"),
    ],
)
def test_a_run_that_fails_says_what_it_printed(bench: Bench, text: str, reason: str) -> None:
    handle = bench.shell(text)
    error = fails(lambda: handle.iteration(MEASURED, 1, 0))
    assert error.reason.startswith(reason)
    assert "why" in error.detail
    assert "so it is" in error.detail or "yes" in text


def test_a_python_program_that_crashes_shows_its_line(bench: Bench) -> None:
    handle = bench.shell(
        f'exec "{sys.executable}" -c "import ctypes; ctypes.string_at(0)"', environment=(("PYTHONFAULTHANDLER", "1"),)
    )
    error = fails(lambda: handle.iteration(MEASURED, 1, 0))
    assert error.reason == "was killed by SIGSEGV"
    assert '"<string>", line 1 in <module>' in error.detail


def test_a_server_in_python_prints_its_stack_when_it_crashes_and_a_command_is_left_as_it_is(bench: Bench) -> None:
    request = bench.shell("true").request
    server = msgspec.structs.replace(request, cell=msgspec.structs.replace(request.cell, body="server"))
    assert program_environment(server, "mark", {})["PYTHONFAULTHANDLER"] == "1"
    assert "PYTHONFAULTHANDLER" not in program_environment(request, "mark", {})


def test_what_takes_too_long_is_ended_at_once_with_all_it_started(bench: Bench) -> None:
    hang = 'setsid sleep 60 & sh -c "echo going on; sleep 60"'
    handle = bench.shell(hang, timeout_s=2.0)
    error = fails(lambda: handle.iteration(MEASURED, 1, 0))
    assert error.reason == "did not end within 2 s (its whole process tree was ended)"
    assert "going on" in error.detail
    assert processes.marked(handle.mark) == []


@pytest.mark.parametrize("left", ["a child is left in its group", "nothing is left"])
def test_another_process_that_gets_its_pid_is_not_killed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """Somebody else has waited for it: its exit code is not known, and its group lives only while a child does."""

    def too_late(pid: int, options: int) -> Any:
        os.waitpid(pid, options)
        raise ChildProcessError

    monkeypatch.setattr(os, "wait4", too_late)
    words = ["sh", "-c", "sleep 60 & exit 3" if "child" in left else "exit 3"]
    environment = {**os.environ, marks.MARK: next(marks.marks())}
    process = Process.start(words, environment, folder=str(bench.folder))
    while not process.over(1):
        pass
    assert process.exit is not None
    assert (process.exit.code, process.popen.returncode) == (None, 0)
    killed = list[int]()
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(group))
    process.kill()
    assert killed == [process.pid] * ("child" in left)
    assert processes.marked(process.mark) == []


def test_an_exit_code_that_somebody_else_took_is_an_error(bench: Bench) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        handle = bench.shell("exit 0")
        error = fails(lambda: handle.iteration(MEASURED, 1, 0))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert error.reason.startswith("ended, and something else in pytest's process took its exit code (an os.wait()")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is an error after half a second."""
    monkeypatch.setattr(output, "leftovers", functools.partial(processes.leftovers, wait_s=0.5))


@pytest.mark.usefixtures("soon")
def test_what_a_run_leaves_behind_is_an_error(bench: Bench) -> None:
    stays = "setsid sh -c 'echo > up; kill -STOP $$' > seen 2>&1 &"
    handle = bench.shell(f"{stays} while [ ! -e up ]; do sleep 0.01; done")
    handle.iteration(MEASURED, 1, 0)
    error = fails(handle.finish)
    assert error.reason == "left 1 process behind"
    assert "kill -STOP" in error.detail


@pytest.mark.usefixtures("soon")
def test_a_child_that_keeps_its_output_open_does_not_keep_it_waiting(bench: Bench) -> None:
    handle = bench.shell("sleep 30 & echo '{\"ops\": 2}'")
    assert handle.iteration(MEASURED, 1, 0).ops == 2
    assert fails(handle.finish).reason == "left 1 process behind"


def test_a_program_that_cannot_be_started_is_its_cells_error(bench: Bench) -> None:
    broken = executable(bench.folder / "broken", "")
    broken.write_bytes(b"\x7fELF nothing")
    handle = bench.start(str(broken))
    assert "cannot be started" in fails(lambda: handle.iteration(MEASURED, 1, 0)).reason


# -- builds and what is missing ------------------------------------------------------------------------------------

BUILD = ("sh", "-c", 'echo built >> log; cp /bin/sh "$0"', "{folder}/made")


def test_a_build_is_run_once_in_a_run(bench: Bench) -> None:
    argv = ("{folder}/made", "-c", "echo '{}'")
    for _ in range(2):
        handle = bench.start(*argv, build=BUILD)
        handle.ready()
        handle.iteration(MEASURED, 1, WINDOW_NS)
    assert (bench.folder / "log").read_text() == "built\n"


def test_a_build_that_fails_is_the_error_of_each_launch(bench: Bench) -> None:
    build = ("sh", "-c", "echo tried >> log; echo no compiler; exit 5")
    errors = [fails(bench.start("{folder}/made", build=build).ready) for _ in range(2)]
    assert errors[0].reason == "its build `sh -c 'echo tried >> log; echo no compiler; exit 5'` exited with code 5"
    assert "no compiler" in errors[0].detail
    assert errors[0] == errors[1]
    assert (bench.folder / "log").read_text() == "tried\n"


def test_a_build_that_makes_no_program_is_an_error(bench: Bench) -> None:
    error = fails(bench.start("{folder}/made", build=("true",)).ready)
    assert error.reason == f"its build `true` succeeded, but there is no {bench.folder}/made"


@pytest.mark.parametrize(
    ("argv", "fields", "reason"),
    [
        (["no-such-rust"], {}, "needs no-such-rust, which is not on PATH"),
        (["{folder}/made"], {}, "made, which is not there"),
        (["{folder}/made"], {"build": ("no-such-cargo", "build")}, "needs no-such-cargo, which is not on PATH"),
        (["no-such-rust"], {"needs": (("no-such-rust", "get it"),)}, "needs no-such-rust: install it with `get it`"),
        (["sh"], {"needs": (("no-such-lib", "get it"),)}, "needs no-such-lib: install it with `get it`"),
    ],
)
def test_a_missing_program_makes_its_cell_unsupported(bench: Bench, argv: list[str], fields: Any, reason: str) -> None:
    with pytest.raises(CellUnsupported) as caught:
        bench.start(*argv, **fields)
    assert str(caught.value).endswith(reason)


# -- looks from outside --------------------------------------------------------------------------------------------


def test_a_held_run_is_watched_with_its_children(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SMALL_COST", 1.0)  # looks are dear where the machine is busy
    handle = bench.shell("sleep 0.1; sleep 1.1 & sleep 1.1; wait; echo '{\"ops\": 3}'")
    held = handle.measure_held(1_200 * MS, True)
    assert held.iteration.ops == 3
    # What is started in the middle of the run is seen too.
    assert any(point.processes == 3 for point in held.memory)
    assert held.waits is not None
    assert held.waits.unavailable == WAITS_UNKNOWN
    assert handle.finish().iterations == (held.iteration,)


def test_a_run_that_is_not_told_how_long_is_held_as_long_as_it_takes(bench: Bench) -> None:
    held = bench.shell("sleep 0.2").measure_held(20 * MS, True, one_ns=200 * MS)
    assert held.memory
    assert held.iteration.wall_ns >= 200 * MS
    unwatched = bench.shell("sleep 0.01").measure_held(20 * MS, False, one_ns=10 * MS)
    assert (unwatched.memory, unwatched.waits, unwatched.iteration.ops) == ((), None, 1)


def test_a_run_is_watched_once_it_is_at_work(bench: Bench) -> None:
    handle = bench.shell("sleep 0.2; echo '{\"seconds\": 1}'; sleep 1")
    handle.iteration(WARMUP, 1, 0)  # tells that 0.2 s of it are not its work
    began_ns = time.monotonic_ns()
    held = handle.measure_held(1_000 * MS, True)
    assert held.memory
    assert held.memory[0].at_ns - began_ns > 300 * MS


def test_short_runs_are_not_looked_at(bench: Bench) -> None:
    held = bench.shell("true").measure_held(WINDOW_NS, True, one_ns=1 * MS)
    assert (held.memory, held.waits) == ((), None)


def test_a_look_that_may_be_of_a_program_s_end_does_not_count(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SMALL_COST", 1e-9)  # one look
    held = bench.shell("sleep 0.3").measure_held(WINDOW_NS, True, one_ns=1_000 * MS)
    assert held.memory == ()
    assert held.waits is not None


def test_a_functional_run_is_one_run(tmp_path: Path) -> None:
    text = 'echo "$0" >> seen; echo "{}"; exit "$1"'

    def run(code: str) -> None:
        executor = command("sh", "-c", text, "{seconds}", code)
        spec = spec_with(executor, path=tmp_path / "test_work.py", duration_s=5.0)
        run_here(cells_of(spec)[0], spec, sys.executable, 0.2)

    run("0")
    assert fails(lambda: run("1")).reason == "exited with code 1"
    assert (tmp_path / "seen").read_text() == "0.2\n0.2\n"


# -- who starts what -----------------------------------------------------------------------------------------------

RUST = command("rust", "{workers}")
SERVER = Executor(kind="server", program=Program(name="asgi", argv=("serve", "{port}")))


@pytest.mark.parametrize(
    ("executor", "side", "where"),
    [
        (EXECUTORS["threads"], "own", "workloads"),
        (EXECUTORS["threads"], "locks", "workloads"),
        (RUST, "own", "command"),
        (RUST, "control", "workloads"),
        (SERVER, "own", "server"),
        (SERVER, "control", "workloads"),
    ],
)
def test_programs_have_launchers_of_their_own_and_our_candle(
    tmp_path: Path, executor: Executor, side: Any, where: str
) -> None:
    launchers = Launchers(tmp_path, tmp_path / "work")
    fakes = {name: FakeLauncher() for name in ("workloads", "command", "server")}
    launchers.workloads = fakes["workloads"]  # type: ignore[assignment]
    launchers.programs = {"command": fakes["command"], "server": fakes["server"]}
    spec = spec_with(executor)
    (cell,) = cells_of(spec)
    cell = msgspec.structs.replace(cell, body="server" if executor.kind == "server" else "worker")
    launchers.start(msgspec.structs.replace(request_here(cell, spec, "python", 5.0), role=side)).ready()
    assert [name for name, fake in fakes.items() if fake.requests] == [where]
    (request,) = fakes[where].requests
    assert request.role == side
    if side == "control":
        assert (request.cell.executor, request.cell.body) == (EXECUTORS["threads"], "worker")
        assert request.cell.workers == cell.workers
    else:
        assert request.cell == cell


@pytest.mark.parametrize(
    ("needs", "generator", "there", "said"),
    [
        ({}, None, ["wrk"], ""),
        ({}, None, ["oha"], ""),
        ({}, None, [], "needs wrk: install it with `apt install wrk`"),
        ({}, "oha", ["wrk"], "needs oha: install it with `cargo install oha`"),
        ({"apxs": "apt install it"}, None, ["wrk"], "needs apxs: install it with `apt install it`"),
        (
            {"apxs": "apt it"},
            "wrk",
            [],
            "needs apxs: install it with `apt it`, and wrk: install it with `apt install wrk`",
        ),
        ({"apxs": "apt install it"}, None, ["apxs", "wrk"], ""),
        # What an environment may bring is looked for in it.
        ({"express": "pip install express", "ninja": "uv pip install ninja", "unknown": ""}, None, ["wrk"], ""),
    ],
)
def test_what_a_server_lacks_is_known_before_its_environment_is_made(
    needs: dict[str, str],
    generator: Any,
    there: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in there:
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    service = Service(ready="http://127.0.0.1:{port}/", load=Load(path="/", connections=1, generator=generator))
    spec = spec_with(SERVER, programs=tuple(needs.items()), service=service)
    (cell,) = cells_of(spec)
    assert missing_programs(cell, spec) == said


# -- tandems -------------------------------------------------------------------------------------------------------


def measured(fake: FakeLauncher, spec: Spec, judge: Any = None, **limits: Any) -> list[Sample]:
    group = Group(key="test", spec=spec, cells=cells_of(spec))
    allowed = Allowance(**{"launches": 2, "iterations": 3, **limits})
    return measurement_of(fake, group, allowed, stopping_rule=judge).measure()


@pytest.mark.parametrize("executor", [RUST, SERVER], ids=["command", "server"])
@pytest.mark.parametrize("duration_s", [None, 4.0])
def test_no_probe_of_ours_is_in_a_program(executor: Executor, duration_s: float | None) -> None:
    fake = FakeLauncher()
    threads, program = measured(fake, spec_with(EXECUTORS["threads"], executor, duration_s=duration_s))
    sides = {request.role for request in fake.requests if request.cell.executor == executor}
    assert sides == {"own", "control"}
    assert not [event for event in fake.of("barrier") if event.at.label == program.cell.label]
    assert (program.error, program.unsupported) == (None, None)
    assert len(program.launches) == len(program.of("control")) == len(program.of("memory")) == 2
    assert {launch.role for launch in program.all_launches} == {"time", "control", "memory"}
    assert all(launch.memory and not launch.barriers for launch in program.of("memory"))
    assert len(threads.of("locks")) == 2
    assert threads.of("empty")


def test_a_server_is_warmed_up_before_its_memory_is_looked_at() -> None:
    fake = FakeLauncher()
    measured(fake, spec_with(SERVER, duration_s=4.0, window_s=2.0, warmup=2), launches=1)
    (hold, *_) = fake.of("hold")
    kinds = [event.at.event for event in fake.events if event.handle == hold.handle]
    assert kinds[:5] == ["start", "ready", "warmup", "warmup", "hold"]


def test_a_window_is_as_long_as_the_test_says_and_that_of_a_candle_is_not() -> None:
    fake = FakeLauncher()
    (sample,) = measured(fake, spec_with(SERVER, duration_s=6.0, window_s=2.0), iterations=None, launches=1)
    windows = {(event.at.side, event.at.window_ns) for event in fake.of("measured", "cold", "warmup")}
    assert windows == {("own", 2_000 * MS), ("control", 200 * MS)}
    assert len(sample.launches[0].iterations) == 2
    fake = FakeLauncher()
    measured(fake, spec_with(RUST, duration_s=0.1, window_s=2.0), launches=1)
    assert {event.at.window_ns for event in fake.of("measured")} == {100 * MS}


@pytest.mark.parametrize(("window_s", "held_ns"), [(None, 250 * MS), (2.0, 2_000 * MS)])
def test_memory_is_looked_at_for_a_whole_window(window_s: float | None, held_ns: int) -> None:
    """What a workload gathers in a window is there at its end."""
    fake = FakeLauncher()
    measured(fake, spec_with(EXECUTORS["threads"], RUST, duration_s=4.0, window_s=window_s), launches=1)
    assert {event.at.window_ns for event in fake.of("hold")} == {held_ns}


def test_what_only_a_lock_probe_would_tell_is_not_waited_for() -> None:
    fake = FakeLauncher()
    asked: list[int] = []

    def judge(samples: Any) -> dict[str, Any]:
        asked.append(len(samples))
        return {sample.cell.nodeid: frozenset({"locks"}) for sample in samples}

    (sample,) = measured(fake, spec_with(RUST), judge, launches=None)
    assert len(asked) == len(sample.launches) == 1


def test_a_program_is_judged_by_what_it_has() -> None:
    spec = spec_with(EXECUTORS["threads"], RUST, command("gen", name="gen"), SERVER)
    spec = msgspec.structs.replace(spec, workers=(1, 8))
    metrics = (Metric.WALL, Metric.USS, Metric.LOCK_WAIT, Metric.SCALING)
    cells = cells_of(spec)
    counts = {cell.label: hypotheses(spec, metrics, cell, cells, compared=True) for cell in cells}
    assert counts == {
        "3.14-threads-w1": 3,
        "3.14-threads-w8": 4,
        "3.14-rust-w1": 2,
        "3.14-rust-w8": 3,
        "3.14-gen-w1": 2,
        "3.14-gen-w8": 2,
        "3.14-asgi-w1": 2,
        "3.14-asgi-w8": 2,
    }


def test_a_command_is_beside_all_targets_and_one_without_workers_beside_all_counts() -> None:
    targets = ("3.14", "3.14t")

    def reference(first: Executor, label: str) -> str:
        spec = msgspec.structs.replace(spec_with(first, EXECUTORS["threads"]), workers=(1, 8))
        cells = [
            cell
            for cell in cells_of(spec, *targets)
            if cell.executor.kind != "command" or cell.target.spec == targets[0]
        ]
        group = Group(key="test", spec=spec, cells=tuple(cells))
        found = executor_cell(next(cell for cell in cells if cell.label == label), group.cells, first)
        return found.label if found else ""

    assert reference(RUST, "3.14t-threads-w8") == "3.14-rust-w8"
    assert reference(command("gen", name="gen"), "3.14t-threads-w8") == "3.14-gen-w1"
    assert reference(SERVER, "3.14t-threads-w1") == "3.14-asgi-w1"
    assert reference(EXECUTORS["fork"], "3.14t-threads-w8") == "3.14t-fork-w8"
