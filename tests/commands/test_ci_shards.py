"""`examples/ci/ftgate-shards.yml`: the jobs that share the tests, and the one that joins their reports, run by step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from report_by_hand import part_of

from pytest_ftgate.declare.options import report_target
from pytest_ftgate.features.shards import shard
from pytest_ftgate.report import json

UV = """
import sys
assert sys.argv[1:4] == ["run", "--no-sync", "ftgate"], sys.argv
from pytest_ftgate.cli import main
sys.exit(main(sys.argv[4:]))
"""


JOBS = yaml.safe_load((Path(__file__).parents[2] / "examples/ci/ftgate-shards.yml").read_text(encoding="utf-8"))["jobs"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of(steps: list[dict[str, Any]], action: str) -> dict[str, Any]:
    """The settings of the only step that uses an action."""
    (found,) = [step for step in steps if step.get("uses", "").startswith(f"actions/{action}-artifact@")]
    return dict(found["with"])


def test_a_job_for_each_shard_and_one_that_joins_them() -> None:
    each, joins = JOBS["shard"], JOBS["ftgate"]
    assert each["strategy"] == {"fail-fast": False, "matrix": {"shard": [1, 2, 3]}}
    assert (joins["needs"], joins["if"]) == ("shard", "always() && needs.shard.result != 'skipped'")
    (gate,) = [step["run"] for step in each["steps"] if "pytest -m ftgate" in step.get("run", "")]
    words = gate.replace("${{ matrix.shard }}", "2").split()
    (part,) = [word.removeprefix("--ftgate-shard=") for word in words if word.startswith("--ftgate-shard=")]
    assert shard(part) == (2, 3)
    (report,) = [word.removeprefix("--ftgate-report=") for word in words if word.startswith("--ftgate-report=")]
    assert report_target(report) == "json:ftgate-shard-2.json"
    upload, download, last = of(each["steps"], "upload"), of(joins["steps"], "download"), of(joins["steps"], "upload")
    assert upload["path"].splitlines() == ["ftgate-shard-${{ matrix.shard }}.json"]
    assert upload["name"].startswith(download["pattern"].removesuffix("*")), "and not that of the joined reports"
    assert not last["name"].startswith(download["pattern"].removesuffix("*"))
    assert download["merge-multiple"] is True, "the files have names of their own"
    assert (last["name"], last["path"].split()) == ("ftgate", ["ftgate.html", "ftgate.md", "ftgate.json"]), (
        "as the comment needs it"
    )


def run_steps(folder: Path, job: dict[str, Any], result: str) -> tuple[list[int], str]:
    """The exit codes of the last job's own steps, each run as GitHub does, and the summary that they write."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    uv = programs / "uv"
    uv.write_text(f"#!{sys.executable}\n{UV}", encoding="utf-8")
    uv.chmod(0o755)
    summary = folder / "summary.md"
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(summary)}
    codes: list[int] = []
    for step in job["steps"]:
        script = step.get("run", "")
        if not script or script.startswith(("uv venv", "uv pip")):
            continue
        needed = {"always()": True, "needs.shard.result != 'success'": result != "success" and not any(codes)}
        if needed.get(step.get("if", ""), not any(codes)):
            done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], env=environment, cwd=folder)
            codes.append(done.returncode)
    return codes, summary.read_text(encoding="utf-8") if summary.exists() else ""


def test_the_last_job_joins_what_was_uploaded(folder: Path) -> None:
    job = JOBS["ftgate"]
    shards = folder / ".ftgate" / "shards"
    shards.mkdir(parents=True)
    for part in (1, 3):
        text = json.render(part_of(part, failing=frozenset()))
        (shards / f"ftgate-shard-{part}.json").write_text(text, encoding="utf-8")
    codes, summary = run_steps(folder, job, "failure")
    assert codes == [3, 0]
    assert "shard 2/3 is missing" in summary
    text = json.render(part_of(2, failing=frozenset()))
    (shards / "ftgate-shard-2.json").write_text(text, encoding="utf-8")
    assert run_steps(folder, job, "success")[0] == [0, 0]
    assert run_steps(folder, job, "failure")[0] == [0, 0, 1], "a shard that failed for another reason fails the run"
    assert (folder / "ftgate.html").exists()
    for path in shards.iterdir():
        path.unlink()
    assert run_steps(folder, job, "failure")[0] == [2, 0]
