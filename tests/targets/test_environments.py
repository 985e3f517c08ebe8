"""Environments made by uv: what is in them, when they are remade, and how a failure looks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from packaging import tags
from project import executable

from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.model.spec import Interpreter
from pytest_ftgate.targets import environments
from pytest_ftgate.targets.describe import describe
from pytest_ftgate.targets.environments import (
    InstallError,
    OnStep,
    Steps,
    cause_of,
    copied_modules,
    default_install,
    ensure_environment,
    environment_folder,
    find_environments,
    inputs_of,
    leaves_no_files,
    missing_hint,
    rebuild_hint,
    required_python,
    run_uv,
    spelled,
    version_variable,
)

BACKEND = '''\
"""A build backend of the standard library alone: installs need no network."""
import pathlib
import zipfile

META = "Metadata-Version: 2.1\\nName: sample\\nVersion: 1.0\\n"
WHEEL = "Wheel-Version: 1.0\\nGenerator: sample\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"


def _build(folder, files):
    name = "sample-1.0-py3-none-any.whl"
    files = {**files, "sample-1.0.dist-info/METADATA": META, "sample-1.0.dist-info/WHEEL": WHEEL}
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr("sample-1.0.dist-info/RECORD", "".join(f"{path},,\\n" for path in files))
    return name


def build_wheel(folder, config_settings=None, metadata_directory=None):
    return _build(folder, {"sample.py": pathlib.Path("src/sample.py").read_text()})


def build_editable(folder, config_settings=None, metadata_directory=None):
    return _build(folder, {"sample.pth": str(pathlib.Path("src").absolute())})
'''
PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "sample"
version = "1.0"
"""


EDITABLE: Steps = (("-e", "."),)
COPY: Steps = ((".",),)


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    """The interpreter that runs the tests: what is made from it does not hang on its version."""
    return describe(getattr(sys, "_base_executable", sys.executable), found="path")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (folder / "backend.py").write_text(BACKEND, encoding="utf-8")
    (folder / "src" / "sample.py").write_text("VALUE = 1\n", encoding="utf-8")
    return folder


class Maker:
    """Makes one environment again and again and tells whether it was made anew."""

    def __init__(self, interpreter: Interpreter, project: Path) -> None:
        self.interpreter = interpreter
        self.project = project
        self.root = project / ".ftgate" / "envs"

    def python(self, *words: str, steps: Steps = (), on_step: OnStep = lambda _: None) -> Path:
        """Its python; `words` are one step."""
        steps = (words,) if words else steps
        return self.given({}, steps, on_step)

    def given(self, variables: dict[str, str], steps: Steps, on_step: OnStep = lambda _: None) -> Path:
        """Its python, made with these variables."""
        where = {"root": self.root, "project": self.project}
        return ensure_environment(self.interpreter, install=steps, variables=variables, on_step=on_step, **where)

    def made(self, *words: str, steps: Steps = ()) -> bool:
        """Whether this call made the environment: its configuration file is a new one."""
        install = (words,) if words else steps
        folder = environment_folder(self.interpreter, root=self.root, project=self.project, install=install)
        before = _identity(folder / "pyvenv.cfg")
        self.python(*words, steps=steps)
        return _identity(folder / "pyvenv.cfg") != before


def _identity(path: Path) -> tuple[int, int] | None:
    if not path.exists():
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


@pytest.fixture
def maker(interpreter: Interpreter, project: Path) -> Maker:
    return Maker(interpreter, project)


