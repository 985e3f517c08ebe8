"""Adopts other people's projects, each from its source distribution, as their maintainer would; takes 40 minutes.

    python benchmarks/adopt/adopt.py [--out .ftgate/adopt] [--log docs/appendix/adopted.md] [PROJECT ...]

For each project of `projects.toml`: fetches the source distribution and checks its SHA-256, commits it, runs
`ftgate init`, puts a test of the project's own code in place of the checksum that `init` wrote, runs that test and the
project's quick tests plainly, records baselines, gates the unchanged code, and gates a change that makes the project's
own source slower. A step that does not end as it must is marked, and the exit code is 1. What was
run and printed is kept in `--out`; `--log` makes a page of it. Everything comes from the package index that uv uses.
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
import tempfile
import time
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
UV = Path(sys.executable).with_name("uv")
IGNORED = "*.egg-info/\n*.so\n.coverage*\n__pycache__/\nbuild/\ntarget/\n"
"""What a repository ignores; some source distributions come without their .gitignore."""
GREEN = {"passed", "improved", "inconclusive"}
RED = {"regressed", "suspect"}
BUILDS = ("3.14", "3.14t")
INTRODUCTION = """\
# Adopted: other people's projects

`make adopt` takes the source distributions of five published projects and does what their maintainer would do:

1. `uv venv --python 3.14`, and `uv pip install` of the project, its test dependencies and pytest-ftgate;
2. `ftgate init`, and a test of the project's own code, which
   [projects.toml](../../benchmarks/adopt/projects.toml) has, as has the change;
3. that test and some of the project's own, plainly;
4. `pytest --ftgate --ftgate-test-time 60s --ftgate-update=new`, and a commit of the baselines;
5. a gate of the same code, and a gate of a change that makes the project's own source slower.

It wrote this page. The change is in the project's Python, C, Rust or C++, so a gate builds the project for both
interpreters, and again for the baseline's commit. An *inconclusive* cell fails no test."""
PROJECTS = ("project", "kind", "unchanged code", "the change is found in", "minutes")
CELLS = ("cell", "recorded", "unchanged", "verdict", "changed", "verdict", "worse")


@dataclass
class Step:
    """A command that was run: what it printed, and how it ended."""

    command: str
    output: str
    code: int
    seconds: float


