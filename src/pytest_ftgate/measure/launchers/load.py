"""Load generators: the command lines of wrk and oha, what they report, and which CPUs they get. Pure."""

from __future__ import annotations

import json
import math
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...kit.errors import FtgateError
from ...kit.text import plural
from ...kit.values import Struct
from ...model.sample import Latency
from ...model.spec import Generator

INSTALL: Final[dict[Generator, str]] = {"wrk": "apt install wrk", "oha": "cargo install oha"}
"""The load generators in order of preference, each with the command that installs it."""
PATIENCE_S: Final = 10
"""An answer that takes longer counts as one that failed."""
MOST_FAILED: Final = 0.01
"""The share of requests that may fail; with more, the figures are not those of answers."""
MOST_FAILED_WARMING: Final = 0.5
"""The same in windows that are not measured."""
SPLIT_FROM: Final = 4
"""CPUs from which on the generator gets some of its own."""
_LEAST_NS: Final = 1_000_000_000
_DEADLINE: Final = "aborted due to deadline"
"""oha's word for requests that were under way when its time was up: not the server's fault."""


class GeneratorOutput(Struct, frozen=True, kw_only=True):
    """What a load generator reports of one window of load.

    `answers` are requests that were answered without an error, `errors` the number of the others by kind; `seconds` is
    the generator's own. `latency` is None where nothing was answered.
    """

    answers: int
    errors: dict[str, int]
    seconds: float
    latency: Latency | None

    @property
    def failed(self) -> int:
        return sum(self.errors.values())

    @property
    def share_failed(self) -> float:
        return self.failed / max(1, self.failed + self.answers)


def seconds_of(generator: Generator, window_ns: int) -> float:
    """How long a window of at least `window_ns` is: wrk takes whole seconds alone, oha milliseconds."""
    if generator == "wrk":
        return float(max(1, math.ceil(window_ns / _LEAST_NS)))
    return max(1, math.ceil(window_ns / 1e6)) / 1e3


