"""What goes on besides a run: the readers on fake folders and on this machine, and where a verdict is not trusted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench import FORKSERVER, Bench
from test_machine import put

from pytest_ftgate.judge.decide import MOVED, PAIRED, REPORTED, UNPAIRED, deviation, drift, remarks, unfit
from pytest_ftgate.kit.processes import cpu_s
from pytest_ftgate.measure import conditions as conditions_module
from pytest_ftgate.measure.conditions import CALIBRATION_BURNS, ConditionsMonitor, CpuTimes, cpu_times
from pytest_ftgate.model.report import Conditions
from pytest_ftgate.runner.protocol import COLD, MEASURED

TICKS = os.sysconf("SC_CLK_TCK")
QUIET = Conditions(span_s=10.0, cores=2, calibration_ns=(100, 100, 100), steal=0.0, others=0.0, quota=0.0, throttles=0)


def put_cpus(root: Path, *, busy_s: float, steal_s: float, idle_s: float) -> None:
    """Two CPUs that share this evenly, a third which is not ours and always busy; user time of guests counts twice."""
    half = [round(seconds * TICKS / 2) for seconds in (busy_s, steal_s, idle_s)]
    fields = f"{half[0]} 0 0 {half[2]} 0 0 0 {half[1]} {half[0]} 0"
    put(root, "proc/stat", f"cpu  9 9 9 9 9 9 9 9\ncpu0 {fields}\ncpu1 {fields}\ncpu2 {10**9} 0 0 0\nintr 5\n")


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions_module, "usable_cpus", lambda: frozenset({0, 1}))


def monitor(root: Path, clock: Clock, own: Clock) -> ConditionsMonitor:
    return ConditionsMonitor(root, clock, own).start()


# -- fake folders ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_cpus")
def test_others_are_what_the_usable_cpus_did_less_our_own(tmp_path: Path) -> None:
    put_cpus(tmp_path, busy_s=1000, steal_s=10, idle_s=500)
    clock, own = Clock(), Clock()
    observed = monitor(tmp_path, clock, own)
    put_cpus(tmp_path, busy_s=1011, steal_s=11, idle_s=508)
    clock.now, own.now = 110.0, 105.0
    seen = observed.observe()
    assert seen.span_s == 10.0
    assert seen.others == pytest.approx(0.6)
    assert seen.steal == pytest.approx(0.05)
    assert (seen.quota, seen.throttles) == (None, None)


@pytest.mark.usefixtures("two_cpus")
def test_ticks_too_coarse_for_our_own_time_are_nobody_else(tmp_path: Path) -> None:
    put_cpus(tmp_path, busy_s=0, steal_s=0, idle_s=0)
    clock, own = Clock(), Clock()
    observed = monitor(tmp_path, clock, own)
    put_cpus(tmp_path, busy_s=4, steal_s=0, idle_s=16)
    clock.now, own.now = 110.0, 104.02
    assert observed.observe().others == 0.0


def test_own_time_that_nobody_waited_for_is_kept_by_a_sample(tmp_path: Path) -> None:
    own = Clock()
    observed = monitor(tmp_path, Clock(), own)
    own.now = 108.0
    assert observed.sample() == 8.0
    own.now = 103.0
    assert observed.sample() == 8.0
    own.now = 104.0
    assert observed.sample() == 9.0
    own.now = 103.5
    assert observed.sample() == 9.0


def test_all_cpus_count_where_those_usable_are_not_all_listed(tmp_path: Path) -> None:
    put(tmp_path, "proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 1\n")
    total = CpuTimes(busy=1 + 2 + 3 + 6 + 7, steal=8, total=36)
    assert cpu_times(tmp_path, frozenset({0, 5})) == total
    assert cpu_times(tmp_path, frozenset()) == total
    assert cpu_times(tmp_path, frozenset({0})) == CpuTimes(busy=5, steal=1, total=8)


def test_an_old_kernel_without_steal_has_none_of_it(tmp_path: Path) -> None:
    put(tmp_path, "proc/stat", "cpu  1 2 3 4\n")
    assert cpu_times(tmp_path, ()) == CpuTimes(busy=6, steal=0, total=10)


@pytest.mark.parametrize("content", [None, "", "cpu  0 0 0 0 0 0 0 0 0 0\n", "intr 1 2 3\n"])
def test_nothing_is_known_where_nothing_can_be_read(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        put(tmp_path, "proc/stat", content)
    clock = Clock()
    observed = monitor(tmp_path, clock, Clock())
    clock.now += 5
    seen = observed.observe()
    assert (seen.steal, seen.others, seen.quota, seen.throttles) == (None, None, None, None)
    assert unfit(seen, UNPAIRED) == ""
    assert deviation(seen, 2) == 0.0
    assert remarks(seen, 1) == ()


def test_no_time_at_all_has_no_others(tmp_path: Path) -> None:
    put(tmp_path, "proc/stat", "cpu  1 0 0 1\n")
    observed = monitor(tmp_path, Clock(), Clock())
    put(tmp_path, "proc/stat", "cpu  2 0 0 2\n")
    assert observed.observe().others is None


def test_the_quota_of_the_group_that_stopped_us_most_counts_v2(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "0::/outer/inner\n")
    inner, outer = "sys/fs/cgroup/outer/inner/cpu.stat", "sys/fs/cgroup/outer/cpu.stat"
    put(tmp_path, inner, "usage_usec 7\nnr_periods 100\nnr_throttled 50\nthrottled_usec 9\n")
    put(tmp_path, outer, "usage_usec 7\nnr_periods 10\nnr_throttled 0\n")
    put(tmp_path, "sys/fs/cgroup/cpu.stat", "usage_usec 7\n")
    observed = monitor(tmp_path, Clock(), Clock())
    assert observed.observe().quota == 0.0
    put(tmp_path, inner, "nr_periods 200\nnr_throttled 60\n")
    put(tmp_path, outer, "nr_periods 20\nnr_throttled 3\n")
    assert observed.observe().quota == pytest.approx(0.3)


def test_the_quota_of_v1(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "5:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat", "nr_periods 1\nnr_throttled 1\nthrottled_time 9\n")
    observed = monitor(tmp_path, Clock(), Clock())
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 9\n")
    assert observed.observe().quota == 0.25


@pytest.mark.usefixtures("two_cpus")
def test_heat_counts_once_a_package_and_on_usable_cpus_alone(tmp_path: Path) -> None:
    def heat(core: int, package: int, elsewhere: int) -> None:
        for cpu in (0, 1):
            folder = f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle"
            put(tmp_path, f"{folder}/core_throttle_count", f"{core}\n")
            put(tmp_path, f"{folder}/package_throttle_count", f"{package}\n")
            put(tmp_path, f"{folder}/core_throttle_total_time_ms", "77777\n")
        put(tmp_path, "sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", f"{elsewhere}\n")

    heat(5, 8, 1)
    observed = monitor(tmp_path, Clock(), Clock())
    assert observed.observe().throttles == 0
    heat(6, 11, 90)
    assert observed.observe().throttles == 3


# -- limits ------------------------------------------------------------------------------------------------------------


def beyond(**changes: Any) -> Conditions:
    return msgspec.structs.replace(QUIET, **changes)


AT_ALONE: tuple[tuple[str, Any, Any, str], ...] = (
    ("others", UNPAIRED.others * 2, UNPAIRED.others * 2 + 0.01, "kept 0.5 of 2 cores busy"),
    ("steal", UNPAIRED.steal, UNPAIRED.steal + 0.001, "5.1% of the cores' time"),
    ("quota", UNPAIRED.quota, UNPAIRED.quota + 0.01, "in 6% of its periods"),
    ("throttles", 0, 1, "throttled 1 time because of heat"),
    (
        "calibration_ns",
        (100, 100, 100 * UNPAIRED.moved),
        (100, 100, 101 * UNPAIRED.moved),
        "slower during the measurement",
    ),
    (
        "calibration_ns",
        (100 * UNPAIRED.moved, 50, 100),
        (101 * UNPAIRED.moved, 50, 100),
        "faster during the measurement",
    ),
)


@pytest.mark.parametrize(("name", "at", "above", "words"), AT_ALONE)
def test_what_stands_alone_is_trusted_up_to_each_limit(name: str, at: object, above: object, words: str) -> None:
    assert unfit(beyond(**{name: at}), UNPAIRED) == ""
    assert words in unfit(beyond(**{name: above}), UNPAIRED)
    if name not in ("others", "steal"):
        assert [deviation(beyond(**{name: each}), 1) for each in (at, above)] == [0.0, MOVED / 4]


@pytest.mark.parametrize(
    ("others", "steal", "workers", "crowded"),
    [
        *((0.0, 0.0, 2, 0.0), (1.0, 0.0, 1, 0.0), (1.0, 0.0, 2, 0.5), (1.5, 0.0, 1, 0.5), (2.0, 0.0, 2, 1.0)),
        *((0.5, 0.25, 2, 0.5), (2.5, 0.5, 1, 1.0), (0.0, 0.0, 8, 0.0), (1.0, 0.0, 8, 0.125)),
    ],
)
def test_recordings_differ_by_the_workers_without_a_core(
    others: float, steal: float, workers: int, crowded: float
) -> None:
    """More workers than cores had none to themselves when they were recorded, either."""
    assert deviation(beyond(others=others, steal=steal), workers) == pytest.approx(crowded**2 * MOVED)
    assert deviation(None, workers) == deviation(beyond(cores=0, others=others), workers) == 0.0


def test_interleaved_launches_bear_more() -> None:
    noisy = beyond(others=2.0, steal=PAIRED.steal, quota=PAIRED.quota, throttles=9, calibration_ns=(1, 2, 9))
    assert unfit(noisy, PAIRED) == ""
    assert "hypervisor" in unfit(msgspec.structs.replace(noisy, steal=PAIRED.steal + 0.01), PAIRED)
    assert "quota" in unfit(msgspec.structs.replace(noisy, quota=PAIRED.quota + 0.01), PAIRED)


def test_what_refuses_is_also_said() -> None:
    assert all(said <= alone for said, alone in zip(REPORTED, UNPAIRED, strict=True))
    assert all(alone <= group for alone, group in zip(UNPAIRED, PAIRED, strict=True))


def test_nothing_seen_refuses_nothing() -> None:
    assert unfit(None, UNPAIRED) == ""
    assert remarks(None, 99) == ()
    assert unfit(QUIET, UNPAIRED) == ""
    assert remarks(QUIET, 2) == ()


def test_every_reason_is_given() -> None:
    reason = unfit(beyond(others=1.5, steal=0.5, quota=0.8), PAIRED)
    assert (
        reason
        == "the hypervisor gave 50.0% of the cores' time to others; the CPU quota stopped the run in 80% of its periods"
    )


def test_remarks_say_what_does_not_refuse() -> None:
    said = remarks(beyond(others=0.3, steal=0.02, calibration_ns=(100, 100, 115)), 2)
    assert said == (
        "other processes kept 0.3 of 2 cores busy",
        "the hypervisor gave 2.0% of the cores' time to others",
        "the machine became 1.15x slower during the measurement",
    )
    assert unfit(beyond(others=0.3, steal=0.02, calibration_ns=(100, 100, 115)), UNPAIRED) == ""


@pytest.mark.parametrize(("workers", "cores", "said"), [(2, 2, False), (3, 2, True), (3, 0, False)])
def test_oversubscription_is_said_and_not_judged(workers: int, cores: int, said: bool) -> None:
    conditions = beyond(cores=cores)
    assert any("oversubscribed: 3 workers on 2 cores" in line for line in remarks(conditions, workers)) is said
    assert unfit(conditions, UNPAIRED) == ""


def test_a_single_core_is_one() -> None:
    assert remarks(beyond(cores=1), 2) == ("oversubscribed: 2 workers on 1 core",)


def test_moved_compares_the_low_quartiles_of_both_ends() -> None:
    assert drift([]) == drift([100, 900]) == 1.0
    assert drift([100, 999, 300, 5, 5, 5, 400, 120, 999]) == pytest.approx(1.2)
    assert drift([1, *[100] * 3, 9, 9, 9, 9, 1, *[80] * 3]) == pytest.approx(0.8)
    assert drift([0, 0, 0]) == 1.0


# -- this machine ------------------------------------------------------------------------------------------------------

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/stat")

# Busy for as long as requested, on the CPU's clock; its child is nobody's when requested so.
BURN = """
import os, sys, time
if sys.argv[2] == "orphan" and os.fork():
    os._exit(0)
