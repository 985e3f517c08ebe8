"""What a check launch notes, on real interpreters of both builds: calls, files, questions, programs, connections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from bench import BUILDS, FORK, FORKSERVER, INTERPRETERS, SERIAL, SPAWN, TASKS, THREADS, Bench, each_on_a_build

from pytest_ftgate.features.unchanged.notes import Read, read_notes
from pytest_ftgate.model.spec import Executor
from pytest_ftgate.runner import reads
from pytest_ftgate.runner.protocol import CHECK, WARMUP

ALL = (SERIAL, THREADS, FORK, FORKSERVER, SPAWN, INTERPRETERS)


def notes_of(
    bench: Bench,
    executor: Executor = THREADS,
    build: str = "3.14",
    iterations: Sequence[str] = (CHECK,),
    **options: object,
) -> set[Read]:
    """The notes of one check launch of `test_it`."""
    file = bench.folder / "notes"
    file.write_bytes(b"")
    handle = bench.start(executor, build=build, reads=str(file), **options)  # type: ignore[arg-type]
    handle.ready()
    for kind in iterations:
        handle.iteration(kind)
    handle.finish()
    return set(read_notes(file))


def below(bench: Bench, notes: set[Read], kind: str) -> set[str]:
    """The paths of a kind below the workload's folder, relative to it."""
    paths = {Path(note.text) for note in notes if note.kind == kind}
    return {str(path.relative_to(bench.folder)) for path in paths if path.is_relative_to(bench.folder)}


@each_on_a_build(ALL, both=ALL)
def test_what_only_a_worker_reads_is_noted_whatever_the_worker_is(bench: Bench, executor: Executor, build: str) -> None:
    (bench.folder / "pkg").mkdir()
    (bench.folder / "pkg" / "__init__.py").touch()
    (bench.folder / "pkg" / "lazy.py").write_text("from importlib import resources\nTEXT = 'text.txt'\n")
    (bench.folder / "pkg" / "text.txt").write_text("x")
    for index in range(2):
        (bench.folder / f"data-{index}.txt").write_text("x")
    bench.write("""
        from pathlib import Path

        HERE = Path(__file__).parent

        @ftgate.compare(threads)
        def test_it(worker):
            from pkg import lazy
            (HERE / f"data-{worker.index}.txt").read_text()
            lazy.resources.files("pkg").joinpath(lazy.TEXT).read_text()
            return (HERE / "missing.txt").exists()
    """)
    notes = notes_of(bench, executor, build, workers=1 if executor == SERIAL else 2)
    files = below(bench, notes, reads.FILE)
    indices = range(1 if executor == SERIAL else 2)
    assert {f"data-{index}.txt" for index in indices} | {"pkg/text.txt"} <= files
    assert "missing.txt" in below(bench, notes, reads.ASKED)
    assert not any(".py" in file for file in files)
    assert {"pkg", "pkg/lazy", "test_workload"} <= below(bench, notes, reads.MODULE)
    assert not any(note.kind == reads.UNKNOWN for note in notes)
    assert Read(reads.STARTED, bench.executables[build]) in notes


CALLS = """
    from functools import cached_property
    from threading import Thread
    import helper

    class Kept:
        @cached_property
        def value(self):
            return sorted([2, 1], key=lambda each: each)

        def unused(self): pass

    def called(): return [*numbers()]
    def numbers(): yield from (each for each in range(2))
    def in_a_thread(): pass
    def passed_on(): pass
    def unused(function=passed_on):
        def nested(): pass

    @ftgate.compare(threads)
    def test_it(worker):
        thread = Thread(target=in_a_thread)
        thread.start()
        thread.join()
        unused_generator = numbers()
        return called(), Kept().value, eval("helper.by_text()")
"""
CALLED = {
    "test_workload.py": {
        *("<module>", "Kept", "Kept.value", "Kept.value.<locals>.<lambda>", "called", "numbers"),
        *("numbers.<locals>.<genexpr>", "in_a_thread", "test_it"),
    },
    "helper.py": {"<module>", "by_text"},
}


@each_on_a_build(ALL, both=ALL)
def test_each_function_that_a_worker_calls_is_noted_and_no_other(bench: Bench, executor: Executor, build: str) -> None:
    (bench.folder / "helper.py").write_text("def by_text(): pass\ndef unused(): pass\n")
    bench.write(CALLS)
    notes = notes_of(bench, executor, build, workers=1 if executor == SERIAL else 2)
    found = below(bench, notes, reads.RAN)
    assert found == {f"{file}:{name}" for file, names in CALLED.items() for name in names}
    assert not any("/threading.py" in note.text for note in notes if note.kind == reads.RAN)
    assert Read(reads.UNKNOWN, reads.TRACER) not in notes


