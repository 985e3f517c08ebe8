"""The lock probe in real interpreters: what it keeps, where, and that locks behave as without it."""

from __future__ import annotations

import marshal
import os
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench import BUILDS

from physical import confirm, confirmed
from pytest_ftgate.runner.locks.sites import COUNT, OFF, RECORD, WINDOW, Site, bounds_of, bucket_of, is_inner

SOURCE = Path(__file__).parents[2] / "src"
HOOK = SOURCE / "pytest_ftgate" / "runner" / "starthook"


def dedented(script: str) -> str:
    return textwrap.dedent(script).lstrip("\n")


class Ran(NamedTuple):
    """One process that ended: what it said, and by process-interpreter the sites and the threads' lives in ns."""

    code: int
    out: str
    err: str
    files: dict[str, list[dict[str, Any]]]
    lifetimes: dict[str, list[tuple[int, int]]]

    @property
    def sites(self) -> list[dict[str, Any]]:
        return [site for sites in self.files.values() for site in sites]

    def at(self, text: str, script: str) -> list[dict[str, Any]]:
        """The sites on the line of the script that holds this text."""
        line = next(number for number, line in enumerate(script.splitlines(), 1) if text in line)
        return [site for site in self.sites if site["line"] == line]


class Probe:
    """Runs scripts in one build, with the start hook and a window."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.python = python
        self.runs = 0

    def environment(self, places: list[Path], locks: Path | None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FTGATE", "PYTHON"))}
        path = os.pathsep.join(map(str, places))
        return {**kept, "PYTHONPATH": path, **({} if locks is None else {"FTGATE_LOCKS": str(locks)})}

    def run(self, script: str, *, window: int | None = RECORD, behind: tuple[Path, ...] = ()) -> Ran:
        """Run it; `window` None is a run without the probe. `behind` comes after ours on the path."""
        self.runs += 1
        locks = self.folder / f"locks{self.runs}"
        locks.mkdir()
        (locks / WINDOW).write_bytes(bytes((window or OFF,)))
        path = self.folder / "script.py"
        path.write_text(script, encoding="utf-8")
        places = [*([] if window is None else [HOOK]), SOURCE, *behind]
        environment = self.environment(places, None if window is None else locks)
        ended = subprocess.run(
            [self.python, str(path)], env=environment, capture_output=True, text=True, timeout=120, cwd=self.folder
        )
        written = {found.stem: marshal.loads(found.read_bytes()) for found in locks.glob("*.waits")}
        files = {stem: each["sites"] for stem, each in written.items() if each["sites"]}
        lifetimes = {stem: each["lifetimes"] for stem, each in written.items()}
        return Ran(ended.returncode, ended.stdout, ended.stderr, files, lifetimes)

    def good(self, script: str, *, window: int | None = RECORD, behind: tuple[Path, ...] = ()) -> Ran:
        """The same, of a script that must succeed and say nothing amiss."""
        ran = self.run(script, window=window, behind=behind)
        assert (ran.code, ran.err) == (0, ""), ran.err
        return ran


@pytest.fixture(params=BUILDS)
def probe(request: pytest.FixtureRequest, tmp_path: Path, executables: dict[str, str]) -> Probe:
    return Probe(tmp_path, executables[request.param])


# Lets a thread wait for a lock for 100 ms; it takes the lock, unless it is told to do something else.
CONTEND = dedented("""
    import threading, time

    def take(lock):
        with lock: pass

    def contend(lock, use=take):
        lock.acquire()
        thread = threading.Thread(target=use, args=(lock,))
        thread.start()
        time.sleep(0.1)
        lock.release()
        thread.join()
""")


# Histograms


def test_buckets_are_contiguous_and_at_most_a_sixteenth_wide() -> None:
    last = 0
    for bucket in range(1000):
        low, high = bounds_of(bucket)
        assert low == last
        assert bucket_of(low) == bucket_of(high - 1) == bucket
        assert high - low <= max(1, low / 16)
        last = high
    assert last > 3600e9


@pytest.mark.parametrize("wait_ns", [-5, 0, 1, 31, 32, 33, 1_000, 5_000_000, 123_456_789, 2**62])
def test_a_wait_is_within_its_bucket(wait_ns: int) -> None:
    low, high = bounds_of(bucket_of(wait_ns))
    assert low <= max(0, wait_ns) < high


def test_folding_adds_up_and_forgetting_keeps_the_locks_tallies() -> None:
    site = Site("a.py", 3, "Lock", "lock")
    tallies = [site.tally(), site.tally()]
    tallies[0].waits += [10, 1000, 1010]
    tallies[1].waits += [70_000]
    tallies[1].acquired = 4
    tallies[0].counts += [None, None]
    site.fold()
    tallies[1].acquired += 3
    site.fold()
    site.fold()
    assert (site.contended, site.total_ns, site.max_ns, site.acquired) == (4, 72_020, 70_000, 9)
    assert site.histogram == {10: 1, bucket_of(1000): 2, bucket_of(70_000): 1}
    tallies[0].waits.append(5)
    site.forget()
    tallies[0].waits.append(7)  # As a lock does after a fork: it knows its tally, not its site's list.
    tallies[1].acquired += 1
    site.fold()
    assert (site.contended, site.total_ns, site.max_ns, site.acquired) == (1, 7, 7, 1)


@pytest.mark.parametrize(
    ("module", "function", "inner"),
    [
        ("threading", "Event.__init__", True),
        ("concurrent.futures.thread", "f", True),
        ("multiprocessing.pool", "f", True),
        ("multiprocessing.managers", "Server.serve_forever", True),
        ("multiprocessing.managers", "Server.create", False),
        ("logging", "Server.create", False),
        ("threading_of_mine", "f", False),
        ("__main__", "f", False),
    ],
)
def test_inner_locks_are_those_of_the_modules_that_are_timed_as_a_whole(
    module: str, function: str, inner: bool
) -> None:
    code = compile("", "f.py", "exec").replace(co_qualname=function)
    assert is_inner(module, code) is inner


# Where and what


WAITS = dedented("""
    import queue, threading, time
    condition = threading.Condition()
    over_lock = threading.Lock(); over = threading.Condition(over_lock)
    event = threading.Event()
    semaphore = threading.Semaphore(0)
    items = queue.Queue()
    full = queue.LifoQueue(1); full.put(0)
    simple = queue.SimpleQueue()
    class Mine(queue.PriorityQueue): pass
    mine = Mine()

    def condition_wait():
        with condition: condition.wait(5)  # it may have been notified before it waits

    def over_wait():
        with over: over.wait(5)

    def notify(condition):
        with condition: condition.notify()

    waits = [
        (condition_wait, lambda: notify(condition)),
        (over_wait, lambda: notify(over)),
        (event.wait, event.set),
        (semaphore.acquire, semaphore.release),
        (items.get, lambda: items.put(1)),
        (lambda: full.put(1), full.get),
        (simple.get, lambda: simple.put(1)),
        (lambda: mine.get(timeout=5), lambda: mine.put(1)),
    ]
    for wait, end in waits:
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        end()
        thread.join()
