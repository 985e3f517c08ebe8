"""`action.yml` for GitHub and `templates/ftgate.yml` for GitLab: their scripts run as they stand, in a scratch project.

A small interpreter of both files takes the place of GitHub and GitLab: it fills in inputs and runs each script. Steps
of other actions are left out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml

from pytest_ftgate.features.init import PLACES
from pytest_ftgate.targets.environments import find_uv

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
HEADER, COMPONENT = yaml.safe_load_all((ROOT / "templates" / "ftgate.yml").read_text("utf-8"))
TEST = """
from pytest_ftgate import ftgate, threads

COUNT = 20_000


@ftgate.compare(threads, workers=1, pythons=["3.14"])
def test_total(worker):
    import part

    return part.total(COUNT)
"""
PROJECT = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "part"
version = "1.0"

[tool.setuptools]
py-modules = ["part"]
""",
    "part.py": "def total(count):\n    return sum(range(count))\n",
    "tests/test_part.py": TEST,
    ".gitignore": "__pycache__\n*.egg-info\nbuild\n",
}


class Script(NamedTuple):
    """A script with its folder and what it has in the environment."""

    text: str
    folder: Path
    environment: Mapping[str, str]


# -- what GitHub and GitLab do with the files ----------------------------------------------------------------------


def steps_of_github(top: Path, scratch: Path, **given: str) -> Iterator[Script]:
    """The scripts of action.yml. It refuses an expression that it does not know."""
    values = {
        **{f"inputs.{name}": each["default"] for name, each in ACTION["inputs"].items()},
        **{f"inputs.{name.replace('_', '-')}": value for name, value in given.items()},
        "github.action_path": str(ROOT),
        "runner.temp": str(scratch),
    }

    def filled(text: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values[found[1]], text)

    for step in ACTION["runs"]["steps"]:
        if "run" in step:
            assert "${{" not in step["run"], "an input is a variable of the shell: its text is no part of the script"
            environment = {name: filled(value) for name, value in step["env"].items()}
            yield Script(step["run"], top / filled(step["working-directory"]), environment)


def steps_of_gitlab(top: Path, **given: str) -> Iterator[Script]:
    """The job of the component as one script."""
    ((name, job),) = component(**given).items()
    assert name == "ftgate"
    variables = {name: str(value).replace("$CI_PROJECT_DIR", str(top)) for name, value in job["variables"].items()}
    yield Script("\n".join(job["script"]), top, variables)


def component(**given: str) -> dict[str, Any]:
    """The component with its inputs filled in: those that are given, else their defaults."""
    values = {name: each["default"] for name, each in HEADER["spec"]["inputs"].items()}
    values |= {name.replace("_", "-"): value for name, value in given.items()}

    def filled(node: Any) -> Any:
        if isinstance(node, dict):
            return {filled(key): filled(value) for key, value in node.items()}
        if isinstance(node, list):
            return [filled(each) for each in node]
        return re.sub(r"\$\[\[ inputs\.(.*?) \]\]", lambda found: values[found[1]], node) if type(node) is str else node

    return dict(filled(COMPONENT))


# ------------------------------------------------------------------------------------------------------------------


def schema(name: str) -> Any:
    """What the editors of these files check: check-jsonschema has a copy of it."""
    return json.loads((resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / name).read_text("utf-8"))


def test_their_form_is_what_the_services_read() -> None:
    jsonschema.validate(ACTION, schema("github-actions.json"))
    jsonschema.validate(HEADER, schema("gitlab-ci.json"))
    jsonschema.validate(component(), schema("gitlab-ci.json"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**ACTION, "runs": {"using": "composite"}}, schema("github-actions.json"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"a": {"script": ["true"], "artifacts": {"when": "ever"}}}, schema("gitlab-ci.json"))


def test_both_take_the_same_inputs_which_say_what_they_are() -> None:
    ours, theirs = ACTION["inputs"], HEADER["spec"]["inputs"]
    for name in ours.keys() & theirs.keys():
        assert ours[name] == theirs[name]
    assert ours.keys() - theirs.keys() == {"artifact"}
    assert theirs.keys() - ours.keys() == {"job", "stage", "image", "requirement"}
    assert all(each["description"].endswith(".") for each in (*ours.values(), *theirs.values()))
    text = (ROOT / "action.yml").read_text("utf-8")
    assert {name for name in ours if f"inputs.{name} " not in text} == set()
    text = (ROOT / "templates" / "ftgate.yml").read_text("utf-8")
    assert {name for name in theirs if f"$[[ inputs.{name} ]]" not in text} == set()


def test_they_gate_as_the_workflows_do_that_init_writes() -> None:
    """The same versions of others' actions, and the same options."""
    templates = ROOT / "src" / "pytest_ftgate" / "features" / "init" / "templates"
    for ours, written in (("action.yml", "github.yml"), ("templates/ftgate.yml", "gitlab.yml")):
        text, theirs = ((path).read_text("utf-8") for path in (ROOT / ours, templates / written))
        assert set(re.findall(r"uses: (\S+)", text)) <= set(re.findall(r"uses: (\S+)", theirs))
        options = set(re.findall(r"--ftgate[-\w]*", text))
        assert options == set(re.findall(r"--ftgate[-\w]*", theirs)) - {"--ftgate-shard"} - (
            {"--ftgate-test-time"}  # which comments name
        )
        assert str(ACTION["inputs"]["fail-on"]["default"]) in theirs