def test_what_a_later_iteration_calls_is_noted(bench: Bench) -> None:
    bench.write("""
        seen = []

        def late(): pass

        @ftgate.compare(threads)
        def test_it(worker):
            if seen:
                late()
            seen.append(1)
    """)
    assert "test_workload.py:late" not in below(bench, notes_of(bench, workers=1), reads.RAN)
    notes = notes_of(bench, workers=1, iterations=(CHECK, WARMUP))
    assert "test_workload.py:late" in below(bench, notes, reads.RAN)


def test_another_tool_that_was_there_first_is_noted(bench: Bench) -> None:
    """A `.pth` file may start one, such as coverage; here the hidden `sitecustomize` of a worker's interpreter does."""
    (bench.folder / "usercode.py").write_text("import sys\nsys.monitoring.use_tool_id(1, 'another')\n")
    bench.write("""
        import usercode

        @ftgate.compare(threads)
        def test_it(worker):
            from pytest_ftgate.runner import reads
            reads._watch_calls()
    """)
    assert Read(reads.UNKNOWN, reads.TRACER) in notes_of(bench, workers=1)


@pytest.mark.parametrize("build", BUILDS)
def test_a_task_and_a_pools_workers_are_noted(bench: Bench, build: str) -> None:
    for name in ("task", "pool"):
        (bench.folder / f"{name}.txt").write_text("x")
    bench.write("""
        from pathlib import Path

        def read(_):
            return (Path(__file__).parent / "pool.txt").read_text()

        @ftgate.compare(tasks)
        async def test_it(worker):
            return (Path(__file__).parent / "task.txt").read_text()

        @ftgate.compare(processes)
        def test_pool(executor):
            return list(executor.map(read, range(3)))
    """)
    assert "task.txt" in below(bench, notes_of(bench, TASKS, build), reads.FILE)
    for executor in (FORK, SPAWN, INTERPRETERS):
        notes = notes_of(bench, executor, build, test="test_pool", body="executor")
        assert "pool.txt" in below(bench, notes, reads.FILE), executor


BODIES = {
    "open('a.txt', 'w').close()": Read(reads.WRITTEN, "a.txt"),
    "os.close(os.open('a.txt', os.O_CREAT | os.O_WRONLY))": Read(reads.WRITTEN, "a.txt"),
    "os.close(os.open('b.txt', os.O_RDONLY))": Read(reads.FILE, "b.txt"),
    "os.close(os.open('b.txt', os.O_RDONLY, dir_fd=FOLDER))": Read(reads.FILE, "b.txt"),
    "open('b.txt', 'r+').close()": Read(reads.WRITTEN, "b.txt"),
    "os.mkdir('made'), os.rmdir('made')": Read(reads.WRITTEN, "made"),
    "os.rename('b.txt', 'c.txt'), os.rename('c.txt', 'b.txt')": Read(reads.WRITTEN, "c.txt"),
    "os.unlink('gone.txt', dir_fd=FOLDER)": Read(reads.WRITTEN, "gone.txt"),
    "os.path.isfile('d.txt')": Read(reads.ASKED, "d.txt"),
    "os.access('d.txt', os.R_OK)": Read(reads.ASKED, "d.txt"),
    "os.stat('b.txt', dir_fd=FOLDER)": Read(reads.ASKED, "b.txt"),
    "os.path.realpath('b.txt')": Read(reads.ASKED, "b.txt"),
    "os.listdir('folder')": Read(reads.FOLDER, "folder"),
    "os.listdir(os.open('folder', os.O_RDONLY))": Read(reads.FOLDER, "folder"),
    "list(Path('folder').glob('*.txt'))": Read(reads.FOLDER, "folder"),
    "[*os.walk('folder')]": Read(reads.FOLDER, "folder"),
    "[*importlib.metadata.distributions(path=['folder'])]": Read(reads.NAMES, "folder"),
    "importlib.util.find_spec('absent_module')": Read(reads.MODULE, "absent_module"),
    "importlib.import_module('present')": Read(reads.MODULE, "present"),
    "sqlite3.connect('base.db').close()": Read(reads.WRITTEN, "base.db"),
    "os.close(os.open(b'b.txt', os.O_RDONLY))": Read(reads.FILE, "b.txt"),
    "importlib.import_module('present'), 0": Read(reads.RAN, "present.py:<module>"),
    "open(__file__).close()": Read(reads.FILE, "test_workload.py"),
    "inspect.getsource(sys.modules[__name__])": Read(reads.FILE, "test_workload.py"),
    "importlib.import_module('present').__loader__.get_source('present')": Read(reads.FILE, "present.py"),
    "importlib.resources.files('present_package').joinpath('__init__.py').read_text()": Read(
        reads.FILE, "present_package/__init__.py"
    ),
    "pkgutil.get_data('present_package', '__init__.py')": Read(reads.FILE, "present_package/__init__.py"),
}