""")


def test_queue_waits_stand_once_at_the_line_that_made_them(probe: Probe) -> None:
    """Each waits once, on an object of its own; the locks and conditions inside those are counted nowhere."""
    kinds = {
        "condition =": "Condition",
        "over_lock =": "Condition",
        "event =": "Event",
        "semaphore =": "Semaphore",
        "items =": "Queue",
        "full =": "LifoQueue",
        "simple =": "SimpleQueue",
        "mine =": "Mine",
    }

    def sample() -> None:
        ran = probe.good(WAITS)
        queue = [site for site in ran.sites if site["waits_for"] == "queue"]
        for text, kind in kinds.items():
            (site,) = [site for site in ran.at(text, WAITS) if site["waits_for"] == "queue"]
            assert (site["kind"], site["contended"], site["file"]) == (kind, 1, str(probe.folder / "script.py"))
            assert site["total_ns"] > 20e6
        assert len(queue) == len(kinds)
        # Whoever is woken may find the lock still held by the one that woke it: inside the wait, so never a lock wait.
        assert [site for site in ran.sites if site["waits_for"] == "lock"] == []

    confirm(sample)


CONTENDED = CONTEND + dedented("""
    import queue
    from pytest_ftgate.runner.locks import named
    def two():
        return threading.Lock(), threading.Lock()  # one line, two columns
    first, second = two()
    many = [threading.RLock() for _ in range(2)]
    items = queue.Queue()
    cache = named(threading.Lock(), "cache")
    store = named(queue.Queue(), "store")
    ready = named(threading.Condition(), "ready")

    for lock in (first, second, *many, cache, ready):
        contend(lock)
    for lock in (items, store):
        contend(lock.mutex, lambda _: lock.put(1))
""")


@confirmed
def test_lock_waits_stand_at_the_line_that_made_the_lock_and_named_ones_apart(probe: Probe) -> None:
    ran = probe.good(CONTENDED)

    def told(text: str) -> list[tuple[str, str, int]]:
        return sorted((site["kind"], site["name"], site["contended"]) for site in ran.at(text, CONTENDED))

    assert {site["waits_for"] for site in ran.sites} == {"lock"}
    assert told("two columns") == [("Lock", "", 1), ("Lock", "", 1)]
    assert told("many =") == [("RLock", "", 2)]
    assert told("items =") == [("Queue", "", 1)]
    assert told("cache =") == [("Lock", "cache", 1)]
    assert told("store =") == [("Queue", "store", 1)]
    assert told("ready =") == [("Condition", "ready", 1)]
    assert all(site["total_ns"] > 10e6 for site in ran.sites)


TIMEOUTS = dedented("""
    import queue, threading
    lock = threading.Lock(); again = threading.RLock(); event = threading.Event()
    items = queue.SimpleQueue(); semaphore = threading.Semaphore(0); barrier = threading.Barrier(2)
    lock.acquire()
    again.acquire()

    def elsewhere():
        assert not lock.acquire(False) and not lock.acquire(blocking=False) and not lock.acquire(timeout=0)
        assert not again.acquire(False) and not again.acquire(True, 0)
        assert not event.wait(0) and not semaphore.acquire(False) and not semaphore.acquire(timeout=0)
        if TIMED:
            assert not lock.acquire(timeout=0.02) and not again.acquire(True, 0.02)
            assert not event.wait(0.02) and not semaphore.acquire(timeout=0.02)
            for wait, error in ((lambda: items.get(timeout=0.02), queue.Empty),
                                (lambda: barrier.wait(0.02), threading.BrokenBarrierError)):
                try: wait()
                except error: pass
                else: raise AssertionError

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    for _ in range(3):
        assert again.acquire() and again.acquire(timeout=1) and again.acquire(False)
        with again: pass