def run(python: Path, program: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([python, "-I", "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_it_holds_the_project_and_git_ignores_it(maker: Maker) -> None:
    python = maker.python("-e", ".")
    assert run(python, "import sample; print(sample.__file__)") == str(maker.project / "src" / "sample.py")
    assert python.is_relative_to(maker.root)
    assert (maker.project / ".ftgate" / ".gitignore").read_text(encoding="utf-8") == "*\n"
    assert find_environments(maker.interpreter, maker.root) == [python.parent.parent]


def test_nothing_installed_does_not_look_at_the_project(maker: Maker) -> None:
    python = maker.python()
    assert run(python, "import sys; print(sys.prefix)") == str(python.parent.parent)
    (maker.project / "pyproject.toml").write_text("", encoding="utf-8")
    assert not maker.made()


def test_it_is_made_again_only_when_what_it_is_made_from_changes(maker: Maker) -> None:
    project = maker.project
    (project / "requirements.txt").write_text("# none\n-r more.txt\n", encoding="utf-8")
    (project / "more.txt").write_text("", encoding="utf-8")
    install = ("-e", ".", "-r", "requirements.txt")
    assert maker.made(*install)
    assert not maker.made(*install)
    (project / "src" / "sample.py").write_text("VALUE = 2\n", encoding="utf-8")
    (project / ".hidden").mkdir()
    (project / ".hidden" / "native.c").write_text("int x;\n", encoding="utf-8")
    (project / "pyproject.toml").touch()
    assert not maker.made(*install)
    for path in ("src/native.c", "setup.cfg", "more.txt"):
        (project / path).write_text("# changed\n", encoding="utf-8")
        assert maker.made(*install), path
        assert not maker.made(*install), path


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
def test_of_the_sources_only_regular_files_are_read(maker: Maker) -> None:
    """A commit may hold a link to a device, and a test that was killed leaves a pipe."""
    (maker.project / "src" / "endless.c").symlink_to("/dev/zero")
    (maker.project / ".gitmodules").symlink_to("/dev/zero")
    os.mkfifo(maker.project / "setup.cfg")
    _, bound, _ = inputs_of((("-e", "."),), maker.project, {}, b"")
    assert bound
    assert required_python(maker.project) == ""


def test_a_copy_of_the_project_follows_its_python_sources(maker: Maker) -> None:
    assert maker.made(".")
    assert not maker.made(".")
    (maker.project / "src" / "sample.py").write_text("VALUE = 2\n", encoding="utf-8")
    python = maker.python(".")
    assert run(python, "import sample; print(sample.VALUE)") == "2"


def test_steps_run_in_their_order_and_a_command_in_the_environment(maker: Maker) -> None:
    (maker.project / "src" / "sample.py").unlink()
    write = "import pathlib, sys; pathlib.Path('src/sample.py').write_text(f'VALUE = {sys.prefix!r}')"
    said: list[str] = []
    steps = (("$", f'test "$VIRTUAL_ENV" && python -c "{write}"'), ("--no-deps", "."))
    python = maker.python(steps=steps, on_step=said.append)
    assert run(python, "import sample; print(sample.VALUE)") == str(python.parent.parent)
    assert list(dict.fromkeys(said)) == [
        f"running {steps[0][1]} (step 1 of 2)",
        "building the project (step 2 of 2)",
    ]
    assert maker.made(steps=steps)  # the command wrote a file that the build reads
    assert not maker.made(steps=steps)


def test_what_git_ignores_is_no_source(maker: Maker) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=maker.project, check=True)
    (maker.project / ".gitignore").write_text(".ftgate/\n*.gen.c\n", encoding="utf-8")
    assert maker.made("-e", ".")
    (maker.project / "src" / "package").mkdir()
    for name in ("sample.gen.c", "made.so", "src/package/new.py"):
        (maker.project / name).write_text("", encoding="utf-8")
        assert not maker.made("-e", ".")
    (maker.project / "src" / "package" / "__init__.py").write_text("", encoding="utf-8")
    assert maker.made("-e", "."), "it may list packages"
    (maker.project / "src" / "native.rs").write_text("", encoding="utf-8")
    assert maker.made("-e", ".")


def test_a_copy_does_not_follow_the_tests_but_what_it_is_made_of_and_the_compiler(
    maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert maker.made(".")
    (maker.project / "tests").mkdir()
    (maker.project / "tests" / "test_it.py").write_text("", encoding="utf-8")
    assert not maker.made(".")
    (maker.project / "src" / "table.json").write_text("{}", encoding="utf-8")
    assert maker.made(".")
    monkeypatch.setenv("CFLAGS", "-O0")
    assert maker.made(".")


def test_another_checkout_with_the_same_sources_takes_the_same_copy(maker: Maker, tmp_path: Path) -> None:
    python = maker.python(".")
    other = Maker(maker.interpreter, Path(shutil.copytree(maker.project, tmp_path / "other")))
    other.root = maker.root
    assert other.python(".") == python
    assert other.python("-e", ".") != maker.python("-e", ".")
    (other.project / "src" / "sample.py").write_text("VALUE = 2\n", encoding="utf-8")
    assert other.python(".") != python
    shutil.rmtree(maker.project / "src")
    shutil.rmtree(other.project)
    removed = environments.prune_environments(maker.root)
    assert python.parent.parent not in removed  # it may be in use for a checkout that is still there


def test_a_local_project_of_a_requirements_file_is_built_again(maker: Maker) -> None:
    (maker.project / "requirements.txt").write_text(".\n", encoding="utf-8")
    maker.python("-r", "requirements.txt")
    (maker.project / "src" / "sample.py").write_text("VALUE = 2\n", encoding="utf-8")
    python = maker.python("-r", "requirements.txt")
    assert run(python, "import sample; print(sample.VALUE)") == "2"


def test_only_copies_are_imported_in_place_of_the_sources(maker: Maker) -> None:
    assert copied_modules(maker.python("."), maker.project) == ("sample",)
    assert copied_modules(maker.python("-e", "."), maker.project) == ()


def wheel(maker: Maker, tag: str, value: int) -> Path:
    """A wheel of the project for an ABI, in which VALUE is this."""
    name = maker.project / "dist" / f"sample-1.0-{tag}.whl"
    name.parent.mkdir(exist_ok=True)
    files = {
        "sample.py": f"VALUE = {value}\n",
        "sample-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n",
        "sample-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    with zipfile.ZipFile(name, "w") as packed:
        for path, text in {**files, "sample-1.0.dist-info/RECORD": ""}.items():
            packed.writestr(path, text)
    return name


@pytest.mark.parametrize("words", [("dist/sample-1.0-py3-none-any.whl",), ("--no-index", "-f", "dist", "sample")])
def test_a_wheel_is_installed_again_when_it_changes(maker: Maker, words: tuple[str, ...]) -> None:
    for value in (1, 2):
        wheel(maker, "py3-none-any", value)
        assert run(maker.python(*words), "import sample; print(sample.VALUE)") == str(value)
    assert not maker.made(*words)


@pytest.mark.parametrize("build", ["3.14", "3.14t"])
def test_of_a_folder_of_wheels_a_target_gets_its_own(maker: Maker, build: str, executables: dict[str, str]) -> None:
    """As docs/running.md has it; uv chooses."""
    maker.interpreter = describe(executables[build], found="path")
    for value, abi in enumerate(("cp314", "cp314t", "cp313")):
        wheel(maker, f"{abi.rstrip('t')}-{abi}-{next(tags.platform_tags())}", value)
    python = maker.python("--no-index", "--find-links", "dist", "sample==1.0")
    assert run(python, "import sample; print(sample.VALUE)") == str(int(build == "3.14t"))


def test_another_interpreter_makes_it_anew(maker: Maker) -> None:
    assert maker.made()
    maker.interpreter = msgspec.structs.replace(maker.interpreter, version="3.14.99")
    assert maker.made()
    assert len(list(maker.root.glob("*/pyvenv.cfg"))) == 2


def test_an_unfinished_environment_is_made_anew(maker: Maker) -> None:
    python = maker.python()
    (python.parent.parent / environments.STAMP).write_text('{"trunca', encoding="utf-8")
    assert find_environments(maker.interpreter, maker.root) == []
    assert maker.made()


def test_uv_on_path_serves_without_the_wheel(maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = tmp_path / "bin" / "uv"
    on_path.parent.mkdir()
    on_path.symlink_to(environments.find_uv())
    monkeypatch.setitem(sys.modules, "uv", None)  # importing it fails
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert environments.find_uv() == str(on_path)
    assert maker.made()
    on_path.unlink()
    with pytest.raises(environments.UvMissing, match=r"uv was not found: install it .*pip install uv.* PATH"):
        environments.find_uv()


def test_two_runs_at_once_make_it_once(maker: Maker) -> None:
    """Threads stand for runs; uv is found before, as `sysconfig` of 3.11 is not safe to be asked first by several."""
    environments.find_uv()
    calls: list[list[str]] = []

    def counted(arguments: list[str]) -> subprocess.CompletedProcess[str]:
        calls.append(list(arguments))
        return run_uv(arguments)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(4) as pool:
        patch.setattr(environments, "run_uv", counted)
        pythons = {future.result() for future in [pool.submit(maker.python) for _ in range(4)]}
    assert len(pythons) == 1
    assert [words[0] for words in calls] == ["venv"]


def test_a_failing_install_shows_uvs_own_message_and_is_tried_again(maker: Maker) -> None:
    (maker.project / "backend.py").write_text("raise RuntimeError('the backend of the user is broken')\n")
    for _ in range(2):
        with pytest.raises(InstallError) as caught:
            maker.python("-e", ".")
        assert "the backend of the user is broken" in str(caught.value)
        assert "-e ." in str(caught.value)
        assert "ftgate_install" in str(caught.value)
    assert find_environments(maker.interpreter, maker.root) == []


FLOOD = "\\n".join(f"line {number}" for number in range(200))


@pytest.mark.parametrize(
    ("step", "cause", "fix"),
    [
        (("$", "no-such-tool --here"), "no-such-tool", "fix: correct this command, or install what it runs in a step"),
        (("$", f"printf '{FLOOD}\\nx.c:1: error: lost\\n{FLOOD}'; exit 3"), "x.c:1: error: lost", "fix: correct this"),
        (("$", "exit 3"), "exit code 3", "fix: correct this"),
        (("./nothing-here",), "nothing-here", "fix: set what to install with ftgate_install"),
    ],
)
def test_a_failing_step_shows_its_place_its_end_and_a_fix(
    maker: Maker, step: tuple[str, ...], cause: str, fix: str
) -> None:
    with pytest.raises(InstallError) as caught:
        maker.python(steps=(step, ("-e", ".")))
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(f"cannot install {spelled(step)} (step 1 of 2): ")
    assert cause in first
    assert rest[0] == f"for {maker.interpreter.name} in {maker.project}:"
    assert len(rest) < 30
    found = re.fullmatch(r"\(all (\d+) lines: (.*)\)", rest[-2])
    assert found
    assert len(Path(found[2]).read_text("utf-8").split("\n")) >= int(found[1])
    assert rest[-1].startswith(fix)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (
            "  ╰─▶ Call failed\n  b.c:1:10: fatal error: no x.h\nerror: command 'cc' failed",
            "b.c:1:10: fatal error: no x.h",
        ),
        ("a.rs:1: error[E0425]: lost\nerror: gone", "a.rs:1: error[E0425]: lost"),
        ("returned an error\n  setup.BuildError: no cython\n  hint", "setup.BuildError: no cython"),
        ("No solution found when resolving:\n  ╰─▶ Because x was not found\n  hint", "╰─▶ Because x was not found"),
        ("one\n💥 it failed", "💥 it failed"),
        ("", ""),
    ],
)
def test_one_line_says_why(output: str, cause: str) -> None:
    assert cause_of(output.splitlines()) == cause


def test_an_empty_submodule_is_the_fix_of_a_failing_build(maker: Maker) -> None:
    (maker.project / ".gitmodules").write_text('[submodule "x"]\n\tpath = ext/x\n\turl = ../x\n', encoding="utf-8")
    (maker.project / "ext" / "x").mkdir(parents=True)
    with pytest.raises(InstallError, match=r"fix: the submodule ext/x is not checked out: git submodule update --init"):
        maker.python(steps=(("$", "false"),))


def test_an_editable_install_that_is_built_again_at_import() -> None:
    assert rebuild_hint("ImportError: no module") == ""
    found = rebuild_hint('ImportError: rebuilding the "contourpy" editable package failed\nc++ -I...')
    assert "set ftgate_install = . or two steps" in found


def test_what_is_installed_where_pytest_runs_only() -> None:
    missing = "worker 0:\nTraceback\n  import iniconfig\nModuleNotFoundError: No module named 'iniconfig'"
    assert missing_hint(missing, "3.14t") == (
        "iniconfig is installed where pytest runs, not in the environment of 3.14t: add packages=['iniconfig'] to the "
        "test's decorator, or install it for all tests, such as by `ftgate_install = -e . iniconfig` in the ini"
    )
    assert missing_hint(missing.replace("iniconfig", "no_such_module"), "3.14t") == ""
    assert missing_hint("ModuleNotFoundError: No module named 'iniconfig.part'", "3.14t") == ""
    assert missing_hint("ValueError: 3", "3.14t") == ""


def test_an_interpreter_that_uv_refuses_is_an_error_with_its_message(maker: Maker, tmp_path: Path) -> None:
    fake = str(executable(tmp_path / "python3.14", "exit 3"))
    maker.interpreter = msgspec.structs.replace(maker.interpreter, executable=fake)
    with pytest.raises(FtgateError, match="uv could not make the environment"):
        maker.python()


@pytest.mark.parametrize(
    ("files", "install"),
    [
        ({}, ()),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, ()),
        ({"pyproject.toml": "[project]\nname = 'x'\n"}, EDITABLE),
        ({"pyproject.toml": "[build-system]\nrequires = []\n"}, EDITABLE),
        ({"pyproject.toml": "[project]\nname = 'x'\n[tool.uv]\npackage = false\n"}, ()),
        ({"pyproject.toml": "[tool.ruff]\n", "setup.py": ""}, EDITABLE),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'mesonpy'\n"}, COPY),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'own'\nrequires = ['meson-python >= 0.18']\n"}, COPY),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'sipbuild.api'\n"}, COPY),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'maturin'\nrequires = ['maturin']\n"}, EDITABLE),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'scikit_build_core.build'\n"}, EDITABLE),
        ({"pyproject.toml": "[build-system]\n[tool.scikit-build]\neditable.rebuild = true\n"}, COPY),
        ({"pyproject.toml": "[project]\nname = 'x'\n", "uv.lock": ""}, ()),
        ({"pyproject.toml": "[project]\nname = 'x'\n[tool.uv.workspace]\nmembers = ['packages/*']\n"}, ()),
        ({"pyproject.toml": "[project]\nname = 'x'\n[tool.uv]\npackage = true\n", "uv.lock": ""}, EDITABLE),
        ({"pyproject.toml": "[project]\nname = 'x'\n[build-system]\nrequires = []\n", "uv.lock": ""}, EDITABLE),
        ({"pyproject.toml": "[project]\ndependencies = ['y']\n", "uv.lock": ""}, (("-r", "pyproject.toml"),)),
        ({"requirements.txt": "y\n"}, (("-r", "requirements.txt"),)),
        ({"requirements.txt": "y\n", "setup.py": ""}, EDITABLE),
    ],
)
def test_default_install_is_the_project_or_what_it_requires(
    tmp_path: Path, files: dict[str, str], install: Steps
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert default_install(tmp_path) == install


SCM = "SETUPTOOLS_SCM_PRETEND_VERSION"
WITH_VERSION = """

def build_editable(folder, config_settings=None, metadata_directory=None):
    import os
    return _build(folder, {"made_as.py": "VERSION = " + repr(os.environ["SCM"])})
"""


@pytest.mark.parametrize(
    ("files", "variable"),
    [
        ({"pyproject.toml": PYPROJECT}, ""),
        ({"pyproject.toml": PYPROJECT.replace("[]", '["setuptools_scm[toml]>=8"]')}, f"{SCM}_FOR_SAMPLE"),
        (
            {"pyproject.toml": PYPROJECT.replace("[]", '["setuptools-scm"]').replace("sample", "a.b_c")},
            f"{SCM}_FOR_A_B_C",
        ),
        ({"pyproject.toml": PYPROJECT.replace("[]", '["hatchling", "hatch-vcs"]')}, SCM),
        ({"setup.py": "setup(use_scm_version=True, setup_requires=['setuptools_scm'])"}, SCM),
        ({"setup.cfg": "[options]\nsetup_requires =\n    setuptools_scm\n"}, SCM),
        ({}, ""),
    ],
)
def test_a_build_that_asks_git_for_its_version_takes_it_from_a_variable(
    tmp_path: Path, files: dict[str, str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert version_variable(tmp_path) == variable
    monkeypatch.setenv(variable or SCM, "7")
    assert version_variable(tmp_path) == ""


def test_variables_of_a_build_belong_to_what_it_is_made_of_and_reach_it(maker: Maker) -> None:
    with (maker.project / "backend.py").open("a", encoding="utf-8") as backend:
        backend.write(WITH_VERSION)
    for version in ("1.1", "1.2", "1.1"):
        made = maker.given({"SCM": version}, EDITABLE)
        assert run(made, "import made_as; print(made_as.VERSION)") == version
    before = _identity(made.parent.parent / "pyvenv.cfg")
    assert maker.given({"SCM": "1.1"}, EDITABLE) == made
    assert _identity(made.parent.parent / "pyvenv.cfg") == before


@pytest.mark.parametrize(
    ("tables", "steps", "apart"),
    [
        ('build-backend = "hatchling.build"', EDITABLE, True),
        ('build-backend = "hatchling.build"', COPY, True),
        ('build-backend = "hatchling.build"', (*EDITABLE, ("$", "make")), False),
        ('build-backend = "hatchling.build"', (("-e", "other"),), False),
        ('build-backend = "hatchling.build"', (("-r", "local.txt"),), False),
        ('build-backend = "hatchling.build"\n[tool.hatch.build.hooks.vcs]\nversion-file = "v.py"', EDITABLE, False),
        ('build-backend = "setuptools.build_meta"', EDITABLE, False),
        ('build-backend = "setuptools.build_meta"', (("numpy",),), True),
        ("", EDITABLE, False),
        ("", (), True),
    ],
)
def test_builds_that_write_nothing_into_their_folder_can_run_at_once(
    tmp_path: Path, tables: str, steps: Steps, apart: bool
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[build-system]\n{tables}\n", encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "local.txt").write_text("./other\n", encoding="utf-8")
    assert leaves_no_files(steps, tmp_path) == apart


def test_default_install_names_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n", encoding="utf-8")
    with pytest.raises(FtgateError, match=r"pyproject\.toml cannot be read"):
        default_install(tmp_path)


def test_an_existing_gitignore_is_left_alone(maker: Maker) -> None:
    maker.root.mkdir(parents=True)
    (maker.root.parent / ".gitignore").write_text("mine\n", encoding="utf-8")
    maker.python()
    assert (maker.root.parent / ".gitignore").read_text(encoding="utf-8") == "mine\n"


def test_neither_stamp_nor_name_tells_what_was_installed(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFLAGS", "-DKEY=s3cr3t")
    folder = maker.python("$", "echo s3cr3t").parent.parent
    left = [path for path in maker.root.glob("*") if path.is_file()] + [folder / environments.STAMP]
    assert not [path for path in left if b"s3cr3t" in path.read_bytes()]
    # Who knows all but the secret cannot try it out by the digests: they are salted, with what lies beside them.
    (maker.root / environments.SALT).unlink()
    again = maker.python("$", "echo s3cr3t").parent.parent
    stamps = [json.loads((each / environments.STAMP).read_text(encoding="utf-8")) for each in (folder, again)]
    assert again != folder
    for field in ("install", "sources"):
        assert stamps[0][field] != stamps[1][field], field


def test_an_environment_whose_project_is_gone_or_that_nobody_used_is_removed(maker: Maker, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    own = maker.python().parent.parent
    others = [
        ensure_environment(maker.interpreter, root=maker.root, project=project, install=()).parent.parent
        for project in (gone, tmp_path)
    ]
    gone.rmdir()
    os.utime(others[1] / environments.STAMP, (0, 0))
    assert sorted(environments.prune_environments(maker.root)) == sorted(others)
    assert [folder for folder in (own, *others) if folder.exists()] == [own]
    os.utime(own / environments.STAMP, (0, 0))
    maker.python()  # used again
    assert environments.prune_environments(maker.root) == []
    assert environments.prune_environments(maker.root, kept_unused_s=-1) == [own]


def test_an_environment_of_an_older_version_is_left_and_made_anew(maker: Maker) -> None:
    python = maker.python()
    path = python.parent.parent / environments.STAMP
    stamp = json.loads(path.read_text(encoding="utf-8"))
    del stamp["project"]
    path.write_text(json.dumps(stamp), encoding="utf-8")
    assert environments.prune_environments(maker.root, kept_unused_s=-1) == []
    assert maker.made()
