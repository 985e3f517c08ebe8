"""`ftgate init`: what it finds out, each kind of configuration file, what it leaves, and runs of what it wrote."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from project import commit, git

from golden import check_golden
from pytest_ftgate import cli
from pytest_ftgate.features import inifile, init
from pytest_ftgate.features.init.project import Git, Project, ci_of, look, name_for, workload_folder
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.targets.find import default_pair

PYPROJECT = '[project]\nname = "my-pkg"\nversion = "0.1"\n'
MESON = '[build-system]\nrequires = ["meson-python"]\nbuild-backend = "mesonpy"\n'
HATCH = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
TOML = pytest.mark.skipif(pytest.version_tuple < (9,), reason="this file is read from pytest 9 on")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def repository(folder: Path, branch: str = "main") -> None:
    commit(folder)
    git(folder, "branch", "-M", branch)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def planned(found: Project, ci: str = "none", trigger: str = "push") -> dict[str, str]:
    """The files that would be written, by their name below the repository's top, the workflow last."""
    top = found.git.top if found.git else found.root
    return {path.relative_to(top).as_posix(): text for path, text in init.plan(found, ci, trigger).files.items()}


# -- configuration files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-q --cov"\n'),
        pytest.param("pyproject.toml", '[tool.pytest]\naddopts = ["-q", "--cov"]\n', marks=TOML),
        pytest.param("pytest.toml", '[pytest]\naddopts = ["-q", "--cov"]\n', marks=TOML),
        (".pytest.ini", "[pytest]\r\naddopts =\r\n    # all\r\n    -q\r\n    --cov\r\n"),
        ("tox.ini", "[tox]\nenvlist = py\n[pytest]\naddopts = -q --cov\n"),
        ("setup.cfg", "[metadata]\nname = x\n\n[tool:pytest]\naddopts = -q --cov\nnorecursedirs: 5%%\n"),
    ],
)
def test_each_kind_of_file_is_read(folder: Path, name: str, text: str) -> None:
    lay(folder, {name: text})
    assert inifile.words(look(folder).ini["addopts"]) == ["-q", "--cov"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pytest.ini": "", "tox.ini": "[pytest]\n", "pyproject.toml": "[tool.pytest.ini_options]\n"}, "pytest.ini"),
        ({"tox.ini": "[pytest]\n", "pyproject.toml": "[tool.pytest.ini_options]\n"}, "pyproject.toml"),
        ({"tox.ini": "[pytest]\n", "pyproject.toml": "[tool.ruff]\n"}, "tox.ini"),
        ({"tox.ini": "[tox]\n", "setup.cfg": "[tool:pytest]\n"}, "setup.cfg"),
        ({"tox.ini": "[tox]\n", "setup.cfg": "[pytest]\n"}, None),
    ],
)
def test_the_file_is_the_one_that_pytest_reads(folder: Path, files: dict[str, str], expected: str | None) -> None:
    lay(folder, files)
    found = inifile.find(folder, folder)
    assert (found[0].name if found else None) == expected


def test_an_older_pytest_does_not_read_its_own_toml(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(folder, {"pytest.toml": "[pytest]\n", "pyproject.toml": "[tool.pytest]\naddopts = []\n"})
    monkeypatch.setattr(inifile, "version", lambda _name: "8.4.2")
    assert inifile.find(folder, folder) is None


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("pyproject.toml", '[project]\nname = "a"\nversion = \n', "pyproject.toml:3: this is not TOML"),
        ("pyproject.toml", "[project]\nname = [\n", "pyproject.toml:3: this is not TOML"),
        ("pytest.ini", "addopts = -q\n", "pytest.ini:1: this is not an ini file"),
        ("tox.ini", "[tox]\nenvlist = py\nnonsense\n", "tox.ini:3: this is not an ini file"),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, place: str
) -> None:
    lay(folder, {name: text})
    assert cli.main(["init"]) == 2
    assert capsys.readouterr().err.startswith(f"ftgate: error: {folder / place}")
    assert [path.name for path in folder.iterdir()] == [name]


