"""`ftgate init`: what it finds out, each kind of configuration file, what it leaves, and a run of what it wrote."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pytest_ftgate import cli
from pytest_ftgate.commands import inifile, init, project
from pytest_ftgate.commands.project import Git
from pytest_ftgate.errors import FtgateError

KEYS: inifile.Keys = {"ftgate_python": ("3.14", "3.14t")}
PYPROJECT = '[project]\nname = "my-pkg"\nversion = "0.1"\n'
HATCH = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def git(folder: Path, *arguments: str, said: str = "") -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, input=said, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(folder: Path, branch: str = "main") -> None:
    git(folder, "init", "--quiet", "-b", branch)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "one")


def planned(folder: Path, ci: str = "none") -> dict[str, str]:
    """The files that would be written, by their name below the folder."""
    steps = init.plan(project.look(folder), ci)
    return {change.path.relative_to(folder).as_posix(): change.after for change in steps.changes}


# -- configuration files -------------------------------------------------------------------------------------------

FLAVOURS = {
    "ini_options": ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-q"  # quiet\n\n[tool.ruff]\nx = 1\n'),
    "ini_options last": (
        "pyproject.toml",
        '[tool.ruff]\nx = 1\n[ tool . "pytest".ini_options ] # ours\naddopts = "-q"',
    ),
    "empty ini_options": ("pyproject.toml", "[tool.pytest.ini_options]\n\n# about ruff\n[tool.ruff]\n"),
    "lists over lines": (
        "pyproject.toml",
        '[tool.pytest.ini_options]\nmarkers = [\n  "x",\n]\nfilterwarnings = [\n  "error",\n  "ignore:[a-z]",\n]\n',
    ),
    "a header in a text": (
        "pyproject.toml",
        '[a]\nb = """\n[tool.pytest.ini_options]\n[c]\n"""\n[tool.pytest.ini_options]\naddopts = "-q"\n[c]\n',
    ),
    "native": ("pyproject.toml", '[tool.pytest]\naddopts = ["-q"]\n\n[tool.ruff]\nx = 1\n'),
    "no table": ("pyproject.toml", PYPROJECT),
    "no table, no end": ("pyproject.toml", PYPROJECT.rstrip()),
    "CRLF": ("pyproject.toml", '[tool.pytest.ini_options]\r\naddopts = "-q"\r\n\r\n[tool.ruff]\r\nx = 1\r\n'),
    "pytest.toml": ("pytest.toml", '[pytest]\naddopts = ["-q"]\n'),
    ".pytest.toml, empty": (".pytest.toml", ""),
    "pytest.ini": (
        "pytest.ini",
        "[pytest]\naddopts = -q\nmarkers =\n    a: [b]\n\n    c: d\n\n; a remark\n[other]\nx = 1\n",
    ),
    "pytest.ini, empty": ("pytest.ini", ""),
    ".pytest.ini": (".pytest.ini", "# first\n[pytest]\naddopts = -q"),
    "tox.ini": (
        "tox.ini",
        "[tox]\nenvlist = py\n[pytest]\naddopts = -q\n\n[testenv]\ncommands =\n    pytest {posargs}\n",
    ),
    "setup.cfg": (
        "setup.cfg",
        "[metadata]\nname = x\n\n[tool:pytest]\nnorecursedirs: 5%%\n\n[flake8]\nmax = 1\n",
    ),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_keys_go_where_pytest_reads_them_and_all_else_stays(pytester: pytest.Pytester, flavour: str) -> None:
    name, text = FLAVOURS[flavour]
    if name.endswith("pytest.toml") and pytest.version_tuple < (9, 0):
        pytest.skip("this pytest does not read it")
    lay(pytester.path, {name: text})
    ini = project.look(pytester.path).ini
    assert ini.path == pytester.path / name
    after = inifile.with_keys(ini, KEYS)
    lines = after.splitlines(keepends=True)
    added = [number for number, line in enumerate(lines) if "ftgate" in line]
    assert len(added) == 2
    assert {line[-2:] == "\r\n" for line in lines} == {flavour == "CRLF"}
    without = "".join(line for number, line in enumerate(lines) if number not in added)
    assert without.startswith(text)
    assert without[len(text) :].split() in ([], [f"[{ini.section}]"])
    (pytester.path / name).write_bytes(after.encode())
    config = pytester.parseconfig()
    assert config.inipath == pytester.path / name
    assert config.getini("ftgate_python") == ["3.14", "3.14t"]
    found = inifile.find(pytester.path, pytester.path)
    assert found is not None
    assert inifile.words(found.values["ftgate_python"]) == ["3.14", "3.14t"]


def test_several_keys_are_one_block_after_the_last_key(folder: Path) -> None:
    lay(folder, {"tox.ini": "[pytest]\naddopts = -q\n\n# the rest\n[tox]\n"})
    ini = inifile.find(folder, folder)
    assert ini is not None
    after = inifile.with_keys(ini, {**KEYS, "ftgate_install": ("-r", "a b.txt"), "ftgate_baselines": "tests/baselines"})
    assert after.splitlines()[2:] == [
        "# pytest-ftgate: what pytest --ftgate measures, and with which interpreters",
        "ftgate_python = 3.14 3.14t",
        "ftgate_install = -r 'a b.txt'",
        "ftgate_baselines = tests/baselines",
        "",
        "# the rest",
        "[tox]",
    ]


def test_nothing_is_installed_by_an_empty_value(folder: Path) -> None:
    lay(folder, {"pyproject.toml": "[tool.pytest.ini_options]\n", "sub/pytest.ini": "[pytest]\n"})
    for place, line in ((folder, "ftgate_install = []"), (folder / "sub", "ftgate_install =")):
        ini = inifile.find(place, place)
        assert ini is not None
        assert line in inifile.with_keys(ini, {"ftgate_install": ()}).splitlines()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pytest.ini": "", "tox.ini": "[pytest]\n", "pyproject.toml": "[tool.pytest.ini_options]\n"}, "pytest.ini"),
        ({"tox.ini": "[pytest]\n", "pyproject.toml": "[tool.pytest.ini_options]\n"}, "pyproject.toml"),
        ({"tox.ini": "[pytest]\n", "pyproject.toml": "[tool.ruff]\n"}, "tox.ini"),
        ({"tox.ini": "[tox]\n", "setup.cfg": "[tool:pytest]\n"}, "setup.cfg"),
        ({"tox.ini": "[tox]\n", "setup.cfg": "[pytest]\n"}, "pytest.ini"),
        ({"tox.ini": "[tox]\n", "pyproject.toml": ""}, "pyproject.toml"),
        ({}, "pytest.ini"),
    ],
)
def test_the_file_is_the_one_that_pytest_reads(folder: Path, files: dict[str, str], expected: str) -> None:
    lay(folder, files)
    assert list(planned(folder)) == ["tests/test_concurrency.py", expected]


def test_an_older_pytest_does_not_read_its_own_toml(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(folder, {"pytest.toml": "[pytest]\n", "pyproject.toml": "[tool.pytest]\naddopts = []\n"})
    monkeypatch.setattr(inifile, "version", lambda _name: "8.4.2")
    assert "[tool.pytest.ini_options]" in planned(folder)["pyproject.toml"]


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


@pytest.mark.parametrize(
    "text",
    ['tool = { pytest = { ini_options = { addopts = "-q" } } }\n', '[tool.pytest]\nini_options = { addopts = "" }\n'],
)
def test_where_there_is_no_place_the_lines_are_given(folder: Path, text: str) -> None:
    lay(folder, {"pyproject.toml": text})
    with pytest.raises(
        FtgateError, match=r'add them to its \[tool\.pytest\.ini_options\]:\n(?s:.*)ftgate_python = \["'
    ):
        planned(folder)


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
    ],
)
def test_the_workload_goes_where_pytest_looks(
    folder: Path, testpaths: list[str], there: list[str], expected: str
) -> None:
    for name in there:
        (folder / name).mkdir(parents=True)
    assert project.tests_folder(folder, testpaths) == folder / expected


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
    assert project.name_for(patterns, wanted, prefixes=prefixes) == expected


@pytest.mark.parametrize(
    ("files", "key"),
    [
        ({"pyproject.toml": PYPROJECT}, "tests/baselines"),
        ({"pyproject.toml": PYPROJECT + '[tool.setuptools]\npackages = ["my_pkg"]\n'}, None),
        ({"pyproject.toml": PYPROJECT, "src/my_pkg/__init__.py": ""}, None),
        ({"pyproject.toml": PYPROJECT + HATCH}, None),
        ({"requirements.txt": ""}, None),
    ],
)
def test_baselines_are_not_taken_for_a_package(folder: Path, files: dict[str, str], key: str | None) -> None:
    lay(folder, files)
    assert init.ini_keys(project.look(folder)).get("ftgate_baselines") == key


@pytest.mark.parametrize(
    ("files", "key"),
    [
        ({"pyproject.toml": PYPROJECT}, None),
        ({"pyproject.toml": PYPROJECT, "uv.lock": ""}, ()),
        ({"pyproject.toml": PYPROJECT + HATCH, "uv.lock": ""}, None),
        ({"pyproject.toml": PYPROJECT + 'dependencies = ["numpy"]\n', "uv.lock": ""}, ("-r pyproject.toml",)),
        (
            {"pyproject.toml": PYPROJECT + 'dependencies = ["numpy"]\n[tool.uv]\npackage = false\n'},
            ("-r pyproject.toml",),
        ),
        ({"requirements.txt": "numpy\n"}, "-r requirements.txt"),
        ({"pyproject.toml": PYPROJECT + 'requires-python = "<3.12"\n'}, ()),
        ({}, None),
    ],
)
def test_what_is_installed(folder: Path, files: dict[str, str], key: str | tuple[str, ...] | None) -> None:
    lay(folder, files)
    assert init.ini_keys(project.look(folder)).get("ftgate_install") == key


def test_keys_that_are_there_stay_and_are_followed(folder: Path) -> None:
    lay(folder, {"pytest.ini": "[pytest]\nftgate_python = 3.13t[gil=on] 3.13t /opt/python\n"})
    repository(folder)
    written = planned(folder, "github")
    assert list(written) == ["tests/test_concurrency.py", ".github/workflows/ftgate.yml"]
    assert "uv python install 3.13t\n" in written[".github/workflows/ftgate.yml"]


def test_a_test_that_uses_the_plugin_is_the_workload(folder: Path) -> None:
    ours = "from pytest_ftgate import ftgate\n"
    lay(folder, {"pytest.ini": "[pytest]\ntestpaths = tests .\npython_files = tests/test_*.py\n"})
    lay(folder, {"venv/pyvenv.cfg": "", "venv/test_b.py": ours, ".ftgate/test_c.py": ours, "tests/conftest.py": ours})
    assert "tests/test_concurrency.py" in planned(folder)
    lay(folder, {"tests/perf/test_cache.py": ours})
    steps = init.plan(project.look(folder), "none")
    assert (folder / "tests/perf/test_cache.py", "it already exists") in steps.left
    assert [change.path.name for change in steps.changes] == ["pytest.ini"]


@pytest.mark.parametrize(
    ("files", "url", "expected"),
    [
        ([], "", ""),
        ([".gitlab-ci.yml"], "git@github.com:a/b", "gitlab"),
        ([".github/x.yml"], "", "github"),
        ([".github/x.yml", ".gitlab-ci.yml"], "https://gitlab.example/a/b", "gitlab"),
        ([], "git@github.com:a/b", "github"),
        ([], "https://code.example/a/b", ""),
    ],
)
def test_the_ci_system_is_found(folder: Path, files: list[str], url: str, expected: str) -> None:
    lay(folder, dict.fromkeys(files, ""))
    assert project.ci_of(Git(top=folder, branch="main", url=url)) == expected
    assert project.ci_of(None) == ""


def test_git_tells_the_branch_and_the_top(folder: Path) -> None:
    lay(folder, {"packages/a/pyproject.toml": PYPROJECT, "packages/a/deep/x": ""})
    repository(folder, "trunk")
    git(folder, "checkout", "--quiet", "-b", "mine")
    git(folder, "remote", "add", "origin", "https://gitlab.example/a/b")
    git(folder, "update-ref", "refs/remotes/origin/trunk", "HEAD")
    git(folder, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    found = project.look(folder / "packages" / "a" / "deep")
    assert found.git == Git(top=folder, branch="trunk", url="https://gitlab.example/a/b")
    assert found.root == folder / "packages" / "a"


# -- CI ------------------------------------------------------------------------------------------------------------


def test_a_workflow_below_the_top_works_in_its_folder(folder: Path) -> None:
    lay(folder, {"packages/a/pyproject.toml": PYPROJECT})
    repository(folder)
    found = project.look(folder / "packages/a")
    for ci, name, line in (
        ("github", ".github/workflows/ftgate.yml", "        working-directory: packages/a"),
        ("gitlab", ".gitlab-ci.yml", "    - cd packages/a"),
    ):
        change = init.plan(found, ci).changes[-1]
        assert change.path == folder / name
        assert line in change.after.splitlines()
        assert "$" not in change.after.replace("$CI_", "")


@pytest.mark.parametrize(
    ("files", "install", "run"),
    [
        (
            {"pyproject.toml": PYPROJECT + '[project.optional-dependencies]\ntest = ["pytest"]\n'},
            ("uv venv --python 3.14", 'uv pip install pytest-ftgate -e ".[test]"'),
            "uv run --no-sync",
        ),
        (
            {"pyproject.toml": PYPROJECT + '[dependency-groups]\ndev = ["pytest"]\n'},
            ("uv venv --python 3.14", 'uv pip install pytest-ftgate -e "." --group dev'),
            "uv run --no-sync",
        ),
        (
            {"requirements.txt": ""},
            ("uv venv --python 3.14", "uv pip install pytest-ftgate -r requirements.txt"),
            "uv run --no-sync",
        ),
        (
            {"pyproject.toml": PYPROJECT + '[dependency-groups]\ndev = ["pytest"]\ntest = ["x"]\n', "uv.lock": ""},
            (),
            "uv run --frozen --python 3.14 --with pytest-ftgate --group test",
        ),
        (
            {"pyproject.toml": PYPROJECT + '[dependency-groups]\ndev = ["PyTest_ftgate>=0.1"]\n', "uv.lock": ""},
            (),
            "uv run --frozen --python 3.14",
        ),
    ],
)
def test_ci_installs_what_the_project_says(
    folder: Path, files: dict[str, str], install: tuple[str, ...], run: str
) -> None:
    lay(folder, files)
    assert init.ci_commands(project.look(folder)) == (install, run)


def test_what_ci_has_is_left(folder: Path) -> None:
    lay(
        folder,
        {
            ".gitlab-ci.yml": "stages: [a]\ntest:\n  script: pytest\n",
            ".github/workflows/t.yml": "run: pytest --ftgate\n",
        },
    )
    repository(folder)
    found = project.look(folder)
    assert (folder / ".github/workflows/t.yml", "it already exists") in init.plan(found, "github").left
    steps = init.plan(found, "gitlab")
    assert steps.changes[-1].path == folder / ".gitlab/ftgate.yml"
    assert "  include:\n    - local: .gitlab/ftgate.yml" in steps.notes[0]
    assert steps.notes[1] == ".gitlab-ci.yml names its own stages: give the job in .gitlab/ftgate.yml one of them"
    lay(folder, {".gitlab-ci.yml": "include:\n  - local: .gitlab/ftgate.yml\n", ".gitlab/ftgate.yml": "ftgate:\n"})
    steps = init.plan(found, "gitlab")
    assert (folder / ".gitlab/ftgate.yml", "it already exists") in steps.left
    assert not any("include" in note for note in steps.notes)


def test_only_what_cannot_be_found_out_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert init._asked_ci(project.look(folder), ask=True) == "none"  # no git: nothing to ask
    repository(folder)
    assert init._asked_ci(project.look(folder), ask=False) == "github"
    git(folder, "remote", "add", "origin", "https://code.example/a/b")
    found = project.look(folder)
    assert init._asked_ci(found, ask=False) == "none"
    answers = iter(["what?", " GitLab "])
    monkeypatch.setattr("builtins.input", lambda _prompt: next(answers))
    assert init._asked_ci(found, ask=True) == "gitlab"


# -- writing -------------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_dry_run_is_the_patch_of_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(folder, {"setup.cfg": "[tool:pytest]\ntestpaths = benchmarks", "benchmarks/test_a.py": "def test_a(): ...\n"})
    repository(folder)
    before = contents(folder)
    assert cli.main(["init", "--dry-run"]) == 0
    assert contents(folder) == before
    patch = capsys.readouterr().out
    assert cli.main(["init", "--yes"]) == 0
    said = capsys.readouterr().out
    written = contents(folder)
    assert set(written) - set(before) == {"benchmarks/test_concurrency.py", ".github/workflows/ftgate.yml"}
    assert "changed   setup.cfg [tool:pytest]: ftgate_python\n" in said
    assert said.splitlines()[-3:] == [
        "next:",
        "  pytest --ftgate benchmarks/test_concurrency.py",
        "  pytest --ftgate --ftgate-update=new benchmarks/test_concurrency.py",
    ]
    git(folder, "stash", "--include-untracked")
    git(folder, "apply", "-", said=patch)
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


def test_from_a_folder_below_the_project_paths_are_seen_from_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(folder, {"pyproject.toml": PYPROJECT + HATCH, "docs/x.md": ""})
    monkeypatch.chdir(folder / "docs")
    assert cli.main(["init"]) == 0
    assert "  pytest --ftgate ../tests/test_concurrency.py\n" in capsys.readouterr().out
    assert tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert cli.main(["init", "nowhere"]) == 2


def test_links_and_modes_stay(folder: Path) -> None:
    lay(folder, {"shared/pytest.ini": "[pytest]\n"})
    (folder / "shared/pytest.ini").chmod(0o640)
    (folder / "pytest.ini").symlink_to("shared/pytest.ini")
    init.write(init.plan(project.look(folder), "none").changes[1])
    assert (folder / "pytest.ini").is_symlink()
    assert (folder / "shared/pytest.ini").stat().st_mode & 0o777 == 0o640
    assert "ftgate_python" in (folder / "shared/pytest.ini").read_text()


def test_nothing_is_replaced_and_nothing_stays_half_written(folder: Path) -> None:
    change = init.Change(path=folder / "tests" / "test_a.py", after="new")
    lay(folder, {"tests/test_a.py": "old"})
    with pytest.raises(FtgateError, match="written by another process meanwhile"):
        init.write(change)
    with pytest.raises(FtgateError, match="cannot be written"):
        init.write(init.Change(path=folder / "tests" / "test_a.py" / "b.py", after="new"))
    assert contents(folder) == {"tests/test_a.py": b"old"}


# -- for real ------------------------------------------------------------------------------------------------------


def test_what_it_wrote_runs_as_it_is(folder: Path, executables: dict[str, str]) -> None:
    lay(folder, {"pytest.ini": "[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n"})
    assert set(executables) == {"3.14", "3.14t"}
    assert cli.main(["init", "--yes"]) == 0
    short = ("-k", "threads", "--ftgate-launches", "1", "--ftgate-iterations", "1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FTGATE", "PYTEST_"))}
    for options, expected in (((), "8 passed"), (("--ftgate", *short), "4 no baseline")):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "tests/test_concurrency.py"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert expected in done.stdout