""")


def test_what_does_not_block_is_no_wait_and_what_times_out_is_one(probe: Probe) -> None:
    assert probe.good(TIMEOUTS.replace("TIMED", "False")).sites == []
    ran = probe.good(TIMEOUTS.replace("TIMED", "True"))
    assert sorted((site["kind"], site["contended"]) for site in ran.sites) == [
        (kind, 1) for kind in ("Barrier", "Event", "Lock", "RLock", "Semaphore", "SimpleQueue")
    ]
    assert all(site["total_ns"] > 15e6 for site in ran.sites)


# Windows

ITERATIONS = CONTEND + dedented("""
    import queue, sys
    from pytest_ftgate.runner import locks
    lock = threading.Lock(); again = threading.RLock(); condition = threading.Condition(); items = queue.Queue()

    def worker():
        for _ in range(500):
            with lock: pass
            lock.acquire(); lock.release()
            with again:
                with again: again.acquire(); again.release()
            with condition: condition.acquire(); condition.release()
            items.put(1)

    def turn():
        threads = [threading.Thread(target=worker) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()

    recording = threading.Lock.__enter__
    for state in map(int, sys.argv[1:] or "WINDOWS".split()):
        locks.set_window(state)
        contend(lock) if state == locks.RECORD else turn()
    locks.set_window(locks.OFF)
    assert threading.Lock.__enter__ is recording
    contend(lock)
    turn()
""")


def test_nothing_is_kept_while_the_window_is_closed(probe: Probe) -> None:
    assert probe.good(ITERATIONS.replace("WINDOWS", str(OFF)), window=OFF).files == {}


def test_acquisitions_are_counted_exactly_and_apart_from_waits(probe: Probe) -> None:
    ran = probe.good(ITERATIONS.replace("WINDOWS", f"{RECORD} {COUNT} {OFF} {COUNT} {RECORD}"), window=OFF)
    told = {site["kind"]: (site["acquired"], site["contended"]) for site in ran.sites}
    outermost = 2 * 4 * 500
    assert told == {
        "Lock": (2 * outermost, 2),
        "RLock": (outermost, 0),
        "Condition": (outermost, 0),
        "Queue": (outermost, 0),
    }


HOLDS = dedented("""
    import contextlib, threading, time
    from pytest_ftgate.runner import locks

    early = threading.KIND()
    locks.set_window(locks.COUNT)
    late = threading.KIND()

    def rest(): time.sleep(0.02)

    def hold(lock):
        with lock: rest()
        lock.acquire()
        rest()
        lock.release()
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock)
            rest()
        type(lock).__enter__(lock)
        rest()
        type(lock).__exit__(lock, None, None, None)
        if not isinstance(lock, type(threading.Lock())):
            with lock, lock: rest()
        if hasattr(lock, "wait"):
            with lock:
                rest()
                lock.wait(0.2)
                rest()

    hold(early)
    hold(late)
    with early:  # over two windows
        locks.set_window(locks.COUNT)
    thread = threading.Thread(target=hold, args=(early,))
    thread.start()
    thread.join()
    hold(early)
    locks.set_window(locks.OFF)
    hold(early)
    hold(late)
""")


@pytest.mark.parametrize(("kind", "holds"), [("Lock", 4), ("RLock", 5), ("Condition", 7)])
def test_each_hold_is_timed_while_acquisitions_are_counted(probe: Probe, kind: str, holds: int) -> None:
    """By `with`, by calls, by an ExitStack; of the outermost alone, without the wait of a Condition, in one window."""
    script = HOLDS.replace("KIND", kind)

    def sample() -> None:
        ran = probe.good(script, window=OFF)
        for text, times, takers in (("early =", 3, {1, 2}), ("late =", 1, {1})):
            site = next(site for site in ran.at(text, script) if site["waits_for"] == "lock")
            (lock,) = site["locks"]
            assert lock["holds"] == times * holds
            assert sum(ns for *_, ns in lock["held"]) == pytest.approx(times * holds * 20e6, rel=0.2)
            assert {name for *_, name, _ in lock["held"]} == {"hold"}
            assert {*lock["takers"].values()} == takers

    confirm(sample)


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_while_acquisitions_are_counted_a_wait_is_charged_to_who_holds_the_lock(probe: Probe, kind: str) -> None:
    """The second waits for the first; the third, which comes after it, for both."""
    script = dedented(f"""
        import threading, time
        from pytest_ftgate.runner import locks
        lock = threading.{kind}()

        def first():
            with lock:  # first
                begun.set()
                while len(came) < 2: time.sleep(0.01)
                time.sleep(0.3)

        def second():
            came.append("second")
            if lock.acquire(timeout=5):  # second
                time.sleep(0.1)
                lock.release()

        def third():
            came.append("third")
            with lock: pass  # third

        def turn(use):
            thread = threading.Thread(target=use)
            thread.start()
            return thread

        for state in (locks.RECORD, locks.COUNT, locks.OFF):
            begun, came = threading.Event(), []
            locks.set_window(state)
            threads = [turn(first)]
            begun.wait()
            for use in (second, third):
                threads.append(turn(use))
                time.sleep(0.1)
            for thread in threads: thread.join()
        locks.set_window(locks.COUNT)
        begun.clear()
        locks.set_window(locks.COUNT)  # who took it in another window is not charged
        lock.acquire()
        locks.set_window(locks.COUNT)
        thread = turn(third)
        time.sleep(0.05)
        lock.release()
        thread.join()
    """)
    (site,) = probe.good(script, window=OFF).at(kind, script)
    told = {(each["function"], each["waiter_line"]): each for each in site["holders"]}
    places = {
        name: line for line, text in enumerate(script.splitlines(), 1) for name in [text.partition("# ")[2]] if name
    }
    assert set(told) == {
        ("first", places["second"]),
        ("second", places["third"]),
        ("first", places["third"]),
    }
    assert {each["line"] for each in told.values()} == {places["first"], places["second"]}
    for (function, waiter), (at_least, held) in {
        ("first", places["second"]): (0.1, 0.3),
        ("second", places["third"]): (0.1, 0.1),
        ("first", places["third"]): (0.1, 0),
    }.items():
        each = told[function, waiter]
        assert each["waited_ns"] >= at_least * 1e9
        ((bucket, count),) = each["held"].items() or [(bucket_of(0), 1)]
        assert (bounds_of(int(bucket))[1] >= held * 1e9, count) == (True, 1)


def test_no_wait_is_lost_while_others_are_folded(probe: Probe) -> None:
    """Waits that time out are kept without holding the lock: many threads at once, and the first tally is a race."""
    script = dedented("""
        import threading
        from pytest_ftgate.runner.locks import book
        held = [threading.Lock() for _ in range(20)]
        for lock in held: lock.acquire()
        gate = threading.Barrier(4)

        def worker():
            for lock in held:
                gate.wait()
                for _ in range(20): lock.acquire(timeout=1e-6)

        threads = [threading.Thread(target=worker) for _ in range(4)]
        for thread in threads: thread.start()
        while any(thread.is_alive() for thread in threads): book.fold()
    """)
    (site,) = probe.good(script).at("held =", script)
    assert site["contended"] == sum(site["histogram"].values()) == 20 * 4 * 20


def test_no_acquisition_is_lost_or_counted_twice_while_others_are_folded(probe: Probe) -> None:
    """Of a lock, whose holder counts alone, and of a semaphore that several hold at once."""
    script = dedented("""
        import multiprocessing, threading, time
        from pytest_ftgate.runner import locks
        lock = threading.Lock()
        permits = multiprocessing.Semaphore(4)
        locks.set_window(locks.COUNT)

        def worker():
            for _ in range(5000):
                with lock: pass
                with permits: pass

        threads = [threading.Thread(target=worker) for _ in range(4)]
        for thread in threads: thread.start()
        while any(thread.is_alive() for thread in threads): locks.fold()
        locks.set_window(locks.OFF)
    """)
    ran = probe.good(script)
    for text in ("lock =", "permits ="):
        (site,) = ran.at(text, script)
        assert site["acquired"] == 4 * 5000


def test_locks_are_created_at_new_lines_while_others_are_folded(probe: Probe) -> None:
    script = dedented("""
        import threading
        from pytest_ftgate.runner import locks

        def worker(number):
            for line in range(1500):
                code = compile("\\n" * line + "lock = threading.Lock()", f"made{number}.py", "exec")
                exec(code, {"threading": threading})

        threads = [threading.Thread(target=worker, args=(number,)) for number in range(2)]
        for thread in threads: thread.start()
        while any(thread.is_alive() for thread in threads): locks.fold()
        print(len({(site.file, site.line) for site in locks.book._sites.values() if site.file.startswith("made")}))
    """)
    assert probe.good(script).out.split() == [str(2 * 1500)]


@pytest.mark.parametrize("told", [False, True])
@confirmed
def test_a_process_that_is_not_told_of_a_window_records_its_waits(probe: Probe, told: bool) -> None:
    """A pool's worker that boots, or is forked, while main counts: it is never told that main does so no more."""
    script = CONTEND + dedented("""
        from pytest_ftgate.runner import locks
        kinds = threading.Lock, threading.RLock
        made = [kind() for kind in kinds for _ in range(2)]
        if TOLD: locks.sync()

        def use():
            for number, lock in enumerate(made):
                contend(lock, take if number % 2 else lambda lock: lock.acquire() and lock.release())

        use()
        locks.book.window[0] = locks.RECORD | 1 << 2
        use()
    """).replace("TOLD", str(told))
    ran = probe.good(script, window=COUNT)
    acquired = 4 if told else 0  # Those of some processes alone would be no share of all.
    assert sorted((site["kind"], site["contended"], site["acquired"]) for site in ran.sites) == [
        ("Lock", 2, acquired),
        ("RLock", 2, acquired),
    ]


