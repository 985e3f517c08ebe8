"""What load generators are told and what they say, from real output, and whose CPUs are whose."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.measure.launchers import load as load_generators
from pytest_ftgate.measure.launchers.load import (
    argv_of,
    parse,
    round_of,
    seconds_of,
    split,
    split_note,
    threads_of,
)
from pytest_ftgate.model.spec import Generator

GOLDEN = Path(__file__).parents[1] / "golden"
SCRIPT = Path(load_generators.__file__).with_name("wrk.lua")
URL = "http://localhost:8000/json"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


# -- what they are told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generator", "window_ns", "seconds"),
    [
        ("wrk", 0, 1),
        ("wrk", 1, 1),
        ("wrk", 1_000_000_000, 1),
        ("wrk", 1_000_000_001, 2),
        ("wrk", 10_000_000_000, 10),
        ("oha", 0, 0.001),
        ("oha", 200_000_000, 0.2),
        ("oha", 1_500_000_001, 1.501),
    ],
)
def test_windows_are_as_long_as_asked_or_longer(generator: Generator, window_ns: int, seconds: float) -> None:
    assert seconds_of(generator, window_ns) == pytest.approx(seconds)


def told(
    generator: Generator, *urls: str, connections: int = 10, seconds: float = 2.0, cpus: int = 1, **requests: Any
) -> list[str]:
    of_window: dict[str, Any] = {"connections": connections, "seconds": seconds, "cpus": cpus, "script": "wrk.lua"}
    return argv_of(generator, f"/usr/bin/{generator}", urls or (URL,), **of_window, **requests)


WRK = ["/usr/bin/wrk", "-t", "2", "-c", "10", "-d", "2s", "--timeout", "10s"]
OHA = ["/usr/bin/oha", "--no-tui", "--output-format", "json", "-c", "10", "-z", "250ms", "-t", "10s", "--redirect", "0"]
POST: dict[str, Any] = {"method": "POST", "body": "/x/body", "headers": (("X-A", "1"), ("Content-Type", "text/plain"))}
HEADERS = ["-H", "X-A: 1", "-H", "Content-Type: text/plain"]


def test_what_wrk_is_told() -> None:
    assert told("wrk", cpus=4) == [*WRK, "-s", "wrk.lua", URL]
    assert told("wrk", cpus=4, **POST) == [*WRK, *HEADERS, "-s", "wrk.lua", URL, "--", "POST", "/x/body"]
    assert told("wrk", URL, "http://localhost:8000", "http://localhost:8000/b?q=1", cpus=4) == [
        *(*WRK, "-s", "wrk.lua", URL, "--", "GET", "", "/json", "/", "/b?q=1")
    ]


def test_what_oha_is_told() -> None:
    assert told("oha", seconds=0.25) == [*OHA, URL]
    assert told("oha", seconds=0.25, **POST) == [*OHA, *HEADERS, "-m", "POST", "-D", "/x/body", URL]
    assert told("oha", URL, "http://localhost:8000/b", seconds=0.25, listed="/x/urls") == [
        *(*OHA, "--urls-from-file", "/x/urls")
    ]
    assert told("oha", "https://localhost:8000/b", seconds=0.25) == [*OHA, "--insecure", "https://localhost:8000/b"]
    assert told("oha", seconds=0.25, rate=500.0) == [*OHA, "-q", "500", "--latency-correction", URL]
    assert told("oha", seconds=0.25, rate=0.5) == [*OHA, "-q", "0.5", "--latency-correction", URL]
    assert load_generators.environment_of("oha", 3) == {"TOKIO_WORKER_THREADS": "3"}
    assert load_generators.environment_of("wrk", 3) == {}


def test_a_mix_is_spread_evenly() -> None:
    assert round_of((("/a", 1),)) == ("/a",)
    assert round_of((("/a", 1), ("/b", 1))) == ("/a", "/b")
    assert round_of((("/a", 4), ("/b", 2), ("/c", 1))) == ("/a", "/b", "/a", "/c", "/a", "/b", "/a")


@pytest.mark.parametrize(
    ("connections", "cpus", "threads"),
    [(10, 1, 1), (10, 4, 2), (128, 4, 4), (7, 4, 1), (3, 8, 3), (1, 0, 1), (256, 12, 8)],
)
def test_no_connection_is_lost_to_the_number_of_threads(connections: int, cpus: int, threads: int) -> None:
    assert threads_of(connections, cpus) == threads
    assert connections % threads == 0


# -- what they say -------------------------------------------------------------------------------------------------


def test_the_output_of_wrk() -> None:
    heard = parse("wrk", golden("wrk.txt"))
    assert (heard.answers, heard.errors, heard.failed) == (88, {}, 0)
    assert heard.seconds == pytest.approx(1.002933)
    assert heard.latency is not None
    assert heard.latency.mean_ns == pytest.approx(44_531_943)
    assert (heard.latency.p50_ns, heard.latency.p95_ns) == (45_812_000, 52_006_000)
    assert (heard.latency.p99_ns, heard.latency.max_ns, heard.latency.errors) == (54_462_000, 54_462_000, 0)


def test_answers_of_wrk_that_are_errors_are_none() -> None:
    heard = parse("wrk", golden("wrk_errors.txt"))
    assert (heard.answers, heard.errors, heard.share_failed, heard.latency) == (0, {"status": 96}, 1.0, None)


def test_late_answers_of_wrk_failed_and_broken_connections_are_requests_of_their_own() -> None:
    said = json.loads(golden("wrk.txt").splitlines()[-1])
    said["errors"] |= {"timeout": 8, "read": 2, "connect": 3}
    heard = parse("wrk", json.dumps(said))
    assert (heard.answers, heard.failed) == (80, 13)
    assert heard.latency is not None
    assert heard.latency.errors == 13
    assert heard.share_failed == pytest.approx(13 / 93)


def test_the_output_of_oha() -> None:
    heard = parse("oha", golden("oha.json"))
    said = json.loads(golden("oha.json"))
    assert heard.answers == sum(said["statusCodeDistribution"].values()) > 0
    assert said["errorDistribution"]["aborted due to deadline"] > 0
    assert heard.errors == {}
    assert heard.seconds == said["summary"]["total"]
    assert heard.latency is not None
    assert heard.latency.p95_ns == pytest.approx(1e9 * said["latencyPercentiles"]["p95"])
    assert heard.latency.p50_ns <= heard.latency.p95_ns <= heard.latency.p99_ns <= heard.latency.max_ns
    assert heard.latency.mean_ns == pytest.approx(1e9 * said["summary"]["average"])


def test_answers_of_oha_that_are_errors_are_none() -> None:
    said = json.loads(golden("oha.json"))
    answers = sum(said["statusCodeDistribution"].values())
    said["statusCodeDistribution"] |= {"404": 5, "302": 1}
    said["errorDistribution"]["connection error"] = 2
    heard = parse("oha", json.dumps(said))
    assert (heard.answers, heard.errors) == (answers + 1, {"connection error": 2, "status": 5})


def test_oha_at_a_rate_that_is_not_kept_counts_from_when_requests_were_due() -> None:
    heard = parse("oha", golden("oha_behind.json"))  # 40 in a second over one connection, answers of 50 ms
    assert heard.errors == {}
    assert 15 <= heard.answers <= 20
    assert heard.latency is not None
    assert heard.latency.max_ns > 400e6


def test_oha_without_an_answer() -> None:
    heard = parse("oha", golden("oha_refused.json"))
    assert (heard.answers, heard.latency, heard.share_failed) == (0, None, 1)
    assert heard.errors == {"Connection refused (os error 111)": 7411}


@pytest.mark.parametrize("generator", ["wrk", "oha"])
@pytest.mark.parametrize("output", ["", "Usage: wrk\n", "{", "{}", "[1]", '{"requests": 1}', '{"summary": []}'])
def test_what_is_no_report_is_an_error(generator: Generator, output: str) -> None:
    with pytest.raises(FtgateError, match=f"{generator} did not print its figures"):
        parse(generator, output)


def test_the_script_of_wrk_makes_json_of_no_answer(tmp_path: Path) -> None:
    program = shutil.which("wrk")
    if program is None:
        pytest.skip("needs wrk")
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/"
        words = argv_of("wrk", program, (url,), connections=2, seconds=1, cpus=1, script=str(SCRIPT))
        done = subprocess.run(words, capture_output=True, text=True)
    heard = parse("wrk", done.stdout)
    assert (heard.answers, heard.errors, heard.latency) == (0, {}, None)
    assert heard.seconds == pytest.approx(1, abs=0.9)


# -- whose CPUs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "quota", "own"),
    [(1, None, None), (3, None, None), (4, None, 1), (7, None, 1), (8, None, 2), (16, None, 4), (8, 3.5, None)],
)
def test_a_generator_gets_a_quarter_where_there_are_enough(cpus: int, quota: float | None, own: int | None) -> None:
    server, load = split(range(cpus), quota)
    if own is None:
        assert server == load == frozenset(range(cpus))
    else:
        assert len(load) == own
        assert server | load == frozenset(range(cpus))
        assert not server & load


def test_a_core_is_not_shared_where_its_threads_stand_beside_each_other() -> None:
    server, load = split([0, 8, 1, 9, 2, 10, 3, 11])
    assert (server, load) == (frozenset({0, 8, 1, 9, 2, 10}), frozenset({3, 11}))


def test_the_note_says_who_has_what() -> None:
    both = frozenset({0, 1})
    shared = ", so rates are lower than with separate CPUs"
    assert split_note(both, both) == f"server and load generator share 2 CPUs{shared}"
    assert split_note(both, both, 1.5) == f"server and load generator share 2 CPUs with a quota of 1.5{shared}"
    assert split_note(frozenset(), frozenset()) == f"server and load generator share the CPUs{shared}"
    assert split_note(frozenset({0, 1, 2}), frozenset({3})) == "the server has 3 CPUs, the load generator 1 CPU"