def round_of(mix: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Each path as often as it comes, evenly spread."""
    places = [((turn + 0.5) / times, path) for path, times in mix for turn in range(times)]
    return tuple(path for _, path in sorted(places, key=lambda place: place[0]))


def argv_of(
    generator: Generator,
    program: str,
    urls: Sequence[str],
    *,
    connections: int,
    seconds: float,
    cpus: int,
    script: str,
    method: str = "GET",
    headers: Sequence[tuple[str, str]] = (),
    body: str = "",
    listed: str = "",
    rate: float = 0.0,
) -> list[str]:
    """The generator's command line for a window of `seconds`, in which it sends rounds of `urls`.

    `script` is wrk's, which prints JSON. `cpus` are those it may use: wrk has a thread on each, as far as its
    connections can be shared out evenly. `rate` is in requests per second, or 0. `body` and `listed` are files or
    empty: the body of each request, and `urls` by line if there are several.
    """
    words = [word for name, value in headers for word in ("-H", f"{name}: {value}")]
    if generator == "wrk":
        threads = str(threads_of(connections, cpus))
        options = ["-t", threads, "-c", str(connections), "-d", f"{seconds:.0f}s", "--timeout", f"{PATIENCE_S}s"]
        told: list[str] = []
        if method != "GET" or body or len(urls) > 1:  # what the script is told: nothing for plain requests of one path
            parts = [urllib.parse.urlsplit(url) for url in urls]
            paths = [urllib.parse.urlunsplit(("", "", part.path or "/", part.query, "")) for part in parts]
            told = ["--", method, body, *(paths if len(paths) > 1 else [])]
        return [program, *options, *words, "-s", script, urls[0], *told]
    options = ["-c", str(connections), "-z", f"{seconds * 1e3:.0f}ms", "-t", f"{PATIENCE_S}s", "--redirect", "0"]
    options += words
    if method != "GET":
        options += ["-m", method]
    if body:
        options += ["-D", body]
    if rate:
        options += ["-q", f"{rate:.12g}", "--latency-correction"]
    if urls[0].startswith("https:"):
        options.append("--insecure")
    target = ["--urls-from-file", listed] if listed else [urls[0]]
    return [program, "--no-tui", "--output-format", "json", *options, *target]


def environment_of(generator: Generator, cpus: int) -> dict[str, str]:
    """Variables of a generator's environment: oha would start a thread for each core of the whole machine."""
    return {"TOKIO_WORKER_THREADS": str(max(1, cpus))} if generator == "oha" else {}


def threads_of(connections: int, cpus: int) -> int:
    """As many threads as CPUs, but a divisor of the connections: wrk leaves the remainder of the division out."""
    return next(count for count in range(max(1, min(cpus, connections)), 0, -1) if connections % count == 0)


# -- what they report -------------------------------------------------------------------------------------------------


def parse(generator: Generator, output: str) -> GeneratorOutput:
    """Read what a generator printed. Raises FtgateError for what is not its JSON."""
    try:
        if generator == "oha":
            return _oha(json.loads(output[output.index("{") :]))
        objects = [line for line in output.splitlines() if line.startswith("{")]  # wrk's own text stands before it
        return _wrk(json.loads(objects[-1]))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        lines = output.strip().splitlines()
        raise FtgateError(
            f"{generator} did not print its figures: {lines[-1][:200] if lines else 'nothing'}"
        ) from error


def _wrk(report: Mapping[str, Any]) -> GeneratorOutput:
    """The line of our script. wrk counts an answer with an error, and one that came too late, as answered, too."""
    errors = {kind: int(count) for kind, count in report["errors"].items() if count}
    answers = max(0, int(report["requests"]) - errors.get("status", 0) - errors.get("timeout", 0))
    seconds = float(report["duration_us"]) / 1e6
    spans = {name: 1e3 * float(report[f"{name}_us"]) for name in ("mean", "p50", "p95", "p99", "max")}
    return _output(answers, errors, seconds, spans)


def _oha(report: Mapping[str, Any]) -> GeneratorOutput:
    """The JSON of oha, in which times are in seconds, and null where there was no answer."""
    codes = {code: int(count) for code, count in report["statusCodeDistribution"].items()}
    errors = {kind: int(count) for kind, count in report["errorDistribution"].items() if kind != _DEADLINE and count}
    refused = sum(count for code, count in codes.items() if int(code) >= 400)
    if refused:
        errors["status"] = refused
    summary, percentiles = report["summary"], report["latencyPercentiles"]
    spans = {name: percentiles[name] for name in ("p50", "p95", "p99")}
    spans |= {"mean": summary["average"], "max": summary["slowest"]}
    known = {name: 1e9 * float(span or 0.0) for name, span in spans.items()}
    return _output(sum(codes.values()) - refused, errors, float(summary["total"]), known)


def _output(answers: int, errors: dict[str, int], seconds: float, spans: Mapping[str, float]) -> GeneratorOutput:
    latency = Latency(**{f"{name}_ns": span for name, span in spans.items()}, errors=sum(errors.values()))
    return GeneratorOutput(answers=answers, errors=errors, seconds=seconds, latency=latency if answers else None)


# -- the CPUs ----------------------------------------------------------------------------------------------------


def split(cpus: Sequence[int], quota: float | None = None) -> tuple[frozenset[int], frozenset[int]]:
    """The CPUs of the server and those of the generator: the last quarter of `cpus`, at least one.

    `cpus` stand core by core. The same for both where there are fewer than four, or a `quota` of fewer cores.
    """
    if len(cpus) < SPLIT_FROM or (quota is not None and quota < SPLIT_FROM):
        return frozenset(cpus), frozenset(cpus)
    own = len(cpus) - max(1, len(cpus) // 4)
    return frozenset(cpus[:own]), frozenset(cpus[own:])


def split_note(server: frozenset[int], generator: frozenset[int], quota: float | None = None) -> str:
    """Who had which CPUs, for the table: `server and load generator share 2 CPUs, ...`."""
    if server != generator:
        return f"the server has {plural(len(server), 'CPU')}, the load generator {plural(len(generator), 'CPU')}"
    shared = plural(len(server), "CPU") if server else "the CPUs"
    limited = f" with a quota of {quota:g}" if quota is not None and quota < len(server) else ""
    return f"server and load generator share {shared}{limited}, so rates are lower than with separate CPUs"


class Tool(NamedTuple):
    """An installed load generator: its name, its program, and the CPUs of the server and its own."""

    name: Generator
    program: str
    server_cpus: frozenset[int]
    own_cpus: frozenset[int]