# -- what is found out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("testpaths", "there", "expected"),
    [
        ([], [], "tests"),
        ([], ["test"], "test"),
        (["tests"], [], "tests"),
        (["tests", "benchmarks"], ["tests", "benchmarks"], "benchmarks"),
        (["src", "unit_tests"], ["src"], "unit_tests"),
        (["."], ["test"], "test"),
        (["checks"], ["tests"], "checks"),
        (["packages/*/tests"], ["packages/b/tests", "packages/a/tests"], "packages/a/tests"),
        (["../elsewhere", "tests"], [], "tests"),
        ([], ["pkg/tests", "docs/tests"], "pkg/tests"),
        ([], ["src/pkg/test"], "src/pkg/test"),
        ([], ["pkg/tests", "tests"], "tests"),
    ],
)
def test_the_workload_goes_where_pytest_looks(
    folder: Path, testpaths: list[str], there: list[str], expected: str
) -> None:
    for name in there:
        (folder / name).mkdir(parents=True)
    for name in ("pkg", "src/pkg"):  # the folders of the packages, where they are there
        if (folder / name).is_dir():
            (folder / name / "__init__.py").touch()
    assert workload_folder(folder, testpaths) == folder / expected


@pytest.mark.parametrize(
    ("patterns", "wanted", "prefixes", "expected"),
    [
        (["test_*.py", "*_test.py"], "test_concurrency.py", False, "test_concurrency.py"),
        (["bench_*.py"], "test_concurrency.py", False, "bench_concurrency.py"),
        (["*_spec.py"], "test_concurrency.py", False, "concurrency_spec.py"),
        (["test"], "test_checksum", True, "test_checksum"),
        (["bench"], "test_checksum", True, "bench_checksum"),
        (["bench_*"], "test_checksum", True, "bench_checksum"),
        (["*_check"], "test_checksum", True, "checksum_check"),
    ],
)
def test_names_are_such_as_pytest_collects(patterns: list[str], wanted: str, prefixes: bool, expected: str) -> None:
    assert name_for(patterns, wanted, prefixes=prefixes) == expected


def test_keys_that_are_there_are_followed(folder: Path) -> None:
    repository(folder)
    assert ', pythons=["3.1' in planned(look(folder))["tests/test_concurrency.py"]
    keys = "ftgate_python = 3.13t[gil=on] 3.13t /opt/python\nftgate_install = -r 'a b.txt'\n"
    lay(folder, {"pytest.ini": f"[pytest]\n{keys}"})
    written = planned(look(folder), "github")
    assert "pythons=" not in written["tests/test_concurrency.py"]
    assert "uv python install 3.13t\n" in written[".github/workflows/ftgate.yml"]
    assert 'uv pip install pytest-ftgate -r "a b.txt"\n' in written[".github/workflows/ftgate.yml"]


def test_a_test_that_uses_the_plugin_is_the_workload(folder: Path) -> None:
    ours = "from pytest_ftgate import ftgate\n"
    lay(folder, {"pytest.ini": "[pytest]\ntestpaths = tests .\npython_files = tests/test_*.py\n"})
    lay(folder, {"venv/pyvenv.cfg": "", "venv/test_b.py": ours, ".ftgate/test_c.py": ours, "tests/conftest.py": ours})
    assert "tests/test_concurrency.py" in planned(look(folder))
    lay(folder, {"tests/perf/test_cache.py": ours})
    steps = init.plan(look(folder), "none")
    assert (folder / "tests/perf/test_cache.py", "it already exists") in steps.left
    assert not steps.files