@confirmed
def test_no_wait_that_straddles_two_windows_is_kept(probe: Probe) -> None:
    """The pause between the turns would be charged to the lock."""
    iterations = "from pytest_ftgate.runner.locks import OFF, RECORD, set_window\n"
    once = WAITS.replace("    end()\n", "    set_window(RECORD)\n    end()\n")
    assert once != WAITS
    assert [site for site in probe.good(iterations + once).sites if site["waits_for"] == "queue"] == []
    straddled = "    set_window(OFF)\n    set_window(RECORD)\n    lock.release()\n"
    locks = CONTENDED.replace("    lock.release()\n", straddled)
    assert locks != CONTENDED
    assert probe.good(iterations + locks).sites == []
    missed = TIMEOUTS.replace("TIMED", "True").replace("thread.join()", "AGAIN").replace("0.02", "0.15")
    again = "\nwhile thread.is_alive(): time.sleep(0.005); set_window(RECORD)\n"
    assert "AGAIN" in missed
    assert "0.15" in missed
    assert probe.good(iterations + "import time\n" + missed.replace("AGAIN", again)).sites == []


def test_openings_of_the_window_are_told_apart(probe: Probe) -> None:
    script = dedented("""
        from pytest_ftgate.runner import locks
        window = locks.book.window
        for state in (locks.RECORD, locks.OFF, locks.COUNT, locks.OFF, locks.OFF):
            locks.set_window(state)
            print(window[0] & 3, window[0] >> 2)
        for _ in range(62): locks.set_window(locks.RECORD)
        print(window[0] & 3, window[0] >> 2)
    """)
    assert probe.good(script, window=OFF).out.splitlines() == ["1 1", "0 1", "2 2", "0 2", "0 2", "1 0"]


# Whatever runs in between

REENTERED = dedented("""
    import faulthandler, multiprocessing, sys, threading
    from pytest_ftgate.runner import locks
    faulthandler.dump_traceback_later(60, exit=True)
    lines = 0
    permits = multiprocessing.Semaphore(2)

    def create():
        global lines
        lines += 1
        exec(compile("\\n" * lines + "lock = threading.Lock()", "made.py", "exec"), {"threading": threading})

    def between(frame, event, argument):
        if "locks" in frame.f_code.co_filename:
            frame.f_trace_opcodes = True
            if event == "opcode":
                create()
                with permits: pass
            return between

    locks.set_window(locks.COUNT)
    sys.settrace(between)
    create()
    with permits: pass
    locks.named(threading.Lock(), "named")
    sys.settrace(None)
    made = {site.line for site in locks.book._sites.values() if site.file == "made.py"}
    assert made == set(range(2, lines + 2)), (lines, len(made))
    assert lines > 100
""")


def test_a_signal_or_finalizer_that_creates_locks_never_blocks(probe: Probe) -> None:
    """What runs between any two instructions of ours creates locks and uses them, as a handler may: nothing is held."""
    probe.good(REENTERED)


# Whose line it is


@confirmed
def test_a_lock_that_generated_code_creates_is_its_callers(probe: Probe) -> None:
    script = CONTEND + dedented("""
        import dataclasses, queue

        @dataclasses.dataclass
        class Shared:
            lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
            items: queue.Queue = dataclasses.field(default_factory=queue.Queue)

        first = Shared()
        second = Shared()
        for lock in (first.lock, second.lock, second.items.mutex): contend(lock)
        made = []
        # Called by the standard library alone.
        thread = threading.Thread(target=eval, args=("made.append(Shared().lock)", globals()))
        thread.start()
        thread.join()
        contend(made[0])
    """)
    ran = probe.good(script)
    assert [site["kind"] for site in ran.at("first =", script)] == ["Lock"]
    assert sorted(site["kind"] for site in ran.at("second =", script)) == ["Lock", "Queue"]
    (other,) = [site for site in ran.sites if site["file"] != str(probe.folder / "script.py")]
    assert (other["file"], other["contended"]) == ("<string>", 1)


