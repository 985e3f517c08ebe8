"""One window of load on a server: a load generator at work, and what it reports."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ...model import Iteration, Load
from ...runner.client import below
from ..launch import LaunchFailed
from ..watch.marks import MARK, marks
from . import load_generators
from .cpus import on, threads_for
from .load_generators import GeneratorOutput, Requests, Tool
from .output import PipeOutput
from .process import Process
from .server_process import ServerProcess

LATE_S: Final = 30.0
"""How much longer than its window a generator may take: wrk reads its last answers, oha sorts what it has kept."""
KEPT_BYTES: Final = 1 << 20
"""How much of what a generator prints is kept: oha's JSON has many lines."""
SampleMeanwhile = Callable[[float, Callable[[], bool]], None]
"""Takes samples in a window of load; gets the window's length in s, and a function that says whether it is over."""


class LoadWindow:
    """One window of load by a generator that is started for it, over new connections.

    Its generator has a mark of its own: it is ended with the window, and the server goes on.
    """

    def __init__(self, server: ServerProcess, load: Load, tool: Tool, seconds: float) -> None:
        self.server = server
        self.load = load
        self.tool = tool
        self.seconds = seconds
        self.generator: Process | None = None

    def run(self, sample: SampleMeanwhile | None = None, *, warming: bool = False) -> Iteration | None:
        """The window as an iteration; None where the generator's clock was set in it.

        Raises LaunchFailed where the server or the generator fails.
        """
        before, began = self.server.cpu_s(), time.monotonic()
        self.generator = generator = self._start()
        try:
            if sample is not None:
                sample(self.seconds, generator.over)
            if not generator.over(self.seconds + LATE_S):
                late = f"did not end within {LATE_S:g} s after its window of {self.seconds:g} s"
                raise self.server.process.failure(f"{self.tool.name} {late}")
            generator.tail()  # takes the rest of what it printed
        finally:
            generator.release()
        span_s, after = time.monotonic() - began, self.server.cpu_s()
        output = self._output(generator, warming)
        if not 0.98 * self.seconds <= output.seconds <= span_s + 0.1:
            return None
        wall_ns = round(1e9 * output.seconds)
        return Iteration(
            start_ns=0,
            work_ns=wall_ns,
            join_ns=0,
            wall_ns=wall_ns,
            cpu_ns=round(1e9 * sum(spent - before.get(pid, 0.0) for pid, spent in after.items())),
            ops=output.answers,
            rate=output.answers / output.seconds,
            latency=output.latency and msgspec.structs.replace(output.latency, asked_per_s=self.load.rate or 0.0),
        )

    def kill(self) -> None:
        """End the generator. Safe at any time, also twice."""
        if self.generator is not None:
            self.generator.release()

    def _start(self) -> Process:
        words = load_generators.argv_of(
            self.tool.name,
            self.tool.program,
            self._requests(),
            connections=self.load.connections,
            seconds=self.seconds,
            cpus=threads_for(self.tool),
            script=str(Path(__file__).with_name("wrk.lua")),
        )
        environment = os.environ | load_generators.environment_of(self.tool.name, threads_for(self.tool))
        with on(self.tool.own_cpus):
            return Process.start(words, environment | {MARK: next(marks())}, stdout=PipeOutput(KEPT_BYTES))

    def _requests(self) -> Requests:
        """What is sent, with its placeholders filled in; a body and several URLs are written to files."""
        load, server = self.load, self.server
        body = server.filled(load.body).encode() or load.body_bytes
        urls = tuple(below(server.url, server.filled(path)) for path in load_generators.round_of(load.mix))
        return Requests(
            urls,
            load.method,
            tuple((name, server.filled(value)) for name, value in load.headers),
            self._file("body", body),
            self._file("urls", "\n".join(urls).encode() if len(urls) > 1 else b""),
            load.rate or 0.0,
        )

    def _file(self, name: str, content: bytes) -> str:
        """The path of a file of the launch with this content; empty without any."""
        path = self.server.output.path.with_name(name)
        if content:
            path.write_bytes(content)
        return str(path) if content else ""

    def _output(self, generator: Process, warming: bool) -> GeneratorOutput:
        """What the generator reports; raises LaunchFailed where that is not of a server at work."""
        assert generator.exit is not None
        text, code = generator.outputs[0].text, generator.exit.code
        if code:  # a server that dies closes its connections a moment before it is gone
            self.server.process.over(0.5)
        self.server.must_run("under load")
        if code:
            last = (text.strip().splitlines() or [""])[-1]
            raise self._failure(f"{self.tool.name} exited with code {code}: {last}")
        try:
            output = load_generators.parse(self.tool.name, text)
        except load_generators.LoadError as error:
            raise self._failure(str(error)) from error
        # A server that is still warming up may break connections: Apache ends processes that are too many for it.
        most = load_generators.MOST_FAILED_WARMING if warming else load_generators.MOST_FAILED
        if output.share_failed > most:
            kinds = ", ".join(f"{count} by {kind}" for kind, count in output.errors.items())
            raise self._failure(
                f"{output.failed} of {output.failed + output.answers} requests failed under load ({kinds}): "
                "let the test request one, and see its answer"
            )
        if not output.answers:
            raise self._failure(f"no request was answered within {output.seconds:.3g} s of load; let window= be longer")
        self.server.must_keep_the_gil_off()
        self.server.output.trim()
        return output

    def _failure(self, reason: str) -> LaunchFailed:
        return self.server.process.failure(reason)