@pytest.mark.parametrize(
    ("files", "url", "expected"),
    [
        ([], "", "github"),
        ([".gitlab-ci.yml"], "git@github.com:a/b", "gitlab"),
        ([".github/x.yml"], "", "github"),
        ([".github/x.yml", ".gitlab-ci.yml"], "https://gitlab.example/a/b", "gitlab"),
        ([], "git@github.com:a/b", "github"),
        ([], "https://code.example/a/b", "none"),
    ],
)
def test_the_ci_system_is_found(folder: Path, files: list[str], url: str, expected: str) -> None:
    lay(folder, dict.fromkeys(files, ""))
    assert ci_of(Git(top=folder, branch="main", url=url)) == expected
    assert ci_of(None) == "none"


def test_git_tells_the_branch_and_the_top(folder: Path) -> None:
    lay(folder, {"packages/a/pyproject.toml": PYPROJECT, "packages/a/deep/x": ""})
    repository(folder, "trunk")
    git(folder, "checkout", "--quiet", "-b", "mine")
    git(folder, "remote", "add", "origin", "https://gitlab.example/a/b")
    git(folder, "update-ref", "refs/remotes/origin/trunk", "HEAD")
    git(folder, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    found = look(folder / "packages" / "a" / "deep")
    assert found.git == Git(top=folder, branch="trunk", url="https://gitlab.example/a/b")
    assert found.root == folder / "packages" / "a"


# -- CI ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", init.TRIGGERS)
@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_the_workflow_of_a_project_below_the_top(folder: Path, ci: str, trigger: str) -> None:
    lay(folder, {"packages/a/pyproject.toml": PYPROJECT, "pytest.ini": ""})
    ini = "[pytest]\nftgate_python = 3.14 3.14t\nftgate_install =\n    $ echo 'a: b'\n    -e .\naddopts = --cov -n 4\n"
    lay(folder, {"packages/a/pytest.ini": ini})
    repository(folder, "trunk")
    *_, text = planned(look(folder / "packages/a"), ci, trigger).values()
    assert yaml.safe_load(text)
    check_golden(f"workflow_{ci}_{trigger}.yml", text)


LOCKED = {"uv.lock": ""}


def of_toml(tables: str, **files: str) -> dict[str, str]:
    return {"pyproject.toml": PYPROJECT + tables, **files}


PROJECTS: dict[str, dict[str, str]] = {
    # A group or an extra of the tests, and which of several gets our requirement.
    "an extra": of_toml('[project.optional-dependencies]\ntest = ["pytest"]\ndocs = []\n'),
    "an extra that lists pytest": of_toml('[project.optional-dependencies]\ntesting = ["pytest"]\n'),
    "that, locked": of_toml('[project.optional-dependencies]\ntesting = ["pytest"]\n', **LOCKED),
    "an extra, built in its place by meson": of_toml(f"{MESON}[project.optional-dependencies]\ntest = []\n"),
    "an extra of setup.cfg": {"setup.cfg": "[options.extras_require]\ntest =\n  pytest-cov\n", "setup.py": ""},
    "a group": of_toml('[dependency-groups]\ndev = ["pytest"]\n'),
    "a group, locked": of_toml('[dependency-groups]\ndev = ["pytest"]\ntest = ["x"]\n', **LOCKED),
    "a group of another name": of_toml('[dependency-groups]\ndev = ["x"]\nunit = ["pytest>=8"]\n', **LOCKED),
    "several groups": of_toml('[dependency-groups]\ndev = ["tox"]\ntests = ["pytest"]\ntyping = ["pytest"]\n'),
    "no group of tests": of_toml('[dependency-groups]\ndocs = ["sphinx"]\n', **LOCKED),
    "a group that has us": of_toml('[dependency-groups]\ndev = ["PyTest_ftgate>=0.1"]\n', **LOCKED),
    # Requirements files, as multidict, contourpy, cheroot and cachetools have them; tox.
    "requirements.txt": {"requirements.txt": ""},
    "a file among several": {
        "requirements/pytest.txt": "pytest==9.1.1\npytest-cov==7.1.0\n",
        "requirements/ci.txt": "-e .\n-r pytest.txt\n",
        "requirements/doc-spelling.txt": "",
        "requirements/doc.txt": "",
    },
    "a file of tests before one of development": {
        "dev-requirements.txt": "",
        "tests/requirements.txt": "",
        "old-tests.txt": "",
    },
    "a file that tox names": {
        "tox.ini": "[testenv]\ndeps =\n  -rdependencies{/}tests.in\n",
        "dependencies/tests.in": "pytest\n",
    },
    "a file that tox names and that is gone": {"tox.ini": "[testenv]\ndeps = -r gone.txt\n"},
    "requirements of tox": {"tox.ini": "[testenv]\ndeps =\n    pytest\n    py310: x\n    {[a]b}\n    y>=2 # why\n"},
    "tox in TOML": {"pyproject.toml": '[tool.tox.env_run_base]\ndeps = ["pytest", "pytest-mock"]\n'},
    "plugins that nothing else names": {
        "pytest.ini": "[pytest]\nrequired_plugins = pytest-mock>=3 pytest-cov\n",
        "test-requirements.txt": "pytest_cov\n",
    },
    # The steps of ftgate_install: with a lock file those that make sources, before it is installed.
    "steps": of_toml(
        "[tool.pytest.ini_options]\nftgate_install = "
        '["meson-python pybind11>=2.13", "$ echo \'a: b\'", "--no-build-isolation -e ."]\n'
    ),
    "steps, locked": of_toml(
        HATCH,
        **LOCKED,
        **{"pytest.ini": "[pytest]\nftgate_install =\n    $ uvx cython a.pyx\n    $ maturin develop\n    -e .\n"},
    ),
    # Where we can be installed.
    "of Python 3.11": of_toml('requires-python = ">=3.11"\n'),
    "of older Pythons": of_toml('requires-python = ">=3.9"\n'),
    "of PyPy, too": of_toml('requires-python = ">=3.9"\n', **{"tox.ini": "[tox]\nenvlist = py39, pypy311\n"}),
    "of Pythons that cannot be measured": of_toml('requires-python = "<3.9"\n'),
}


def test_what_ci_installs_and_what_the_project_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ftgate.features.init.project.default_pair", cache(default_pair))  # asks interpreters
    texts = []
    for name, files in PROJECTS.items():
        lay(folder / name, files)
        found = look(folder / name)
        install, command = init.ci_commands(found)
        texts.append("\n".join([f"==== {name}", *install, command, *init.plan(found, "none").notes[1:], ""]))
    check_golden("init_projects.txt", "\n".join(texts))


@pytest.mark.parametrize(
    ("asked", "installed"),
    [
        ("git+https://host/a/b", 'uv pip install "pytest-ftgate @ git+https://host/a/b"'),
        ("./dist/x.whl", "uv pip install ./dist/x.whl"),
        ("pytest-ftgate==0.1", "uv pip install pytest-ftgate==0.1"),
    ],
)
def test_the_workflow_installs_the_plugin_from_where_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str], asked: str, installed: str
) -> None:
    repository(folder)
    assert cli.main(["init", "--ci", "github", "--requirement", asked]) == 0
    steps = yaml.safe_load((folder / ".github/workflows/ftgate.yml").read_text())["jobs"]["ftgate"]["steps"]
    assert installed in [step["run"] for step in steps[3:6]]
    assert "add it next to pytest: " in (said := capsys.readouterr().out)
    assert "--requirement" not in said