# As without it

BEHAVIOUR = dedented("""
    import copy, inspect, pickle, queue, re, sys, threading, warnings, weakref, _thread
    if "pytest_ftgate.runner.locks" in sys.modules:
        sys.modules["pytest_ftgate.runner.locks"].sync()

    def error_of(action):
        try: action()
        except Exception as error: return error

    def say(what, action):
        try:
            told = repr(action())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        print(what, re.sub("0x[0-9a-f]+|owner=[1-9][0-9]*", "0x", told))

    for name in ("Lock", "RLock", "Condition"):
        make = getattr(threading, name)
        lock = make()
        say(name, lambda: lock)
        for call in ("acquire()", "acquire(False)", "acquire(True, 0)", "acquire(True, 0.001)", "acquire(False, 1)",
                     "acquire(True, -2)", "acquire(timeout=-0.5)", "acquire(True, 1e100)", "acquire(timeout=None)",
                     "acquire('x', 'y')", "acquire(0)", "acquire(timeout=-1.0)", "locked()", "release()", "release()",
                     "release()", "release()", "release()", "release()", "release()", "release()", "release()"):
            if make is threading.Lock and call == "acquire()" and lock.locked(): continue
            if make is threading.Lock and call == "acquire(timeout=-1.0)": continue
            say(name + " " + call, lambda: eval("lock." + call))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            say(name, lambda: pickle.dumps(lock, protocol))
        say(name, lambda: copy.copy(lock))
        say(name, lambda: copy.deepcopy(lock))
        say(name, lambda: pickle.loads(pickle.dumps(make)) is make)
        say(name, lambda: weakref.ref(lock)() is lock)
        say(name, lambda: lock == lock and lock != make() and hash(lock) == hash(lock))
        say(name, lambda: lock.__enter__())
        say(name, lambda: lock)
        say(name, lambda: lock.__exit__(None, None, None))
    lock = threading.Lock()
    say("isinstance", lambda: isinstance(lock, _thread.LockType))
    say("isinstance", lambda: isinstance(_thread.allocate_lock(), threading.Lock))
    say("isinstance", lambda: isinstance(threading.RLock(), _thread.RLock) and isinstance(lock, threading.Lock))
    say("isinstance", lambda: isinstance(threading.RLock(), threading.Lock) or isinstance(1, threading.Lock))
    say("obsolete", lambda: (lock.acquire_lock(), lock.locked_lock(), lock.acquire_lock(False), lock.release_lock()))
    say("attribute", lambda: hasattr(lock, "mine") or hasattr(lock, "__dict__"))
    say("reinit", lambda: (lock.acquire(), lock._at_fork_reinit(), lock.locked()))
    say("subclass", lambda: type("Mine", (threading.Lock,), {}))
    say("arguments", lambda: type(threading.Lock) and threading.Condition(1, 2))
    warnings.simplefilter("error")
    say("arguments", lambda: threading.RLock(1))
    for arguments in ("1", "x=1"):
        say("arguments", lambda: type(error_of(lambda: eval(f"threading.Lock({arguments})"))))
    say("union", lambda: isinstance(lock, threading.Lock | None))
    for kind in (threading.Condition, threading.Semaphore, threading.BoundedSemaphore, threading.Event,
                 threading.Barrier, queue.Queue, queue.PriorityQueue):
        say(kind, lambda: (inspect.signature(kind), pickle.loads(pickle.dumps(kind)) is kind))
        for method in ("__init__", "acquire", "wait", "__enter__"):
            say(method, lambda: (getattr(kind, method).__qualname__, bool(getattr(kind, method).__doc__)))
    say("semaphore", lambda: threading.Semaphore(-1))
    say("semaphore", lambda: threading.Semaphore(1).acquire(False, 1))
    say("bounded", lambda: threading.BoundedSemaphore(1).release())
    say("barrier", lambda: threading.Barrier(0))
    say("barrier", lambda: threading.Barrier(1).wait())
    say("condition", lambda: threading.Condition().wait())
    say("condition", lambda: threading.Condition(threading.Lock()).notify())
    say("condition", lambda: threading.Condition(threading.Lock()))
    say("queue", lambda: queue.SimpleQueue().get(timeout=-1))
    say("queue", lambda: queue.SimpleQueue().get(False))
    say("queue", lambda: queue.SimpleQueue().get_nowait())
    say("queue", lambda: queue.SimpleQueue(1))
    say("queue", lambda: isinstance(queue.SimpleQueue(), queue.SimpleQueue))
    say("queue", lambda: queue.SimpleQueue[int].__args__)
    say("queue", lambda: queue.Queue(maxsize=1).get(timeout=0.001))
    say("loader", lambda: (type(queue.__loader__), type(queue.__spec__.loader)))

    class Ready(threading.Condition):
        def __init__(self): super().__init__(threading.RLock()); self.mine = 1
        def wait(self, timeout=None): return super().wait(0.001)
    class Permits(threading.BoundedSemaphore):
        def acquire(self, blocking=True, timeout=None): return super().acquire(blocking, timeout)
    class Done(threading.Event): pass
    class Meeting(threading.Barrier): pass
    class Items(queue.LifoQueue):
        def _init(self, maxsize): self.queue = ["first"]
    class Simple(queue.SimpleQueue):
        def get(self, *args): return ("mine", super().get(*args))
    def use(condition):
        with condition: return condition.wait(), condition.wait_for(lambda: True), condition.mine
    say("own", lambda: use(Ready()))
    permits = Permits(2)
    say("own", lambda: (permits.acquire(), permits.acquire(), permits.acquire(False), permits.release()))
    say("own", lambda: (Done().wait(0.001), Meeting(1).wait(), Items().get(), isinstance(Items(), queue.Queue)))
    simple = Simple()
    say("own", lambda: (simple.put(3), simple.get(), isinstance(simple, queue.SimpleQueue), type(simple)))
""")


def test_locks_behave_as_without_the_probe(probe: Probe) -> None:
    """The same script says the same: representations, errors, pickling, signatures, subclasses."""
    plain = probe.good(BEHAVIOUR, window=None)
    assert len(plain.out.splitlines()) > 150
    for window in (RECORD, COUNT):
        wrapped = probe.good(BEHAVIOUR, window=window)
        assert wrapped.out.splitlines() == plain.out.splitlines()