@pytest.mark.parametrize("body", BODIES)
def test_each_way_to_read_ask_list_or_write_is_noted(bench: Bench, body: str) -> None:
    (bench.folder / "folder").mkdir()
    (bench.folder / "present_package").mkdir()
    for name in ("b.txt", "gone.txt", "present.py", "present_package/__init__.py"):
        (bench.folder / name).touch()
    bench.write(f"""
        import importlib, importlib.metadata, importlib.resources, importlib.util, inspect, os, pkgutil, sqlite3, sys
        from pathlib import Path

        @ftgate.compare(threads)
        def test_it(worker):
            os.chdir(os.path.dirname(__file__))
            FOLDER = os.open(".", os.O_RDONLY)
            {body}
    """)
    kind, name = BODIES[body]
    assert name in below(bench, notes_of(bench, workers=1), kind)


UNFOLLOWED = {
    "subprocess.run(['true'], check=True)": "the program true",
    "os.system('true')": "the program true",
    "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)": "the program true",
    "os.waitpid(os.spawnlp(os.P_NOWAIT, 'true', 'true'), 0)": "the program true",
    "socket.socket().connect_ex(('127.0.0.1', 1))": "a connection to 127.0.0.1",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', ('127.0.0.1', 9))": "a connection to 127.0.0.1",
    "asyncio.run(run())": "the program true",
}


@pytest.mark.parametrize("body", UNFOLLOWED)
def test_a_program_or_a_connection_cannot_be_followed(bench: Bench, body: str) -> None:
    bench.write(f"""
        import asyncio, os, socket, subprocess

        async def run():
            await (await asyncio.create_subprocess_exec("true")).wait()

        @ftgate.compare(threads)
        def test_it(worker):
            {body}
    """)
    assert Read(reads.UNKNOWN, UNFOLLOWED[body]) in notes_of(bench, workers=1)


@pytest.mark.parametrize("body", ["sys.settrace(lambda *_: None)", "sys.monitoring.register_callback(5, 32, print)"])
def test_who_hears_of_lines_is_noted(bench: Bench, body: str) -> None:
    bench.write(f"""
        import sys

        @ftgate.compare(threads)
        def test_it(worker):
            {body}
            sys.settrace(None)
    """)
    assert Read(reads.UNKNOWN, reads.TRACER) in notes_of(bench, workers=1)


def test_a_manager_is_reached_at_an_address_that_the_launch_bound(bench: Bench) -> None:
    bench.write("""
        @ftgate.compare(threads)
        def test_it(worker):
            from multiprocessing import get_context
            with get_context("spawn").Manager() as manager:
                return list(manager.list([1]))
    """)
    notes = notes_of(bench, workers=1)
    bound, connected = ({note.text for note in notes if note.kind == kind} for kind in (reads.BOUND, reads.CONNECTED))
    assert connected
    assert connected <= bound
    assert not any(note.kind == reads.UNKNOWN for note in notes)


def test_too_many_notes_say_so_and_end(bench: Bench) -> None:
    bench.write(f"""
        import os

        @ftgate.compare(threads)
        def test_it(worker):
            for number in range({reads.MOST + 100}):
                os.path.exists(f"/none/{{number}}")
    """)
    notes = notes_of(bench, workers=1)
    assert len(notes) == reads.MOST + 1
    assert Read(reads.UNKNOWN, f"more than {reads.MOST} files and functions") in notes


def test_the_workload_still_reaches_what_is_wrapped(bench: Bench) -> None:
    """`os.stat` stands in sets of the standard library, and may be kept by a class."""
    bench.write("""
        import os, shutil, tempfile

        class Kept:
            ask = os.stat

        @ftgate.compare(threads)
        def test_it(worker):
            assert shutil.rmtree.avoids_symlink_attacks
            assert os.stat in os.supports_dir_fd and os.open in os.supports_dir_fd
            assert os.stat(0).st_mode and os.stat.__name__ == "stat"
            assert Kept().ask(__file__).st_size == os.path.getsize(__file__)
            with tempfile.TemporaryDirectory() as folder:
                os.mkdir(os.path.join(folder, "below"))
            assert not os.path.exists(folder)
            try:
                os.stat("none\\0such")
            except ValueError:
                return
            raise AssertionError
    """)
    notes = notes_of(bench, workers=1)
    assert not any(note.kind == reads.UNKNOWN for note in notes)
