"""One launch: read the job, run iterations when asked, write the result."""

from __future__ import annotations

import gc
import marshal
import os
import sys

from . import loading, stacks
from .clock import check_clocks, resolution_ns
from .executors.base import Observer
from .executors.making import make_workers
from .gil import gil_enabled, gil_watch
from .orders import AT_BARRIER, CHECKING, COLLECTING, HOLDING, OBSERVED, VALUES, Order
from .primitives import Context, multiprocessing_context
from .protocol import (
    BARRIER,
    CHECK,
    CHECKED_COLD,
    HOLD,
    LEFT,
    LENGTH_BYTES,
    MARSHAL,
    MEASURED,
    PROTOCOL,
    WARMUP,
    Failure,
    ProtocolError,
    Unsupported,
    explain,
    framed,
)
from .record import LaunchRecord
from .worker import tell_loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .api import Declaration
    from .setups import LaunchSetups


class ControlPipes:
    """The pair of pipes to the controller. The workload's children do not get them."""

    def __init__(self, read: int, write: int) -> None:
        os.set_inheritable(read, False)
        os.set_inheritable(write, False)
        self.read = read
        self.write = write

    def receive(self) -> dict[str, Any]:
        """The next message. If the controller has ended, no process of this launch outlives it."""
        length = int.from_bytes(self._receive(LENGTH_BYTES), "big")
        message: dict[str, Any] = marshal.loads(self._receive(length))
        return message

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            part = os.read(self.read, size - len(received))
            if not part:
                from signal import SIG_IGN, SIGKILL, SIGTERM, signal

                signal(SIGTERM, SIG_IGN)
                os.killpg(0, SIGTERM)  # not of resource trackers: they remove semaphores and shared memory, then end
                os.kill(os.getpid(), SIGKILL)
            received += part
        return received

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. If the controller has ended, the next `receive` notices it."""
        left = framed(message)
        try:
            while left:
                left = left[os.write(self.write, left) :]
        except BrokenPipeError:
            pass


class LaunchObserver(Observer):
    """Tells the controller, the lock probe and the observers of features about an iteration of one kind.

    Of a held one the controller learns when the workers are at work, and when they have done their part. It answers
    once it has sampled them: until then none of them ends, or leaves the barrier.
    """

    def __init__(self, cell: MeasuredCell, control: ControlPipes, kind: str, settled: bool) -> None:
        self.cell = cell
        self.control = control
        self.kind = kind
        self.settled = settled
        self.figures: list[dict[str, Any]] = []
        self.end: Any = None

    def resting(self, rests: bool) -> None:
        self.cell.open_window("" if rests else self.kind)

    def releasing(self, executor: Any) -> None:
        files = self.cell.setup["observers"]
        # Workers in processes and interpreters of their own have their observers there.
        if files and self.kind not in (HOLD, BARRIER, LEFT) and getattr(executor, "shares_memory", True):
            from .observing import observe

            self.end = observe(files, executor)

    def released(self, executor: Any) -> None:
        if self.kind == HOLD:
            self.control.send({"event": "released", "processes": executor.process_map()})

    def done(self, executor: Any) -> None:
        if self.kind == HOLD:
            self.control.send({"event": "done"})
            self.control.receive()
        elif self.end is not None:
            self.figures = [self.end()]

    def at_barrier(self, executor: Any) -> None:
        if self.settled:  # a free-threaded build's allocator adopts what ended threads have left, and frees it
            from threading import Thread

            thread = Thread(target=lambda: [bytes(size) for size in range(0, 4096, 64)])
            thread.start()
            thread.join()
            if gc.isenabled():
                gc.collect()
        tell_loads()
        self.control.send({"event": "at_barrier", "processes": executor.process_map()})
        self.control.receive()


FLAGS = {
    CHECK: COLLECTING | CHECKING,
    CHECKED_COLD: COLLECTING | CHECKING,
    HOLD: HOLDING,
    BARRIER: AT_BARRIER,
    LEFT: COLLECTING | AT_BARRIER,
}
"""Flags of the order by kind of iteration; all other kinds only collect garbage first."""


class MeasuredCell:
    """The cell that this launch measures: its workers, its shared state and its record."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.setup = job["setup"]
        self.record = LaunchRecord()
        # 1. The lock probe, which the start hook has installed.
        self.probe: Any = None
        if job["locks"]:
            from . import locks

            if not locks.active():
                what = "something keeps this interpreter from importing sitecustomize"
                raise Failure(f"the lock probe is not active: {what}")
            self.probe = locks
            self.probe.book.lifetimes.leave_out_main()
        # 2. The workload's module; the body is loaded once, and threads and forked workers share it.
        self.expects_gil_off = job["expect_gil"] is False
        loading.prepare(self.setup)
        gil_watch.install()
        self.declaration: Declaration | None = None
        self.owner: Any = None
        if not self.setup["control"]:
            self.declaration, self.owner = loading.declaration(self.setup)
        self.check_gil(gil_enabled(), gil_watch.module)
        body = loading.body(self.setup)
        for role, _ in self.setup["roles"]:
            loading.body(self.setup, role)
        if not self.setup["control"]:
            self.setup = {**self.setup, "shape": body.shape}
        # 3. Where multiprocessing keeps its sockets, and how it names its semaphores: the controller removes these also
        # after a kill.
        context = multiprocessing_context(self.setup["kind"], self.setup["method"])
        process: Any = sys.modules.get("multiprocessing.process")
        if process is not None:
            kept = process.current_process()._config
            kept["semprefix"] = job["semaphores"] or kept["semprefix"]
            try:
                os.mkdir(job["folder"], 0o700)
                kept["tempdir"] = job["folder"]
            except OSError:
                pass
        # 4. The shared state, the workers and the setups.
        self.shared_objects = Context(self.setup, context)
        shared: Any = None
        if self.declaration is not None and self.declaration.shared is not None:
            shared = loading.owned(self.declaration.shared, self.owner)(self.shared_objects)
        self.executor = make_workers(self.setup, shared, job["fresh"], context)
        self.launch_setups: LaunchSetups | None = None
        if body.setups is not None:
            from .setups import LaunchSetups

            self.launch_setups = LaunchSetups(body.setups, shared, getattr(self.executor, "runner", None))

    def iteration(self, message: dict[str, Any], observer: Observer) -> dict[str, Any]:
        """One iteration as the controller asks for it; what it took, in ns."""
        kind = message["kind"]
        scopes = () if self.launch_setups is None else self.launch_setups.setups.functions
        if message["loops"] != 1 and any(scope == "iteration" for _, scope in scopes):
            raise Failure("has a setup for each iteration, which the compared test has not: both need the same setups")
        # 1. The order, with the window of the lock probe around it.
        flags = FLAGS.get(kind, COLLECTING)
        if self.setup["observers"] and not message["window_ns"]:
            flags |= OBSERVED
        checking = bool(flags & CHECKING)
        checks_itself = self.declaration is not None and self.declaration.check is not None
        if checking and checks_itself:
            flags |= VALUES
        self.open_window(kind)
        order = Order(message["loops"], message["window_ns"], flags)
        times, reports, led = self.executor.iteration(order, observer)
        self.open_window("")
        if self.probe is not None:
            self.probe.fold()
        # 2. Checks: the GIL stayed off; the results, by the test's own check or by comparing them with other cells'.
        for report in reports:
            self.check_gil(report["gil"], report["gil_module"])
        if checking and not message["window_ns"] and checks_itself:
            values = [report["value"] for report in reports]
            check = loading.owned(self.declaration.check, self.owner)  # type: ignore[union-attr]
            check(values[0] if self.setup["shape"] == "executor" else values)
        elif checking and not message["window_ns"]:
            result, results = "; ".join(report["result"] for report in reports), self.record.results
            results[result] = results.get(result, 0) + 1
        if kind == CHECKED_COLD:
            times["join_ns"] = 0
        # 3. What it took; and what a call takes in the slowest worker, over the median worker, 0 for a single worker.
        calls_ns = sorted((r["end_ns"] - r["begin_ns"]) / r["ops"] for r in led if r["ops"])
        count = len(calls_ns)
        middle_ns = (calls_ns[(count - 1) // 2] + calls_ns[count // 2]) / 2 if count > 1 else 0
        iteration = {
            **times,
            "wall_ns": times["start_ns"] + times["work_ns"] + times["join_ns"],
            "ops": sum(each["ops"] for each in led),
            "rate": sum(r["ops"] * 1e9 / (r["end_ns"] - r["begin_ns"]) for r in led if r["end_ns"] > r["begin_ns"]),
            "slowest": calls_ns[-1] / middle_ns if middle_ns else 0.0,
        }
        observed = [*observer.figures, *(each["observed"] for each in reports if "observed" in each)]
        self.record.add(kind, iteration["wall_ns"], reports, observed)
        return iteration

    def open_window(self, kind: str) -> None:
        """In a lock launch a warm-up counts acquisitions, and a measured iteration records waits: never both."""
        if self.probe is not None:
            states = {WARMUP: self.probe.COUNT, MEASURED: self.probe.RECORD}
            self.probe.set_window(states.get(kind, self.probe.OFF))

    def check_gil(self, enabled: bool, module: str) -> None:
        """Raise Failure where a cell must run without the GIL and has it: an error, never a slow result."""
        if self.expects_gil_off and (enabled or gil_watch.stays_on()):
            named = module or gil_watch.module
            by = f"module {named!r} turned it on" if named else "no module was named"
            raise Failure(
                f"the GIL came back on: {by}",
                "The module does not declare that it can run without the GIL (Py_mod_gil). "
                f"Use a version that does, or measure this interpreter as 3.{sys.version_info.minor}t[gil=on].",
            )

    def close(self) -> None:
        """End what is kept between iterations."""
        self.executor.close()
        self.record.start_ns, self.record.join_ns = self.executor.start_ns, self.executor.join_ns
        if self.launch_setups is not None:
            self.launch_setups.end()
        self.shared_objects.close()
        if self.probe is not None:
            self.probe.book.write()
        note = self.setup["gil_note"]
        if note and os.path.exists(note):
            with open(note, encoding="utf-8") as file:
                self.check_gil(True, file.read())

    def give_up(self) -> None:
        """After an error: tear down what was set up. The error before is the one to report."""
        if self.launch_setups is None:
            return
        for end in (self.executor.close, self.launch_setups.end, self.shared_objects.close):
            try:
                end()
            except BaseException:
                pass


def _write_result(path: str, result: dict[str, Any]) -> None:
    unfinished = path + ".part"
    with open(unfinished, "wb") as file:
        marshal.dump(result, file, MARSHAL)
    os.replace(unfinished, path)


def main(argv: list[str]) -> int:
    """Run the launch that the job file describes. Exit code 0 unless the job itself cannot be read."""
    with open(argv[0], "rb") as file:
        job: dict[str, Any] = marshal.load(file)
    if job.get("protocol") != PROTOCOL:
        raise ProtocolError(
            f"the job speaks protocol {job.get('protocol')}, this runner {PROTOCOL}: "
            "two versions of pytest-ftgate are mixed; remove the .ftgate folder"
        )
    stacks.install(job["setup"], stacks.stack_file(job["setup"], "main"))
    control = ControlPipes(*job["control"])
    result: dict[str, Any] = {"protocol": PROTOCOL, "error": None, "unsupported": None}
    cell = None
    try:
        # 1. The workload is imported, and its own setups have run.
        cell = MeasuredCell(job)
        if cell.launch_setups is not None:
            cell.launch_setups.begin()
        control.send({"event": "ready", "resolution_ns": resolution_ns()})
        # 2. Iterations, as the controller asks for them.
        while (message := control.receive())["do"] != "finish":
            iteration = cell.iteration(message, LaunchObserver(cell, control, message["kind"], job["settled"]))
            check_clocks()
            control.send({"event": "iteration", "iteration": iteration})
        cell.close()
    except Unsupported as unsupported:
        _, result["unsupported"] = explain(unsupported)
    except BaseException as error:
        # Lone surrogates are escaped: no report can hold them.
        reason, detail = (text.encode("utf-8", "backslashreplace").decode("utf-8") for text in explain(error))
        result["error"] = {"reason": reason, "detail": detail}
    if cell is not None and (result["error"] or result["unsupported"]):
        cell.give_up()
    # 3. The result file.
    record = LaunchRecord() if cell is None else cell.record
    result["launch"] = {**record.as_json(), "gil_enabled": gil_enabled()}
    result["iterations"], result["spans"] = (record.iterations, record.wall_ns), record.spans
    try:
        _write_result(job["result"], result)
    except ValueError as error:  # a figure of the workload that is no plain value
        reason = f"its figures cannot be written: {error}"
        _write_result(job["result"], {**result, "error": {"reason": reason, "detail": ""}, "launch": {}})
    control.send({"event": "closed"})
    sys.stdout.flush()
    return 0