TYPES = dedented("""
    import abc, asyncio, contextlib, copy, copyreg, functools, inspect, io, pickle, queue, re, sys, threading, _thread
    if "pytest_ftgate.runner.locks" in sys.modules:
        sys.modules["pytest_ftgate.runner.locks"].sync()

    def say(*told):
        print(re.sub("0x[0-9a-f]+", "0x", " ".join(map(str, told))))

    def attempt(action):
        try: return action()
        except Exception as error: return repr(error)

    RAW = {"Lock": _thread.LockType, "RLock": _thread.RLock}
    for name, raw in RAW.items():
        lock = getattr(threading, name)()
        kind = type(lock)
        with contextlib.ExitStack() as stack:
            stack.enter_context(lock)
            say(name, lock.locked())
        say(name, lock.locked())
        with contextlib.ExitStack() as stack:
            stack.push(lock)
            stack.callback(lambda: say("callback", lock.locked()))
            kind.acquire(lock)
        async def main():
            async with contextlib.AsyncExitStack() as stack: stack.enter_context(lock)
        asyncio.run(main())
        kind.__enter__(lock)
        kind.__exit__(lock, None, None, None)
        kind.acquire(lock, blocking=True, timeout=1)
        kind.release(lock)
        say(name, lock.locked(), attempt(lambda: kind.release(lock)))
        say(kind == raw, raw == kind, hash(kind) == hash(raw), kind != raw, kind is type(getattr(threading, name)()))
        say(issubclass(raw, kind), issubclass(int, kind), kind == int, kind == None, isinstance(lock, kind | None))
        say([each for each in dir(raw) if not hasattr(lock, each)])
        say([hasattr(lock, each) for each in ("_release_save", "_acquire_restore", "_is_owned", "_recursion_count")])
        for method in (lock.acquire, lock.release, lock.locked, lock.__enter__): say(inspect.signature(method))

        @functools.singledispatch
        def by_kind(thing): return "other"
        by_kind.register(kind, lambda thing: "kind")
        @functools.singledispatch
        def by_raw(thing): return "other"
        by_raw.register(raw, lambda thing: "raw")
        for each in (lock, raw(), 1): say(by_kind(each), by_raw(each))

        for registered in (kind, raw):
            copyreg.pickle(registered, lambda lock: (getattr(threading, name), ()))
            for each in (lock, raw()):
                for made in (pickle.loads(pickle.dumps(each)), copy.copy(each), copy.deepcopy([each])[0]):
                    say(isinstance(made, kind), made is each)
            del copyreg.dispatch_table[registered]

        class Pickler(pickle._Pickler):  # as dill's
            dispatch = {**pickle._Pickler.dispatch,
                        raw: lambda self, lock: self.save_reduce(getattr(threading, name), (), obj=lock)}
        for each in (lock, raw(), [lock, lock]):
            file = io.BytesIO()
            Pickler(file).dump(each)
            made = pickle.loads(file.getvalue())
            say(isinstance(made, kind), type(made) is list and made[0] is made[1])
        file = io.BytesIO()
        Pickler(file).dump(threading.Condition(lock))
        made = pickle.loads(file.getvalue())
        with made: say(type(made), made.wait(0.001))
        made.acquire(); made.notify(); made.release()
        say(made.locked(), made._lock.locked(), lock.locked())
    match threading.Lock():
        case threading.Lock(): say("a lock")

    class Mine(type(threading.RLock()), abc.ABC):
        def __init__(self, *named): self._raw = self._acquire = self._wait = self.named = named
        def acquire(self, *how, **hows): say("acquire"); return super().acquire(*how, **hows)
        def release(self): say("release"); super().release()
        def __enter__(self): say("enter"); return super().__enter__()
        def __exit__(self, *error): say("exit"); super().__exit__(*error)
        def locked(self): say("locked"); return super().locked()
        def _release_save(self): say("save"); return super()._release_save()
    mine = Mine("a", 1)
    mine.acquire(); mine.release(); mine.locked()
    with mine: say(repr(mine).partition(" owner")[0])
    with contextlib.ExitStack() as stack: stack.enter_context(mine)
    condition = threading.Condition(mine)
    with condition: condition.wait(0.001)
    condition.acquire(); condition.notify(); condition.release()
    say(mine.named, type(mine) is Mine, mine.__class__ is Mine, isinstance(mine, threading._CRLock))
    say(Mine == _thread.RLock, isinstance(_thread.RLock(), Mine), issubclass(Mine, type(threading.RLock())))

    class WithState(type(threading.RLock())):
        def __getstate__(self): return {}
    class WithReduce(type(threading.RLock())):
        def __reduce__(self): return WithReduce, ()
    class Bare(type(threading.RLock())): pass
    class Waiting(queue.SimpleQueue): pass
    for kind in (WithState, WithReduce, Bare, queue.SimpleQueue, Waiting):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            say(str(attempt(lambda: type(pickle.loads(pickle.dumps(kind(), protocol))))).partition("(")[0])
""")


def test_code_that_looks_at_the_type_of_a_lock_finds_what_it_finds_without_the_probe(probe: Probe) -> None:
    """Methods taken from the type, as an ExitStack does, dispatch by type, as dill does, and subclasses' overrides."""
    plain = probe.good(TYPES, window=None)
    assert len(plain.out.splitlines()) > 100
    for window in (RECORD, COUNT):
        assert probe.good(TYPES, window=window).out.splitlines() == plain.out.splitlines()


GREENLETS = dedented("""
    import _thread, gc, threading

    class GreenletLock:  # gevent's replaces these, then asks that no lock of another kind is left
        def __init__(self): self.held = 0
        def acquire(self, blocking=True, timeout=-1):
            if self.held and not blocking: return False
            self.held += 1
            return True
        def release(self): self.held -= 1
        def locked(self): return self.held > 0
        def __enter__(self): return self.acquire()
        def __exit__(self, *error): self.release()

    threading.Lock = threading._allocate_lock = _thread.allocate_lock = GreenletLock
    threading._CRLock = None
    kind = type(threading.RLock())
    assert kind is threading._RLock, kind
    for found in gc.get_objects():
        assert not isinstance(found, kind) or hasattr(found, "_owner"), found
    condition = threading.Condition()
    assert type(condition._lock) is kind, type(condition._lock)
    with condition: condition.notify()
    event = threading.Event()
    event.set()
    assert event.wait(1)
""")