@dataclass
class Adoption:
    """One project on its way: where it is, what was run, and what did not come out as it must.

    `steps` are by name, `texts` the lines that init added to the configuration, the test's path, and the diff of the
    change; `decisions` those of each gated run, by cell.
    """

    name: str
    about: dict[str, Any]
    folder: Path
    steps: dict[str, Step] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    decisions: dict[str, dict[str, str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    minutes: float = 0.0

    def run(self, step: str, *words: str, codes: tuple[int, ...] = (0,)) -> Step:
        """Run a command in the project, as from its activated environment, and keep it under the name `step`."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("FTGATE_", "PYTHON"))}
        environ |= {"PATH": os.pathsep.join([str(self.folder / ".venv/bin"), str(UV.parent), environ["PATH"]])}
        environ |= {"VIRTUAL_ENV": str(self.folder / ".venv"), "COLUMNS": "110"}
        shown = shlex.join(words).replace(str(CHECKOUT), "pytest-ftgate")
        print(f"[{self.name}] $ {shown}", flush=True)
        began = time.monotonic()
        done = subprocess.run(
            words, cwd=self.folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        output = done.stdout.replace(str(self.folder), ".")
        kept = Step(command=shown, output=output, code=done.returncode, seconds=time.monotonic() - began)
        self.steps[step] = kept
        if kept.code not in codes:
            self.fail(f"`{shown}` ended with {kept.code}", output)
        return kept

    def fail(self, what: str, detail: str = "") -> None:
        """Note what went wrong; the adoption goes on."""
        print(f"[{self.name}] WRONG: {what}\n{detail[-3000:]}", flush=True)
        self.wrong.append(what)

    def git(self, *words: str) -> str:
        """What git answers; the project's first commits have a made-up author."""
        author = ("-c", "user.name=maintainer", "-c", "user.email=maintainer@example.invalid")
        done = subprocess.run(["git", *author, *words], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def commit(self, message: str) -> None:
        """Everything that is not ignored, as one commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def save(self) -> None:
        """What the log is made from, next to the project's folder."""
        kept = {key: value for key, value in asdict(self).items() if key not in ("about", "folder")}
        self.folder.with_suffix(".json").write_text(json.dumps(kept, indent=1), encoding="utf-8")


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
    with tempfile.TemporaryDirectory(dir=adoption.folder.parent) as unpacked, tarfile.open(archive) as content:
        content.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        content.extractall(unpacked)
        next(Path(unpacked).iterdir()).rename(adoption.folder)
    ignore = adoption.folder / ".gitignore"
    ignore.write_text((ignore.read_text(encoding="utf-8") if ignore.exists() else "") + IGNORED, encoding="utf-8")
    adoption.git("init", "--quiet", "--initial-branch=main")
    adoption.commit(f"{name} {version}")
    adoption.git("tag", f"v{version}")


def address(name: str, version: str) -> str:
    """Where the index that uv uses has the source distribution."""
    words = [
        str(UV),
        "pip",
        "compile",
        "--quiet",
        "--no-deps",
        "--format",
        "pylock.toml",
        "--python-version",
        "3.14",
        "-",
    ]
    locked = subprocess.run(words, input=f"{name}=={version}", capture_output=True, text=True, check=True).stdout
    return str(tomllib.loads(locked)["packages"][0]["sdist"]["url"])


def init(adoption: Adoption) -> str:
    """`ftgate init`; returns the file of its test, which then has a test of the project's own code."""
    step = adoption.run("init", "ftgate", "init")
    written = adoption.git("status", "--porcelain", "--untracked-files=all")
    test = next(iter(re.findall(r"^\?\? (\S*concurren\S*\.py)$", written, re.MULTILINE)), "")
    if not test:
        sys.exit(f"{adoption.name}: init wrote no test:\n{step.output}")
    path = adoption.folder / test
    # What stands above the checksum stays: the imports, and what skips the file where the plugin is missing.
    text = re.sub(
        r"# Your own code.*", lambda _: adoption.about["body"].strip(), path.read_text("utf-8"), flags=re.DOTALL
    )
    path.write_text(f"{text}\n", encoding="utf-8")
    lines = adoption.git("diff", "--unified=0", "--no-color").splitlines()
    adoption.texts["ini"] = "\n".join(line[1:] for line in lines if re.match(r"\+(?!\+\+)", line)).strip()
    adoption.texts["test"] = test
    adoption.commit("Measure with pytest-ftgate")
    return test


def gate(adoption: Adoption, step: str, *options: str, codes: tuple[int, ...]) -> list[str]:
    """One measured run; returns the decisions of its cells."""
    report = adoption.folder.parent / f"{adoption.name}-report.json"
    report.unlink(missing_ok=True)
    words = ["pytest", "--ftgate", *options, *adoption.about.get("options", []), adoption.texts["test"]]
    kept = adoption.run(step, *words, "--ftgate-report", f"json:{report}", codes=codes)
    kept.command = shlex.join(words)
    if not report.exists():
        adoption.fail(f"`{kept.command}` wrote no report")
        return []
    rows = [row for each in json.loads(report.read_text("utf-8"))["tables"] for row in each["rows"]]
    cells = {row["cell"]["nodeid"].partition("[")[2].rstrip("]"): row["verdict"]["decision"] for row in rows}
    adoption.decisions[step] = cells
    return list(cells.values())


def change(adoption: Adoption) -> None:
    """Make the project's own source slower, and commit that."""
    edit = adoption.about["change"]
    path = adoption.folder / edit["path"]
    source = path.read_text(encoding="utf-8")
    if edit["old"] not in source:
        sys.exit(f"{adoption.name}: {edit['path']} does not have what projects.toml replaces")
    path.write_text(source.replace(edit["old"], edit["new"], 1), encoding="utf-8")
    adoption.texts["diff"] = adoption.git("diff", "--no-color", "--unified=2")
    adoption.commit("A change that costs time")


def adopt(adoption: Adoption, test_time: str) -> None:
    """All steps for one project."""
    began = time.monotonic()
    budget = ("--ftgate-test-time", test_time)
    fetch(adoption)
    adoption.run("venv", "uv", "venv", "--quiet", "--python", "3.14")
    adoption.run("install", "uv", "pip", "install", "--quiet", str(CHECKOUT), *adoption.about["requires"])
    test = init(adoption)
    adoption.run("ours", "pytest", "-q", *adoption.about.get("options", []), test)
    adoption.run("theirs", "pytest", "-q", *adoption.about["tests"])
    gate(adoption, "record", *budget, "--ftgate-update=new", codes=(0,))
    adoption.commit("Baselines")
    same = gate(adoption, "same", *budget, codes=(0, 5))
    if not same or not set(same) <= GREEN:
        adoption.fail(f"unchanged code came to {', '.join(same)}")
    change(adoption)
    gate(adoption, "changed", *budget, codes=(1,))
    for build in BUILDS:
        if not found(adoption, build):
            adoption.fail(f"the change was not found on {build}")
    adoption.minutes = (time.monotonic() - began) / 60


def found(adoption: Adoption, build: str) -> list[str]:
    """The cells of a build that regressed with the change, or probably did: both fail the run."""
    cells = adoption.decisions.get("changed", {})
    return [name for name, decision in cells.items() if name.startswith(f"{build}-") and decision in RED]


# -- the log --------------------------------------------------------------------------------------------------------


def page(adoptions: list[Adoption], missing: list[str]) -> str:
    """The page of the log, in Markdown; `missing` names projects that have not been run to the end."""
    left = [f"Not run to the end for this page: {', '.join(missing)}."] if missing else []
    parts = [INTRODUCTION, table(PROJECTS, [row(adoption) for adoption in adoptions]), *left]
    return "\n\n".join([*parts, *map(section, adoptions)]) + "\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table below the comment that names this script."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(["<!-- made by benchmarks/adopt/adopt.py -->\n", *(f"| {' | '.join(cells)} |" for cells in lines)])


def row(adoption: Adoption) -> list[str]:
    """A project's row in the page's first table."""
    same = Counter(adoption.decisions.get("same", {}).values())
    return [
        f"[{adoption.name} {adoption.about['version']}](#{anchor(adoption)})",
        adoption.about["kind"],
        ", ".join(f"{count} {decision}" for decision, count in sorted(same.items())),
        ", ".join(f"`{name}`" for build in BUILDS for name in found(adoption, build)),
        f"{adoption.minutes:.0f}",
    ]


def anchor(adoption: Adoption) -> str:
    """The anchor of a project's section."""
    return re.sub(r"[^\w-]", "", f"{adoption.name}-{adoption.about['version']}")


def section(adoption: Adoption) -> str:
    """What was done with a project, and what came of it."""
    steps = adoption.steps
    wrong = [f"**Not as it should be**: {'; '.join(adoption.wrong)}."] if adoption.wrong else []
    plain = " and ".join(last_line(steps[name].output).partition(" in ")[0] for name in ("ours", "theirs"))
    gates = " and ".join(f"{steps[name].seconds:.0f} s" for name in ("same", "changed"))
    return "\n\n".join(
        [
            f"## {adoption.name} {adoption.about['version']}",
            *wrong,
            f"The change: {adoption.about['change']['what']}.",
            f"```diff\n{adoption.texts['diff'][adoption.texts['diff'].index('@@') :].rstrip()}\n```",
            table(CELLS, cells(adoption)),
            f"Plain runs of the new test and of some of the project's own: {plain}.",
            f"The gates took {gates}, builds included.",
            f"While recording and in both gates other processes kept {', '.join(busy(adoption))} cores busy.",
        ]
    )


def cells(adoption: Adoption) -> list[list[str]]:
    """A row for each cell: its times, its verdicts, and what was worse after the change."""
    recorded, same, changed = (times(adoption.steps[name].output) for name in ("record", "same", "changed"))
    worse = failures(adoption.steps["changed"].output)
    return [[f"`{name}`", recorded[name][0], *same[name], *changed[name], worse.get(name, "")] for name in recorded]


def times(output: str) -> dict[str, tuple[str, str]]:
    """The time and the verdict of each cell that a report has."""
    lines = re.findall(r"^  ([\d.]+t?-\S+) +([\d.]+ [nµm]?s) .*?  ([a-z][a-z ]+)$", output, re.MULTILINE)
    return {name: (time, verdict) for name, time, verdict in lines}


def failures(output: str) -> dict[str, str]:
    """What made each cell fail: its metrics with their changes."""
    blocks = re.findall(
        r"^  (?:regressed|suspect): (\S+)\n(.*?)^      (?:why|rerun) ", output, re.MULTILINE | re.DOTALL
    )
    change = re.compile(r"^ {6}(\w+(?: \w+)?)  +.*?([+-][\d.]+ (?:%|points)) \(", re.MULTILINE)
    return {name: ", ".join(f"{metric} {by}" for metric, by in change.findall(text)) for name, text in blocks}


def busy(adoption: Adoption) -> list[str]:
    """How many cores other work kept busy in each of the measured runs."""
    outputs = [adoption.steps[name].output for name in ("record", "same", "changed")]
    found = [re.search(r"other processes kept (\S+) of \d+ cores busy", output) for output in outputs]
    return [match[1] if match else "hardly any" for match in found]


def last_line(output: str) -> str:
    """The summary of pytest itself."""
    lines = re.findall(r".*\d+ (?:passed|failed|skipped|error).*", output)
    return str(lines[-1]).strip("= ") if lines else output[-500:]


def main() -> int:
    """Adopt the projects that are named, all by default; 1 if anything was not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", nargs="*", metavar="PROJECT", help="one of projects.toml; default: all")
    parser.add_argument("--out", type=Path, default=Path(".ftgate/adopt"))
    parser.add_argument("--log", type=Path, help="the page that is written from what is kept in --out")
    parser.add_argument("--log-only", action="store_true", help="write the page again, and run nothing")
    parser.add_argument("--test-time", default="60s")
    options = parser.parse_args()
    table = tomllib.loads((HERE / "projects.toml").read_text(encoding="utf-8"))
    if unknown := set(options.project) - set(table):
        parser.error(f"{', '.join(sorted(unknown))} is not in projects.toml, which has {', '.join(table)}")
    options.out.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name in [] if options.log_only else options.project or table:
        adoption = Adoption(name, table[name], (options.out / name).resolve())
        adopt(adoption, options.test_time)
        adoption.save()
        wrong += len(adoption.wrong)
        print(f"[{name}] {'WRONG' if adoption.wrong else 'adopted'} in {adoption.minutes:.1f} min", flush=True)
    if options.log:
        kept = {name: options.out / f"{name}.json" for name in table}
        done = [restored(path, name, table[name]) for name, path in kept.items() if path.exists()]
        missing = [name for name, path in kept.items() if not path.exists()]
        options.log.write_text(page(done, missing), encoding="utf-8")
    return 1 if wrong else 0


def restored(path: Path, name: str, about: dict[str, Any]) -> Adoption:
    """An adoption as `save` wrote it."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content["steps"] = {step: Step(**values) for step, values in content["steps"].items()}
    return Adoption(about=about, folder=path.with_suffix(""), **(content | {"name": name}))


if __name__ == "__main__":
    sys.exit(main())
