"""The workflow that comments on pull requests, `examples/ci/ftgate-comment.yml`: its steps with a stand-in for `gh`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import report_by_hand
import yaml

from pytest_ftgate.features import markdown
from pytest_ftgate.report import json as formats

WORKFLOW = yaml.safe_load((Path(__file__).parents[2] / "examples/ci/ftgate-comment.yml").read_text(encoding="utf-8"))
SHA = "a" * 40
GH = """
import json, os, pathlib, subprocess, sys
_, verb, *words = sys.argv
folder = pathlib.Path(os.environ["GH_FOLDER"])
with (folder / "calls.jsonl").open("a") as calls:
    body = [pathlib.Path(word.removeprefix("body=@")).read_text() for word in words if word.startswith("body=@")]
    calls.write(json.dumps([verb, *words, *body]) + "\\n")
if verb == "run":
    target = pathlib.Path(words[words.index("--dir") + 1])
    target.mkdir()
    if not (folder / "artifact.json").exists():
        sys.exit("no artifact matches any of the names or patterns provided")
    (target / "ftgate.json").write_bytes((folder / "artifact.json").read_bytes())
elif "--jq" in words:
    name = "pulls" if "/pulls" in " ".join(words) else "comments"
    answer = (folder / f"{name}.json").read_text()
    sys.exit(subprocess.run(["jq", "-r", words[words.index("--jq") + 1]], input=answer, text=True).returncode)
"""
UVX = """
import sys
assert sys.argv[1:5] == ["--from", "pytest-ftgate @ git+https://HOST/NAME/pytest-ftgate", "ftgate", "report"], sys.argv
from pytest_ftgate.cli import main
sys.exit(main(sys.argv[4:]))
"""


def test_it_runs_nothing_of_the_pull_request_and_may_only_comment() -> None:
    assert WORKFLOW[True] == {"workflow_run": {"workflows": ["ftgate"], "types": ["completed"]}}  # `on` of YAML 1.1
    job = WORKFLOW["jobs"]["comment"]
    assert WORKFLOW["permissions"] == {}
    assert job["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert [step["uses"] for step in job["steps"] if "uses" in step] == ["astral-sh/setup-uv@v8.3.2"]
    scripts = [step["run"] for step in job["steps"] if "run" in step]
    assert not any("${{" in script for script in scripts), "what others named reaches a shell as a variable only"
    assert "secrets." not in json.dumps(WORKFLOW)


# ---- its steps


class Runner:
    """Runs the steps of the job as GitHub's runner would, with stand-ins for `gh` and `uvx`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name, text in (("gh", GH), ("uvx", UVX)):
            path = self.programs / name
            path.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
            path.chmod(0o755)
        self.temp = folder / "temp"
        self.temp.mkdir()
        self.answer("pulls", pull(17))
        self.answer("comments")

    def answer(self, name: str, *items: dict[str, Any]) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(items), encoding="utf-8")

    def run(self, branch: str = "main") -> list[list[str]]:
        """What `gh` was called with."""
        job = WORKFLOW["jobs"]["comment"]
        output = self.folder / "output"
        event = {
            "GH_TOKEN": "",
            "MARKER": job["env"]["MARKER"],
            "RUN": "99",
            "RUN_URL": "https://github.example/run/99",
            "OWNER": "fork",
            "HEAD_REPOSITORY": "fork/project",
            "BRANCH": branch,
            "SHA": SHA,
            "GITHUB_REPOSITORY": "owner/project",
            "GITHUB_OUTPUT": str(output),
            "RUNNER_TEMP": str(self.temp),
            "GH_FOLDER": str(self.folder),
            "PATH": f"{self.programs}:{os.environ['PATH']}",
        }
        assert set(job["env"]) <= set(event)
        number = ""
        for step in job["steps"]:
            if "run" not in step or ("if" in step and not number):
                continue
            done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=self.temp, env={**event, "NUMBER": number})
            assert done.returncode == 0 or step.get("continue-on-error")
            if step.get("id") == "pull":
                number = output.read_text(encoding="utf-8").removeprefix("number=").strip()
        return [json.loads(line) for line in (self.folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()]


def pull(number: int, sha: str = SHA, repository: str = "fork/project") -> dict[str, Any]:
    return {"number": number, "head": {"sha": sha, "repo": {"full_name": repository}}}


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    if shutil.which("jq") is None:
        pytest.skip("the stand-in for gh needs jq")
    return Runner(tmp_path)


def test_the_first_report_is_a_new_comment(runner: Runner) -> None:
    report = report_by_hand.report()
    (runner.folder / "artifact.json").write_text("".join(formats.rendered("json", report)), encoding="utf-8")
    marked = {"id": 1, "user": {"login": "mallory"}, "body": f"{markdown.MARKER}\nedit me"}
    runner.answer("comments", marked, {"id": 2, "user": {"login": "github-actions[bot]"}, "body": "another"})
    *_, post = runner.run("x'; touch pwned; $(touch pwned)")
    assert post[:4] == ["api", "--method", "POST", "repos/owner/project/issues/17/comments"]
    assert (
        post[-1]
        == markdown.render(report) + f"\n[The run with all its reports](https://github.example/run/99), of {SHA}.\n"
    )
    assert not (runner.temp / "pwned").exists()


def test_the_next_one_is_edited_in_place(runner: Runner) -> None:
    (runner.folder / "artifact.json").write_text(
        "".join(formats.rendered("json", report_by_hand.report())), encoding="utf-8"
    )
    ours = {"id": 3, "user": {"login": "github-actions[bot]"}, "body": f"{markdown.MARKER}\nold"}
    runner.answer("comments", ours)
    *_, patch = runner.run()
    assert patch[:4] == ["api", "--method", "PATCH", "repos/owner/project/issues/comments/3"]


@pytest.mark.parametrize("artifact", [None, "", "not JSON", '{"schema": 6}', "[" * 100_000])
def test_that_there_is_no_report_is_said_and_nothing_of_the_artifact_is(runner: Runner, artifact: str | None) -> None:
    if artifact is not None:
        (runner.folder / "artifact.json").write_text(artifact, encoding="utf-8")
    *_, post = runner.run()
    assert post[-1].startswith(f"{markdown.MARKER}\n## ftgate: no report\n")
    assert post[-1].count("\n") == 6


@pytest.mark.parametrize("others", [(), (pull(5, sha="b" * 40),), (pull(5, repository="mallory/project"),)])
def test_a_pull_request_that_was_not_measured_is_left_alone(runner: Runner, others: tuple[dict[str, Any], ...]) -> None:
    runner.answer("pulls", *others)
    (only,) = runner.run()
    assert "repos/owner/project/pulls" in only