while time.thread_time() < float(sys.argv[1]): pass
print("burnt", flush=True)
"""


def burn(seconds: float, whose: str) -> None:
    """Burn CPU time in a child that is waited for, or in a process that is not ours any more."""
    command = [sys.executable, "-S", "-c", BURN, str(seconds), whose]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.read() == b"burnt\n"


@linux
def test_our_own_children_are_not_others_and_an_orphan_is() -> None:
    observed = ConditionsMonitor().start()
    burn(0.6, "own")
    own_s = observed.sample()
    assert own_s >= 0.55  # counted in ticks
    burn(0.6, "orphan")
    assert observed.sample() - own_s < 0.4
    seen = observed.observe()
    assert seen.others is not None
    # Whoever else is at work only adds; ticks are coarse, and stolen time may count as the orphan's and not as busy.
    assert seen.others * seen.span_s >= 0.3
    assert seen.others <= (os.cpu_count() or 1) + 0.1


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-S", "-c", BURN, "0.5", "own"], stdout=subprocess.PIPE) as started:
        yield started
        started.kill()


@linux
def test_a_child_counts_once_alive_and_waited_for(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    assert child.stdout.read() == b"burnt\n"
    alive = cpu_s(os.getpid())
    child.wait()
    assert -0.1 < cpu_s(os.getpid()) - alive < 0.4


@linux
def test_the_forkservers_workers_are_ours_when_sampled_in_time(bench: Bench) -> None:
    bench.write("""
        import time

        @ftgate.compare(threads)
        def test_it(worker):
            began = time.thread_time()
            while time.thread_time() - began < 0.1:
                pass
    """)
    observed = ConditionsMonitor().start()
    handle = bench.start(FORKSERVER)
    handle.ready()
    handle.iteration(COLD)
    for _ in range(3):
        handle.iteration(MEASURED)
    before = observed.sample()
    assert before >= 0.7
    handle.finish()
    assert cpu_s(os.getpid()) - observed.began_own_s < before
    assert observed.sample() >= before


def test_calibration_takes_time_and_is_kept(tmp_path: Path) -> None:
    observed = ConditionsMonitor(tmp_path).start()
    began = time.perf_counter_ns()
    observed.time_fixed_work()
    observed.time_fixed_work()
    took = time.perf_counter_ns() - began
    looks = observed.observe().calibration_ns
    assert len(looks) == 2
    assert 0 < sum(looks) * CALIBRATION_BURNS <= took


@linux
def test_this_machine_can_be_observed() -> None:
    observed = ConditionsMonitor().start()
    time.sleep(0.05)
    seen = observed.observe()
    assert seen.cores >= 1
    assert seen.steal is not None
    assert 0 <= seen.steal <= 1
    assert seen.quota is None or 0 <= seen.quota <= 1
