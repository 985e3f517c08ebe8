"""Changes for the worse that a maintainer could make to the examples: is each found, and named?

    python benchmarks/examples/planted.py [--test-time 60s] [NAME ...]

Each is made in a clone of this repository and compared with its commit (`--ftgate-against=HEAD`), in the cells that it
concerns. A line says what was found: the cells that failed of those that were compared, the worst one with its change
and its function, and the seconds of the whole run. NAME is part of a change's name; without one all are made.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from pytest_ftgate.model.report import Report
from pytest_ftgate.model.verdict import Decision
from pytest_ftgate.report import said
from pytest_ftgate.report.json import parse

ROOT = Path(__file__).parents[2]
FAILS = (Decision.REGRESSED, Decision.SUSPECT, Decision.BROKEN, Decision.ERROR)


class Change(NamedTuple):
    """What is edited in a file of an example: `old`, which is there once, becomes `new`; `cells` is for pytest's -k.

    `metrics` gate beside the default ones: what the pipeline takes is its schedule's time, so its latencies decide.
    """

    name: str
    file: str
    old: str
    new: str
    cells: str
    metrics: str = ""


OVERHEAD = "scenario1_overhead/test_overhead.py"
SHARED_SET = "scenario2_shared_set/test_shared_set.py"
RUST = "scenario2_shared_set/native/src/main.rs"
WRITERS = "scenario3_sharded_writers/test_sharded_writers.py"
ASGI, WSGI = "granian/impl_asgi.py", "granian/impl_wsgi.py"
WORK, APP = "mod_wsgi/work.py", "mod_wsgi/app.wsgi"
PIPELINE = "trading_pipeline/test_pipeline.py"
LATENCIES = "wall,timer.receive_to_processed,timer.processed_to_evaluated"
CHANGES = (
    Change("overhead: a fifth more work", OVERHEAD, "WORK_ITERS = 20_000", "WORK_ITERS = 24_000", "pool and w2"),
    Change(
        "overhead: an import in the worker",
        OVERHEAD,
        'joins them."""\n    return work()',
        'joins them."""\n    import decimal, email.message, xml.dom.minidom\n    return work()',
        "fresh and w2 and (spawn or forkserver)",
    ),
    Change("overhead: twice the memory held", OVERHEAD, "HELD_BYTES = 16 * 2**20", "HELD_BYTES = 32 * 2**20", "memory"),
    Change(
        "shared set: the draw under the lock",
        SHARED_SET,
        '    uid = next_id(worker)\n    seen, lock = worker.shared\n    wait = worker.timed("lock_wait")\n'
        "    with wait:\n        lock.acquire()\n    try:\n        if uid not in seen:\n            seen.add(uid)",
        '    seen, lock = worker.shared\n    wait = worker.timed("lock_wait")\n'
        "    with wait:\n        lock.acquire()\n    try:\n        uid = next_id(worker)\n        if uid not in seen:\n"
        "            seen.add(uid)",
        "3.14t-threads-w8",
    ),
    Change(
        "shared set: a copy for each insert",
        SHARED_SET,
        "            seen.add(uid)\n",
        "            seen.add(uid)\n            sorted(range(100))\n",
        "threads-w2",
    ),
    Change(
        "shared set: three proxy calls",
        SHARED_SET,
        "            seen[uid] = True\n",
        "            seen.setdefault(uid, True)\n            seen[uid] = True\n",
        "fork-w2",
    ),
    Change(
        "rust: a string for each id",
        RUST,
        "        let requested = Instant::now();\n",
        "        let id = id.to_string().parse::<u64>().unwrap_or(id);\n        let requested = Instant::now();\n",
        "rust",
    ),
    Change(
        "rust: the set is looked up three times",
        RUST,
        "        if !held.contains(&id) {",
        "        let known = (0..3).filter(|n| held.contains(&(id + n))).count() > 9;\n"
        "        if !known && !held.contains(&id) {",
        "rust",
    ),
    Change(
        "rust: sleeps with the lock",
        RUST,
        "        drop(held);",
        "        thread::yield_now();\n        drop(held);",
        "rust",
    ),
    Change(
        "writers: a Manager in place of queues",
        WRITERS,
        '    make = context.SimpleQueue if context.name == "processes" else context.Queue\n    return [[make()',
        '    make = context.SimpleQueue if context.name == "processes" else context.Queue\n'
        '    if context.name == "processes":\n        import multiprocessing\n\n'
        "        context.keep = multiprocessing.Manager()\n        make = context.keep.Queue\n    return [[make()",
        "sharded and fork and writer1",
    ),
    Change(
        "writers: each id twice",
        WRITERS,
        "    sent = perf_counter_ns()\n    replies[worker.index].get()\n    worker.timed",
        "    inboxes[uid % len(inboxes)].put((worker.index, uid))\n    replies[worker.index].get()\n"
        "    sent = perf_counter_ns()\n    replies[worker.index].get()\n    worker.timed",
        "sharded and threads and writer2",
    ),
    Change(
        "writers: a list in place of a set",
        WRITERS,
        "            seen.add(uid)\n            inserts += 1\n        replies",
        "            seen.add(uid)\n            sorted(range(200))\n            inserts += 1\n        replies",
        "sharded and threads and writer1",
    ),
    Change(
        "asgi: a blocking call",
        ASGI,
        "    await asyncio.sleep(WAIT_S)",
        '    __import__("time").sleep(WAIT_S)',
        "test_asgi and wait",
    ),
    Change(
        "asgi: work in the handler",
        ASGI,
        '    return {"message": "Hello, world!"}',
        '    sum(range(20_000))\n    return {"message": "Hello, world!"}',
        "test_asgi and json and not two",
    ),
    Change("asgi: a longer wait", ASGI, "WAIT_S = 0.01", "WAIT_S = 0.02", "test_asgi and wait and not two"),
    Change(
        "wsgi: one lock around the handler",
        WSGI,
        "    time.sleep(WAIT_S)",
        "    with LOCK:\n        time.sleep(WAIT_S)",
        "test_wsgi_wait and not two",
    ),
    Change(
        "wsgi: work in the handler",
        WSGI,
        '    return {"message": "Hello, world!"}',
        '    sum(range(20_000))\n    return {"message": "Hello, world!"}',
        "test_wsgi and not wait and not two",
    ),
    Change("wsgi: a longer wait", WSGI, "WAIT_S = 0.01", "WAIT_S = 0.015", "test_wsgi_wait and not two"),
    Change(
        "mod_wsgi: a fifth more work",
        WORK,
        "ROUNDS = 20_000",
        "ROUNDS = 26_000",
        "fixed and (1x10 or 10x1) and not fast",
    ),
    Change(
        "mod_wsgi: one lock around the work",
        WORK,
        "    burn(ROUNDS)\n    time.sleep(WAIT_S)",
        "    with LOCK:\n        burn(ROUNDS)\n        time.sleep(WAIT_S)",
        "fixed and (free-1x10 or 1x10) and not fast",
    ),
    Change(
        "mod_wsgi: the switch interval ten times as long",
        APP,
        "import work\n",
        "import work\n\nsys.setswitchinterval(10 * sys.getswitchinterval())\n",
        "gil_wait",
    ),
    Change(
        "pipeline: a blocking call in the evaluator",
        PIPELINE,
        "        await asyncio.sleep(eval_ms / 1e3)",
        "        sleep(eval_ms / 1e3)",
        "with_room and tasks",
        LATENCIES,
    ),
    Change(
        "pipeline: half as much work again for a tick",
        PIPELINE,
        "        burn(iterations)\n        publish(",
        "        burn(iterations * 3 // 2)\n        publish(",
        "overloaded and threads",
        LATENCIES,
    ),
    Change(
        "pipeline: the slot is locked during the work",
        PIPELINE,
        "        burn(iterations)\n        publish(",
        "        with pipeline.changed:\n            burn(iterations)\n        publish(",
        "without_room and threads",
        LATENCIES,
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--test-time", default="60s")
    args = parser.parse_args()
    wanted = [change for change in CHANGES if not args.names or any(name in change.name for name in args.names)]
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        found = 0
        for change in wanted:
            outcome, line = tried(change, clone, args.test_time)
            found += outcome
            print(f"{'found' if outcome else 'MISSED':7}{change.name:50}{line}", flush=True)
        print(f"{found} of {len(wanted)} found")


def tried(change: Change, clone: Path, test_time: str) -> tuple[bool, str]:
    """Whether a cell failed, and the line of it."""
    file = clone / "examples" / change.file
    text = file.read_text(encoding="utf-8")
    if text.count(change.old) != 1:
        sys.exit(f"{change.file} does not have this text once, fix {__file__}: {change.old!r}")
    new = text.replace(change.old, change.new)
    if "LOCK" in change.new:
        new = new.replace("\nWAIT_S", '\nLOCK = __import__("threading").Lock()\nWAIT_S')
    report = clone.parent / "report.json"
    report.unlink(missing_ok=True)
    words = ["--ftgate", "--ftgate-against=HEAD", f"--ftgate-test-time={test_time}", f"--ftgate-report=json:{report}"]
    words += [f"--ftgate-metrics={change.metrics}"] * bool(change.metrics)
    example = f"examples/{change.file.partition('/')[0]}"
    file.write_text(new, encoding="utf-8")
    began = time.monotonic()
    try:
        run = [sys.executable, "-m", "pytest", "-q", example, "-k", change.cells, *words]
        ended = subprocess.run(run, cwd=clone, capture_output=True, text=True)
    finally:
        file.write_text(text, encoding="utf-8")
    seconds = time.monotonic() - began
    if not report.exists():
        return False, f"exit {ended.returncode}: {ended.stdout[-300:]}{ended.stderr[-300:]}"
    return judged(parse(report.read_bytes(), origin=str(report)), seconds)


def judged(report: Report, seconds: float) -> tuple[bool, str]:
    rows = [row for table in report.tables for row in table.rows]
    # A first round that took all of the time has found nothing.
    failed = [row for row in rows if row.verdict.decision in FAILS and "the time ended" not in row.verdict.reason]
    return bool(failed), f"{len(failed)} of {len(rows)} cells, {seconds:3.0f} s: {said.first_line(report, rows)}"


if __name__ == "__main__":
    main()