def test_locks_that_another_library_puts_in_place_of_the_raw_ones_are_its_own(probe: Probe) -> None:
    """`gevent.monkey.patch_all` crashed."""
    for window in (None, RECORD):
        probe.good(GREENLETS, window=window)


STANDARD_LIBRARY = dedented("""
    import queue, threading, _thread
    from concurrent.futures import ThreadPoolExecutor, Future
    import logging
    raw = type(_thread.allocate_lock())
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(abs, range(-9, 0))) == list(range(9, 0, -1))
        assert type(pool._shutdown_lock) is raw and type(pool._work_queue).__module__ == "_queue"
    assert type(Future()._condition._lock) is _thread.RLock
    assert type(threading.Event()._cond._lock) is raw
    assert type(threading.Lock()) is threading.Lock and type(queue.Queue().mutex) is threading.Lock
    assert type(logging.getLogger().manager) and type(logging._lock) is threading.RLock
""")


def test_inner_locks_of_the_standard_library_stay_raw(probe: Probe) -> None:
    probe.good(STANDARD_LIBRARY)


def test_a_queue_that_is_imported_already_is_patched_at_once(probe: Probe) -> None:
    script = dedented("""
        import os, queue, sys
        from pytest_ftgate.runner import locks
        raw = queue.SimpleQueue
        os.mkdir("late")
        with open("late/window", "wb") as file: file.write(bytes(1))
        locks.install("late")
        locks.install("late")
        assert locks.active() and queue.SimpleQueue is not raw
        assert sum(type(finder).__module__.endswith("locks.imports") for finder in sys.meta_path) == 1
    """)
    probe.good(script, window=None)


CPYTHON = dedented("""
    import sys, threading, unittest
    try:
        from test import lock_tests
    except ImportError as error:
        print("skip:", error)
        sys.exit()
    kinds = dict(LockTests=("locktype", "Lock"), RLockTests=("locktype", "RLock"), EventTests=("eventtype", "Event"),
                 ConditionTests=("condtype", "Condition"), SemaphoreTests=("semtype", "Semaphore"),
                 BoundedSemaphoreTests=("semtype", "BoundedSemaphore"), BarrierTests=("barriertype", "Barrier"))
    suite = unittest.TestSuite()
    for tests, (attribute, name) in kinds.items():
        case = type(tests, (getattr(lock_tests, tests),), {attribute: staticmethod(getattr(threading, name))})
        suite.addTest(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(suite)
    sys.exit(not result.wasSuccessful())
""")


def test_the_interpreters_own_lock_tests_pass(probe: Probe) -> None:
    ran = probe.good(CPYTHON)
    if ran.out.startswith("skip:"):
        pytest.skip(f"{probe.python} does not ship the standard library's tests: {ran.out[5:].strip()}")
    assert "OK" in ran.out


# Whose time the waits are a share of


def test_the_life_of_each_thread_that_may_wait_is_noted(probe: Probe) -> None:
    script = dedented("""
        import _thread, concurrent.futures, multiprocessing, queue, threading, time
        from multiprocessing.pool import ThreadPool
        from pytest_ftgate.runner.locks import book

        def alive():
            return len(book.lifetimes.until_now()) - len(book.lifetimes.ended)

        assert alive() == 1  # the main thread
        book.lifetimes.leave_out_main()
        assert alive() == 0
        enough = threading.Event()
        thread = threading.Thread(target=enough.wait)
        thread.start()
        assert alive() == 1
        time.sleep(0.02)
        enough.set()
        thread.join()
        (life,) = book.lifetimes.ended
        assert life[1] - life[0] > 15e6 and alive() == 0

        class Mine(threading.Thread):
            def run(self): raise SystemExit
        mine = Mine()
        mine.start(); mine.join()
        timer = threading.Timer(0, print)
        timer.start(); timer.join()
        together = threading.Barrier(3)  # else a thread that is done early does another one's part
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda _: together.wait(), range(3)))
        with ThreadPool(2) as pool:
            pool.map(abs, range(4))
            pool.close(); pool.join()  # leaving the block alone does not wait for its threads
        assert len(book.lifetimes.ended) == 1 + 1 + 1 + 3 + 2, book.lifetimes.ended

        # A pool of processes and a queue have threads of their own, which run nothing of the workload.
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool: assert pool.submit(abs, -1).result()
        items = context.Queue()
        items.put(1)
        assert items.get() == 1
        items.close(); items.join_thread()
        assert len(book.lifetimes.ended) == 8 and alive() == 0

        # A thread that threading does not know is noted when it first waits.
        lock, over = threading.Lock(), threading.Event()
        lock.acquire()
        def foreign():
            with lock: pass
            with lock: pass
            over.set()
        _thread.start_new_thread(foreign, ())
        while not alive(): time.sleep(0.001)
        assert alive() == 1
        lock.release()
        over.wait()
        assert alive() == 1
    """)
    ran = probe.good(script)
    assert len(ran.lifetimes) == 2  # this process and the pool's


def test_the_main_threads_of_multiprocessings_own_processes_are_not_noted(probe: Probe) -> None:
    script = dedented("""
        import multiprocessing, os, time
        def hold(lock):
            with lock: pass
        if __name__ == "__main__":
            context = multiprocessing.get_context("forkserver")
            with context.Manager() as manager:
                lock = manager.Lock()
                process = context.Process(target=hold, args=(lock,))
                process.start()
                process.join()
                time.sleep(0.2)
                print(os.getpid(), process.pid, manager._process.pid)
    """)
    ran = probe.good(script)
    main, worker, manager = (f"{pid}-0" for pid in ran.out.split())
    assert set(ran.lifetimes) == {main, worker, manager}  # neither the forkserver nor the resource tracker
    assert len(ran.lifetimes[main]) == len(ran.lifetimes[worker]) == 1


