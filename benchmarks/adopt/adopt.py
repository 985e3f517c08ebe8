"""Adopts other people's projects, each from its source distribution, as their maintainer would; takes half an hour.

    python benchmarks/adopt/adopt.py [--out .ftgate/adopt] [--log docs/adopted.md] [PROJECT ...]

For each project of `projects.toml`: fetches the source distribution and checks its SHA-256, commits it, runs
`ftgate init`, puts a test of the project's own code in place of the checksum that `init` wrote, runs that test and the
project's quick tests plainly, records baselines, gates the unchanged code, and gates a change that makes the project's
own source slower. A step that does not end as it must is marked, and the exit code is 1. Each project's part of the log
is kept in `--out`; `--log` puts all of them together. Everything is downloaded from the package index that uv uses.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
UV = Path(sys.executable).with_name("uv")
IGNORED = "*.egg-info/\n*.so\n__pycache__/\nbuild/\ntarget/\n"
"""What a repository ignores; some source distributions come without their .gitignore."""
GATES = {"passed", "improved", "unchanged", "inconclusive"}
"""What unchanged code may come to; an `improved` is as much a false alarm as a `regressed`, and is shown."""


@dataclass
class Step:
    """A command that was run: what it printed, and how it ended."""

    command: str
    output: str
    code: int
    seconds: float


@dataclass
class Adoption:
    """One project on its way: where it is, what was run, and what did not come out as it must."""

    name: str
    about: dict[str, Any]
    folder: Path
    wrong: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    minutes: float = 0.0

    def run(self, *words: str, codes: tuple[int, ...] = (0,)) -> Step:
        """Run a command in the project, as from its activated environment."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("FTGATE_", "PYTHON"))}
        environ |= {"PATH": os.pathsep.join([str(self.folder / ".venv/bin"), str(UV.parent), environ["PATH"]])}
        environ |= {"VIRTUAL_ENV": str(self.folder / ".venv"), "COLUMNS": "110"}
        shown = shlex.join(words).replace(str(CHECKOUT), "pytest-ftgate")
        print(f"[{self.name}] $ {shown}", flush=True)
        began = time.monotonic()
        done = subprocess.run(
            words, cwd=self.folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        seconds = time.monotonic() - began
        output = done.stdout.replace(str(self.folder), ".")
        with (self.folder.parent / f"{self.name}.txt").open("a", encoding="utf-8") as raw:
            raw.write(f"$ {shown}\n{output}[code {done.returncode}, {seconds:.0f} s]\n\n")
        if done.returncode not in codes:
            self.fail(f"`{shown}` ended with {done.returncode}", output)
        return Step(command=shown, output=output, code=done.returncode, seconds=seconds)

    def fail(self, what: str, detail: str = "") -> None:
        """Note what went wrong; the adoption goes on."""
        print(f"[{self.name}] WRONG: {what}\n{detail[-3000:]}", flush=True)
        self.wrong.append(what)

    def git(self, *words: str) -> str:
        """What git answers; the project's first commits have a made-up author."""
        author = ("-c", "user.name=maintainer", "-c", "user.email=maintainer@example.invalid", "-c", "gc.auto=0")
        done = subprocess.run(["git", *author, *words], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def commit(self, message: str) -> None:
        """Everything that is not ignored, as one commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def say(self, *paragraphs: str) -> None:
        """Add paragraphs to this project's part of the log."""
        self.parts += paragraphs


def console(*steps: tuple[Step, str]) -> str:
    """A block of commands, each with what of its output is shown."""
    blocks = (f"$ {step.command}\n{shown.rstrip()}" for step, shown in steps)
    return "```console\n" + "\n".join(block.rstrip() for block in blocks) + "\n```"


# -- the steps of an adoption ---------------------------------------------------------------------------------------


def fetch(adoption: Adoption) -> None:
    """The source distribution, checked and unpacked and committed as the project's repository."""
    name, version = adoption.name, adoption.about["version"]
    archive = adoption.folder.parent / f"{name}-{version}.tar.gz"
    if not archive.exists():
        archive.write_bytes(urllib.request.urlopen(address(name, version)).read())
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != adoption.about["sha256"]:
        archive.unlink()
        sys.exit(f"{archive.name} has SHA-256 {found}, projects.toml names {adoption.about['sha256']}")
    shutil.rmtree(adoption.folder, ignore_errors=True)
    unpacked = adoption.folder.parent / f"{name}-unpacked"
    with tarfile.open(archive) as content:
        content.extractall(unpacked, filter="data")
    next(unpacked.iterdir()).rename(adoption.folder)
    unpacked.rmdir()
    ignore = adoption.folder / ".gitignore"
    ignore.write_text((ignore.read_text(encoding="utf-8") if ignore.exists() else "") + IGNORED, encoding="utf-8")
    adoption.git("init", "--quiet", "--initial-branch=main")
    adoption.commit(f"{name} {version}")
    adoption.git("tag", f"v{version}")


def address(name: str, version: str) -> str:
    """Where the index that uv uses has the source distribution."""
    words = [str(UV), "pip", "compile", "--quiet", "--no-deps", "--format", "pylock.toml", "--python-version", "3.14", "-"]
    locked = subprocess.run(words, input=f"{name}=={version}", capture_output=True, text=True, check=True).stdout
    return str(tomllib.loads(locked)["packages"][0]["sdist"]["url"])


def install(adoption: Adoption) -> None:
    """The environment in which the maintainer runs pytest."""
    adoption.run("uv", "venv", "--quiet", "--python", "3.14")
    adoption.run("uv", "pip", "install", "--quiet", str(CHECKOUT), *adoption.about["requires"])


def init(adoption: Adoption) -> Path:
    """`ftgate init`; returns the file of its test, with a test of the project's own code."""
    step = adoption.run("ftgate", "init", "--yes")
    written = adoption.git("status", "--porcelain", "--untracked-files=all")
    test = next((name for name in re.findall(r"\S+\.py$", written, re.M) if "concurren" in name), "")
    if not test:
        sys.exit(f"{adoption.name}: init wrote no test:\n{step.output}")
    path = adoption.folder / test
    before = path.read_text(encoding="utf-8")
    body = adoption.about["body"].strip()
    # What stands above the checksum stays: the imports, and what skips the file where the plugin is missing.
    path.write_text(re.sub(r"# Your own code.*", lambda _: body, before, flags=re.S) + "\n", encoding="utf-8")
    ini = adoption.git("diff", "--unified=0", "--no-color")
    lines = [line for line in ini.splitlines() if line.startswith("+") and not line.startswith("+++")]
    adoption.say(
        "`init` found what follows.",
        console((step, step.output)),
        "The lines that it added to the configuration:\n\n```\n" + "\n".join(line[1:] for line in lines) + "\n```",
        f"In place of the checksum, `{test}` now has:\n\n```python\n{body}\n```",
    )
    adoption.commit("Measure with pytest-ftgate")
    return path.relative_to(adoption.folder)


def plain(adoption: Adoption, test: Path) -> None:
    """Both kinds of tests as plain pytest runs them, with the project's own options."""
    ours = adoption.run("pytest", "-q", str(test))
    theirs = adoption.run("pytest", "-q", *adoption.about["tests"])
    adoption.say(
        "Plain runs, with the project's own pytest options: the new test, and some of the project's own.",
        console((ours, last_line(ours.output)), (theirs, last_line(theirs.output))),
    )


def last_line(output: str) -> str:
    """pytest's own summary of a run."""
    lines = [line for line in output.splitlines() if re.search(r"\d+ (passed|failed|skipped|error)", line)]
    return lines[-1].strip("= ") if lines else output[-500:]


def gate(adoption: Adoption, what: str, test: Path, *options: str, codes: tuple[int, ...]) -> dict[str, str]:
    """One measured run; returns the decision of each cell."""
    report = adoption.folder.parent / f"{adoption.name}-report.json"
    report.unlink(missing_ok=True)
    words = ["pytest", "--ftgate", *options, str(test), "--ftgate-report", f"json:{report}"]
    step = adoption.run(*words, codes=codes)
    step.command = shlex.join(words[:-2])
    adoption.say(what, console((step, shown_report(step.output))))
    if not report.exists():
        adoption.fail(f"`{step.command}` wrote no report")
        return {}
    content = json.loads(report.read_text(encoding="utf-8"))
    rows = [row for each in content["tables"] for row in each["rows"]]
    return {row["cell"]["nodeid"].partition("[")[2].rstrip("]"): row["verdict"]["decision"] for row in rows}


def shown_report(output: str) -> str:
    """The plugin's report without its head, without progress, and without what explains cells that pass."""
    lines = output.partition(" ftgate =")[2].splitlines()[1:]
    blocks = "\n".join(line.rstrip() for line in lines).split("\n\n")
    first = next((number for number, block in enumerate(blocks) if re.search(r" verdict$", block, re.M)), 0)
    kept = [re.sub(r"\n  (?:(?:inconclusive|improved): |passed by|power ).*", "", blocks[first] + "\n", flags=re.S)]
    for block in blocks[first:]:
        kept += re.findall(r"^  regressed: .*?(?=^  (?:\w+: |passed by|power |machine )|\Z)", f"{block}\n", re.M | re.S)
        kept += re.findall(r"^  machine .*", block, re.M) if block != blocks[first] else []
    counts = re.findall(r"^\d+ cells? in .*", output, re.M)
    return "\n\n".join(block.strip("\n") for block in [*kept, *counts[-1:]])


def change(adoption: Adoption) -> str:
    """Make the project's source slower and commit it; returns the diff."""
    edit = adoption.about["change"]
    path = adoption.folder / edit["path"]
    source = path.read_text(encoding="utf-8")
    if edit["old"] not in source:
        sys.exit(f"{adoption.name}: {edit['path']} does not have what projects.toml replaces")
    path.write_text(source.replace(edit["old"], edit["new"], 1), encoding="utf-8")
    diff = adoption.git("diff", "--no-color", "--unified=2")
    adoption.commit("A change that costs time")
    return diff[diff.index("@@") :]


def adopt(adoption: Adoption, test_time: str) -> None:
    """All steps for one project."""
    began = time.monotonic()
    budget = ("--ftgate-test-time", test_time)
    fetch(adoption)
    install(adoption)
    test = init(adoption)
    plain(adoption, test)
    gate(adoption, "The baselines are recorded and committed.", test, *budget, "--ftgate-update=new", codes=(0,))
    adoption.commit("Baselines")
    same = gate(adoption, "The same code, gated:", test, *budget, codes=(0,))
    if not same or not set(same.values()) <= GATES:
        adoption.fail(f"unchanged code came to {same}")
    diff = change(adoption)
    adoption.say(f"A change to the project's own source: {adoption.about['change']['what']}.", f"```diff\n{diff}```")
    found = gate(adoption, "It is found:", test, *budget, codes=(1,))
    adoption.minutes = (time.monotonic() - began) / 60
    for build in ("3.14-", "3.14t-"):
        cells = [decision for name, decision in found.items() if build in name]
        if "regressed" not in cells:
            adoption.fail(f"the change was not found on {build[:-1]}: {found}")


def main() -> int:
    """Adopt the projects that are named, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", nargs="*", metavar="PROJECT", help="one of projects.toml; default: all")
    parser.add_argument("--out", type=Path, default=Path(".ftgate/adopt"))
    parser.add_argument("--log", type=Path, help="the page that is written from all parts under --out")
    parser.add_argument("--test-time", default="60s")
    options = parser.parse_args()
    table_of = tomllib.loads((HERE / "projects.toml").read_text(encoding="utf-8"))
    if unknown := set(options.project) - set(table_of):
        parser.error(f"{', '.join(sorted(unknown))} is not in projects.toml, which has {', '.join(table_of)}")
    options.out.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name in options.project or table_of:
        adoption = Adoption(name, table_of[name], (options.out / name).resolve())
        adopt(adoption, options.test_time)
        wrong += len(adoption.wrong)
        (options.out / f"{name}.md").write_text("\n\n".join(adoption.parts) + "\n", encoding="utf-8")
        print(f"[{name}] {'WRONG' if adoption.wrong else 'adopted'} in {adoption.minutes:.1f} min", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