def test_a_plugin_from_a_folder_is_asked_for_another_place(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI does not have the folder; of a repository it gets the address and the commit."""
    repository(folder)
    vcs = {"url": "https://host/a/b", "vcs_info": {"vcs": "git", "commit_id": "0123"}}
    for origin, expected in (
        ({"url": "file:///a", "dir_info": {}}, "uv pip install pytest-ftgate\n"),
        (vcs, 'uv pip install "pytest-ftgate @ git+https://host/a/b@0123"\n'),
        (None, "uv pip install pytest-ftgate\n"),
    ):
        found = SimpleNamespace(version="0", read_text=lambda _name, origin=origin: origin and json.dumps(origin))
        monkeypatch.setattr(metadata, "distribution", lambda _name, found=found: found)
        assert cli.main(["init", "--ci", "github", "--dry-run"]) == 0
        said = capsys.readouterr()
        assert expected in said.out
        assert ("--requirement" in said.err) == (expected.endswith("ftgate\n") and origin is not None)


def test_what_ci_has_is_left(folder: Path) -> None:
    lay(
        folder,
        {
            ".gitlab-ci.yml": "stages: [a]\ntest:\n  script: pytest\n",
            ".github/workflows/t.yml": "run: pytest --ftgate\n",
        },
    )
    repository(folder)
    found = look(folder)
    assert (folder / ".github/workflows/t.yml", "it already exists") in init.plan(found, "github").left
    steps = init.plan(found, "gitlab")
    assert folder / ".gitlab/ftgate.yml" in steps.files
    assert "  include:\n    - local: .gitlab/ftgate.yml" in steps.notes[0]
    assert steps.notes[1] == ".gitlab-ci.yml names its own stages: give the job in .gitlab/ftgate.yml one of them"
    lay(folder, {".gitlab-ci.yml": "include:\n  - local: .gitlab/ftgate.yml\n", ".gitlab/ftgate.yml": "ftgate:\n"})
    steps = init.plan(found, "gitlab")
    assert (folder / ".gitlab/ftgate.yml", "it already exists") in steps.left
    assert not any("include" in note for note in steps.notes)


@pytest.mark.parametrize("name", ["ftgate.yml", "perf.yaml"])
def test_a_workflow_that_is_not_ours_stays(folder: Path, name: str) -> None:
    """One under our name whatever it does, any other if it runs the gate."""
    theirs = "on: push\njobs: {}\n" if name == "ftgate.yml" else "jobs: {a: {steps: [run: pytest --ftgate]}}\n"
    lay(folder, {f".github/workflows/{name}": theirs, ".github/workflows/ci.yml": "on: push\n"})
    repository(folder)
    before = contents(folder)
    assert cli.main(["init", "--ci", "github"]) == 0
    after = contents(folder)
    assert set(after) - set(before) == {"tests/test_concurrency.py"}
    assert {path: after[path] for path in before} == before


def test_no_workflow_is_written_where_none_is_wanted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(folder, {".github/workflows/ci.yml": "on: push\n"})
    repository(folder)
    assert cli.main(["init", "--ci", "none"]) == 0
    assert set(contents(folder)) == {"tests/test_concurrency.py", ".github/workflows/ci.yml"}
    assert "no CI workflow: none was asked for" in capsys.readouterr().out


# -- writing -------------------------------------------------------------------------------------------------------


def test_a_dry_run_is_the_patch_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(
        folder,
        {
            "setup.cfg": "[tool:pytest]\ntestpaths = benchmarks\naddopts = --cov",
            "benchmarks/test_a.py": "def test_a(): ...\n",
        },
    )
    repository(folder)
    before = contents(folder)
    assert cli.main(["init", "--dry-run"]) == 0
    assert contents(folder) == before
    patch = capsys.readouterr().out
    assert cli.main(["init"]) == 0
    said = capsys.readouterr().out
    written = contents(folder)
    assert set(written) - set(before) == {"benchmarks/test_concurrency.py", ".github/workflows/ftgate.yml"}
    assert "wrote     benchmarks/test_concurrency.py\n" in said
    commit = "git commit -m 'Gate what threads and processes cost'"
    assert said.splitlines()[-4:] == [
        "next:",
        f"  git add benchmarks/test_concurrency.py .github/workflows/ftgate.yml && {commit}",
        "  # then a change: 20_000 becomes 40_000 in benchmarks/test_concurrency.py",
        "  pytest --no-cov --ftgate-against=HEAD benchmarks/test_concurrency.py",
    ]
    for name in set(written) - set(before):
        (folder / name).unlink()
    lay(folder, {".git/patch": patch})
    git(folder, "apply", ".git/patch")
    assert contents(folder) == written


def test_a_second_run_leaves_all_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository(folder)
    assert cli.main(["init"]) == 0
    before = contents(folder)
    capsys.readouterr()
    assert cli.main(["init"]) == 0
    said = capsys.readouterr().out
    assert contents(folder) == before
    for name in before:
        assert f"left      {name}: " in said
    assert "wrote" not in said
    assert said.endswith("next:\n  pytest --ftgate-against=merge-base tests/test_concurrency.py\n")


def test_from_a_folder_below_the_project_paths_are_seen_from_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(folder, {"pyproject.toml": PYPROJECT + HATCH, "docs/x.md": ""})
    monkeypatch.chdir(folder / "docs")
    assert cli.main(["init"]) == 0
    # Without git there is no commit to compare with: the second command ends in a verdict.
    test = "../tests/test_concurrency.py"
    assert f"  pytest --ftgate-update=new {test}\n  pytest --ftgate {test}\n" in capsys.readouterr().out
    assert cli.main(["init", "nowhere"]) == 2


def test_nothing_is_replaced_and_nothing_stays_half_written(folder: Path) -> None:
    lay(folder, {"tests/test_a.py": "old"})
    with pytest.raises(FtgateError, match="written by another process meanwhile"):
        init.write(folder / "tests" / "test_a.py", "new")
    with pytest.raises(FtgateError, match="cannot be written"):
        init.write(folder / "tests" / "test_a.py" / "b.py", "new")
    assert contents(folder) == {"tests/test_a.py": b"old"}


# -- for real ------------------------------------------------------------------------------------------------------


def run_pytest(*options: str) -> str:
    """The output of pytest in the current folder, where every warning is an error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FTGATE", "PYTEST_"))}
    command = [sys.executable, "-W", "error", "-m", "pytest", *options, "tests"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def strict(folder: Path, executables: dict[str, str]) -> None:
    """A project that is as strict as pytest can be, with what init writes and a test of its own."""
    ini = "[pytest]\naddopts = --strict-markers --strict-config --doctest-modules -Werror\nfilterwarnings = error\n"
    lay(folder, {"pytest.ini": ini, "tests/test_own.py": "def test_own(): ...\n"})
    assert set(executables) == {"3.14", "3.14t"}
    assert cli.main(["init"]) == 0


@pytest.mark.usefixtures("strict")
def test_what_it_wrote_runs_as_it_is() -> None:
    short = ("-k", "threads", "-oftgate_launches=1", "-oftgate_iterations=1", "--ftgate-metrics=wall")
    for options, expected in (((), "7 passed"), (("--ftgate", *short), "2 no baseline")):
        assert expected in run_pytest(*options)


@pytest.mark.usefixtures("strict")
def test_what_it_wrote_is_skipped_where_the_plugin_is_disabled() -> None:
    said = run_pytest("-p", "no:ftgate", "-rs")
    assert re.search(r"SKIPPED .*pytest-ftgate is disabled", said)
    assert "1 passed, 1 skipped" in said


@pytest.mark.usefixtures("strict")
def test_what_it_wrote_is_skipped_where_the_plugin_is_missing(folder: Path) -> None:
    # An environment without the plugin: its entry point and its package are not to be found.
    hide = "import sys\nsys.modules['pytest_ftgate'] = None\n"
    lay(folder, {"conftest.py": hide})
    said = run_pytest("-p", "no:ftgate", "-rs")
    assert re.search(r"SKIPPED .*pytest-ftgate is not installed", said)
    assert "1 passed, 2 skipped" in said  # also the doctests of the file