def test_threads_that_lived_while_nothing_was_recorded_are_forgotten(probe: Probe) -> None:
    script = dedented("""
        import threading
        from pytest_ftgate.runner import locks
        over = threading.Event()
        for state in (locks.OFF, locks.COUNT, locks.RECORD):
            locks.set_window(state)
            started = [threading.Thread(target=print), threading.Thread(target=over.wait)]
            for thread in started: thread.start()
            started[0].join()
            locks.set_window(locks.OFF)
        print(len(locks.book.lifetimes.ended), len(locks.book.lifetimes.until_now()))
        over.set()
    """)
    # The main thread, those that waited before the window opened, and both that were started in it.
    assert probe.good(script, window=OFF).out.split() == ["1", "5"]


# Every process and interpreter


@confirmed
def test_a_forked_child_keeps_its_own_waits_at_the_locks_own_site(probe: Probe) -> None:
    script = CONTEND + dedented("""
        import os, sys
        lock = threading.Lock()
        contend(lock)
        contend(lock)
        child = os.fork()
        if not child:
            contend(lock)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        contend(lock)
        print(os.getpid(), child)
    """)
    ran = probe.good(script)
    parent, child = ran.out.split()
    assert {name: [site["contended"] for site in sites] for name, sites in ran.files.items()} == {
        f"{parent}-0": [3],
        f"{child}-0": [1],
    }
    assert len(ran.at("lock =", script)) == 2


def test_a_child_of_another_interpreter_process_has_the_probe(probe: Probe) -> None:
    script = dedented("""
        import subprocess, sys
        body = "from pytest_ftgate.runner import locks; print(locks.active())"
        print(subprocess.run([sys.executable, "-c", body], capture_output=True, text=True).stdout)
    """)
    assert probe.good(script).out.split() == ["True"]


@confirmed
def test_each_sub_interpreter_has_the_probe_and_a_file_of_its_own(probe: Probe) -> None:
    script = f"body = {CONTEND + 'contend(threading.Lock())'!r}\n" + dedented("""
        import os
        from concurrent import interpreters
        for _ in range(2):
            interpreter = interpreters.create()
            interpreter.exec(body)
            interpreter.close()
        print(os.getpid())
    """)
    ran = probe.good(script)
    pid = ran.out.strip()
    assert {name: [site["contended"] for site in sites] for name, sites in ran.files.items()} == {
        f"{pid}-1": [1],
        f"{pid}-2": [1],
    }


@pytest.fixture
def chained(tmp_path: Path) -> Path:
    folder = tmp_path / "chained"
    folder.mkdir()
    return folder


def test_the_start_hook_gives_way_to_the_one_that_was_there(probe: Probe, chained: Path) -> None:
    (chained / "sitecustomize.py").write_text("import threading\nMINE = threading.Lock()\n", "utf-8")
    script = dedented("""
        import sitecustomize, sys, threading
        print(sitecustomize.MINE, sitecustomize.__file__, type(sitecustomize.MINE) is threading.Lock)
    """)
    ran = probe.good(script, behind=(chained,))
    assert str(chained / "sitecustomize.py") in ran.out
    assert ran.out.strip().endswith("True")


def test_errors_of_the_one_that_was_there_are_as_without_the_probe(probe: Probe, chained: Path) -> None:
    (chained / "sitecustomize.py").write_text("1 / 0\n", "utf-8")
    script = "import sys; print('sitecustomize' in sys.modules)"
    plain = probe.run(script, window=None, behind=(chained,))
    assert "ZeroDivisionError" in plain.err
    assert probe.run(script, behind=(chained,))[:3] == plain[:3]


def test_without_one_there_is_none(probe: Probe) -> None:
    script = dedented("""
        import sys
        try: import sitecustomize
        except ImportError as error: print(error.name, "sitecustomize" in sys.modules)
    """)
    assert probe.good(script).out == probe.good(script, window=None).out


def test_a_probe_that_cannot_be_installed_ends_the_interpreter(probe: Probe, tmp_path: Path) -> None:
    """Going on without it would be told as a workload that never waits."""
    environment = probe.environment([HOOK, SOURCE], tmp_path / "nowhere")
    ran = subprocess.run([probe.python, "-c", "print('ran')"], env=environment, capture_output=True, text=True)
    assert ran.returncode != 0
    assert ran.stdout == ""
    assert re.search(r"FileNotFoundError.*nowhere.*the lock probe could not be installed", ran.stderr, re.DOTALL)


def test_a_sub_interpreter_without_the_probe_is_an_error(probe: Probe) -> None:
    script = dedented("""
        import os
        from concurrent import interpreters
        os.environ["FTGATE_LOCKS"] = "nowhere"
        interpreters.create().exec("print('ran')")
    """)
    ran = probe.run(script)
    assert (ran.code, ran.out) == (1, "")
    assert "InterpreterError: interpreter creation failed" in ran.err


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_managers_lock_is_made_by_name_in_its_server(probe: Probe, method: str) -> None:
    """The server's registry is pickled with the types, so each must be found by the name that it takes."""
    script = dedented("""
        import multiprocessing, threading
        def use(lock, again, items):
            with lock, again:
                items.put(threading.Lock is type(threading.Lock()))
        if __name__ == "__main__":
            context = multiprocessing.get_context("METHOD")
            with context.Manager() as manager:
                arguments = manager.Lock(), manager.RLock(), manager.Queue()
                child = context.Process(target=use, args=arguments)
                child.start()
                print(arguments[2].get(timeout=60), manager.Semaphore(1).acquire(), manager.Event().is_set())
                child.join()
    """).replace("METHOD", method)
    assert probe.good(script).out.split() == ["True", "True", "False"]


def test_a_patched_module_does_not_get_to_see_the_loader(probe: Probe) -> None:
    script = dedented("""
        import importlib, inspect, queue, sys
        for _ in range(2):
            assert type(queue.__loader__).__name__ == type(queue.__spec__.loader).__name__ == "SourceFileLoader"
            assert inspect.getsource(queue).startswith("'''A multi-producer")
            assert queue.SimpleQueue.__module__ == "queue" and type(queue.Queue()._ftgate_rename)
            importlib.reload(queue)
    """)
    probe.good(script)