def test_the_manual_names_the_inputs_that_there_are() -> None:
    page = (ROOT / "docs" / "action.md").read_text("utf-8")
    assert page.endswith("".join(f"{row}\n" for row in rows())), "the table is not that of the files"
    github, gitlab = blocks("docs/action.md")
    assert github["jobs"]["ftgate"]["steps"][-1]["with"].keys() <= ACTION["inputs"].keys()
    (included,) = gitlab["include"]
    assert included["component"].partition("@")[0].endswith("/pytest-ftgate/ftgate")
    assert included["inputs"].keys() <= HEADER["spec"]["inputs"].keys()


def blocks(page: str) -> list[Any]:
    """The YAML of a page."""
    found = re.findall(r"^```yaml\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [yaml.safe_load(text) for text in found]


def test_the_shortest_forms_are_of_what_there_is() -> None:
    """In the recipes the action and the job of `ftgate init`, in the README its step."""
    github, gitlab = blocks("docs/recipes.md")
    step = github["jobs"]["ftgate"]["steps"][-1]
    assert step["uses"].partition("@")[0].endswith("/pytest-ftgate")
    assert step["with"].keys() <= ACTION["inputs"].keys()
    assert gitlab == {"include": [{"local": PLACES["gitlab"].as_posix()}]}
    (((readme,),),) = (blocks("README.md"),)
    written = (TEMPLATES / "github.yml").read_text("utf-8")
    assert [word for word in readme["run"].split() if word not in written] == []


def rows() -> Iterator[str]:
    """The table of the inputs of both files."""
    ours, theirs = ACTION["inputs"], HEADER["spec"]["inputs"]
    for name, each in (ours | theirs).items():
        where = "GitHub: " if name not in theirs else "GitLab: " if name not in ours else ""
        default = f"`{each['default']}`" if each["default"] else "none"
        yield f"| `{name}` | {default} | {where}{each['description']} |"


WORKFLOWS = [*(ROOT / ".github").glob("workflows/*.yml"), *(ROOT / "examples" / "ci").glob("*.yml")]
TEMPLATES = ROOT / "src" / "pytest_ftgate" / "features" / "init" / "templates"


def test_all_workflows_use_one_version_of_each_action() -> None:
    text = "".join(path.read_text("utf-8") for path in [*WORKFLOWS, ROOT / "action.yml", TEMPLATES / "github.yml"])
    used = set(re.findall(r"uses: ([\w./-]+)@(\S+)", text))
    assert len(used) == len({action for action, _ in used}) > 5, used


def test_workflows_of_this_repository_run_targets_that_the_makefile_has() -> None:
    steps = [step for path in WORKFLOWS for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
             for step in job["steps"]]  # fmt: skip
    run = {words[1] for step in steps if (words := step.get("run", "").split())[:1] == ["make"]}
    assert run == {"test", "demo", "docs", "release"}
    assert run <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executables: dict[str, str], bare_git: None) -> Path:
    """A project in a folder of its repository, whose last commit made it slower. No interpreter is downloaded."""
    top, programs = tmp_path / "repository", tmp_path / "programs"
    folder = top / "a folder"
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    for name, value in (("AUTHOR", "a"), ("COMMITTER", "a")):
        monkeypatch.setenv(f"GIT_{name}_NAME", value)
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.invalid")
    for words in ("init --quiet --initial-branch main", "add .", "commit --quiet -m one", "switch --quiet -c change"):
        subprocess.run(["git", *words.split()], cwd=top, check=True)
    (folder / "tests" / "test_part.py").write_text(TEST.replace("20_000", "200_000"), "utf-8")
    subprocess.run(["git", "commit", "--quiet", "-a", "-m", "two"], cwd=top, check=True)
    programs.mkdir()
    uv = f'#!/bin/sh\n[ "$1 $2" = "python install" ] || exec {shlex.quote(find_uv())} "$@"\necho "$@" >> "$0.log"\n'
    for name, text in (("uv", uv), ("pip", "#!/bin/sh\n")):
        (programs / name).write_text(text, "utf-8")
        (programs / name).chmod(0o755)
    folders = [str(programs), *(str(Path(path).parent) for path in executables.values())]
    monkeypatch.setenv("PATH", ":".join(folders), prepend=":")
    for name in [name for name in os.environ if name.startswith(("FTGATE", "GITHUB", "CI", "PYTEST"))]:
        monkeypatch.delenv(name)
    return folder


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_its_scripts_gate_a_change(service: str, project: Path, tmp_path: Path) -> None:
    given = {
        "arguments": "-o ftgate_explain=no -o ftgate_launches=4 -o ftgate_iterations=5 --ftgate-metrics=wall "
        "-k 'total and part'",
        "working_directory": project.name,
    }
    if service == "github":
        scripts = list(steps_of_github(project.parent, tmp_path / "temp", **given))
    else:
        scripts = list(steps_of_gitlab(project.parent, requirement=str(ROOT), **given))
    done = []
    for script in scripts:
        # As both services run a script.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script.text]
        environment = {**os.environ, **script.environment}
        done.append(subprocess.run(command, cwd=script.folder, env=environment, capture_output=True, text=True))
    said = "".join(each.stdout + each.stderr for each in done)
    assert [each.returncode for each in done] == [0] * (len(done) - 1) + [1], said
    assert (tmp_path / "programs" / "uv.log").read_text("utf-8") == "python install 3.14 3.14t\n"
    (row,) = (row for table in json.loads((project / "ftgate.json").read_text())["tables"] for row in table["rows"])
    assert row["verdict"]["basis"] == "paired", said
    # Nothing but the reports is new: any other file would be part of the change.
    written = {path.name for path in project.glob("ftgate*")}
    assert written >= {"ftgate.html", "ftgate.md", "ftgate.json"}
    assert ("ftgate-junit.xml" in written) == (service == "gitlab")
    status = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, text=True, check=True)
    assert {Path(line[3:].strip('"')).name for line in status.stdout.splitlines()} == written
