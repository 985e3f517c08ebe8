"""A gate against a revision, end to end: what no cell runs or reads is not measured, what one does is."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import pytest
from example import Example
from project import commit, git

FILES = {
    "pytest.ini": "[pytest]\n",
    ".gitignore": ".ftgate/\n__pycache__/\n",
    "README.md": "one\n",
    "helper.py": "ONE = 1\n",
    "data/forked.txt": "one\n",
    "pkg/__init__.py": "",
    "pkg/lazy.py": """
        from importlib import resources

        def text():
            return resources.files(__package__).joinpath("text.txt").read_text()
        """,
    "pkg/text.txt": "one\n",
    "test_alone.py": """
        import helper

        @ftgate.compare(threads, workers=1)
        def test_alone(worker):
            return helper.ONE
        """,
    "test_forked.py": """
        from pathlib import Path

        @ftgate.compare(processes=["fork"], workers=1)
        def test_forked(worker):
            from pkg import lazy
            return lazy.text() + (Path(__file__).parent / "data" / "forked.txt").read_text()
        """,
}
QUICK = (
    "--ftgate", "--ftgate-against=HEAD~1", "-oftgate_launches=1", "-oftgate_iterations=2", "--ftgate-python=3.14t",
    "--ftgate-metrics=wall", "-oftgate_explain=no",
)  # fmt: skip


@pytest.fixture
def project(pytester: pytest.Pytester, interpreters_on_path: None) -> Example:
    return in_git(pytester, FILES)


def in_git(pytester: pytest.Pytester, files: Mapping[str, str]) -> Example:
    """A project in git, with two commits."""
    made = Example(pytester, files)
    commit_line(made, "README.md")
    return made


def commit_line(project: Example, name: str, text: str = "MORE = 1\n") -> None:
    """A commit that adds this to one file."""
    with (project.folder / name).open("a") as file:
        file.write(text)
    commit(project.folder, name)


def by_test(project: Example) -> dict[str, dict[str, str]]:
    """Test -> verdict of the last run."""
    return {name.partition("::")[2].partition("[")[0]: verdict for name, verdict in project.verdicts().items()}


def test_what_no_cell_reads_is_not_measured_and_a_new_test_is_and_passes(project: Example) -> None:
    (project.folder / "test_new.py").write_text((project.folder / "test_alone.py").read_text().replace("alone", "new"))
    commit_line(project, "README.md")
    result = project.run_fresh(*QUICK)
    assert result.ret == 0
    found = by_test(project)
    assert found.pop("test_new")["decision"] == "no baseline"
    for verdict in found.values():
        assert verdict["decision"] == "unchanged"
        assert verdict["reason"].startswith("not measured: nothing that it runs or reads differs at HEAD~1 (")
    result.stdout.fnmatch_lines(
        [
            "*: it will be compared from the next change on; --ftgate-against dist:NAME==VERSION compares*",
            "*unchanged  not measured: nothing that it runs or reads differs at HEAD~1 (*",
            "*3 cells in *: 2 unchanged, 1 no baseline",
        ]
    )
    assert "--ftgate-update" not in result.stdout.str()


NEWER = {
    "helper.py": """
        def value():
            return (
                1
            )

        def other():
            return 3

        def new(): return 4

        ONE = value()  # why
        """,
    "test_more.py": """
        import inspect
        import helper
        from pytest_ftgate import ftgate, interpreters, threads

        @ftgate.compare(threads, interpreters, workers=1)
        def test_more(worker):
            return helper.value()

        @ftgate.compare(threads, workers=1)
        def test_source(worker):
            return inspect.getsource(helper)

        @ftgate.compare(threads, workers=1)
        def test_other(worker):
            return helper.other()
        """,
}


def test_tests_that_seem_to_run_what_has_changed_come_first(project: Example) -> None:
    (project.folder / "test_more.py").write_text(textwrap.dedent(NEWER["test_more.py"]))
    (project.folder / "helper.py").write_text("def value(): return 1\ndef other(): return 2\nONE = value()\n")
    commit_line(project, "README.md")
    (project.folder / "helper.py").write_text("def value(): return 1\ndef other(): return 3\nONE = value()\n")
    result = project.run_fresh(*(word.replace("HEAD~1", "HEAD") for word in QUICK), "-v", "-k", "alone or other")
    run = [line for line in result.outlines if "::" in line and "%]" in line]
    assert [line.partition("::")[2].partition("[")[0] for line in run] == ["test_other", "test_alone"]


def test_what_is_not_run_is_not_measured_but_for_who_reads_sources(project: Example) -> None:
    (project.folder / "test_more.py").write_text(textwrap.dedent(NEWER["test_more.py"]))
    (project.folder / "helper.py").write_text("def value(): return 1\ndef other(): return 2\nONE = value()\n")
    commit_line(project, "README.md")
    (project.folder / "helper.py").write_text(textwrap.dedent(NEWER["helper.py"]))
    with (project.folder / "test_more.py").open("a") as file:
        file.write("@ftgate.compare(threads, workers=1)\ndef test_beside(worker): pass\n")
    commit_line(project, "pkg/lazy.py", "# a comment\n")
    project.run_fresh(*QUICK, "-k", "not beside")
    verdicts = by_test(project)
    assert verdicts["test_source"]["why"] == "--ftgate-against HEAD~1; helper.py differs"
    assert verdicts["test_other"]["why"] == "--ftgate-against HEAD~1; other() in helper.py differs"
    for name, uncalled in {"test_alone": 2, "test_more": 3}.items():
        assert verdicts[name]["decision"] == "unchanged"
        assert verdicts[name]["reason"].endswith(f": {uncalled} changed functions are never called")
    assert verdicts["test_forked"]["reason"].endswith(")")


def test_the_test_that_reads_a_change_is_measured_and_says_which(project: Example) -> None:
    """One reads a text that differs. To another the reference has a package that hides `helper.py`: no file that was
    read differs."""
    (project.folder / "test_apart.py").write_text(
        "from pytest_ftgate import ftgate, threads\n\n"
        "@ftgate.compare(threads, workers=1)\ndef test_apart(worker): ...\n"
    )
    (project.folder / "helper").mkdir()
    (project.folder / "helper" / "__init__.py").write_text("ONE = 1\n")
    commit_line(project, "helper/__init__.py")
    git(project.folder, "rm", "-r", "--quiet", "helper")
    commit_line(project, "pkg/text.txt")
    project.run_fresh(*QUICK)
    found = by_test(project)
    # A busy machine may make the same code look slower in so few rounds.
    assert {name for name, verdict in found.items() if verdict["decision"] == "unchanged"} == {"test_apart"}
    assert found["test_forked"]["why"] == "--ftgate-against HEAD~1; pkg/text.txt differs"
    assert found["test_alone"]["why"] == "--ftgate-against HEAD~1; helper differs"


SCM = {
    "setuptools-scm": """
        [build-system]
        requires = ["setuptools", "setuptools-scm"]
        build-backend = "setuptools.build_meta"
        [tool.setuptools_scm]
        version_file = "src/mine/_version.py"
        """,
    "hatch-vcs": """
        [build-system]
        requires = ["hatchling", "hatch-vcs"]
        build-backend = "hatchling.build"
        [tool.hatch.version]
        source = "vcs"
        [tool.hatch.build.hooks.vcs]
        version-file = "src/mine/_version.py"
        """,
}


@pytest.mark.parametrize("tool", SCM)
def test_a_version_from_git_is_no_change(pytester: pytest.Pytester, interpreters_on_path: None, tool: str) -> None:
    """With the tools themselves: each commit has another version, in a file, in names of files, in the metadata."""
    head = '[project]\nname = "mine"\ndynamic = ["version"]\nreadme = "README.md"\n'
    project = in_git(
        pytester,
        {
            "pytest.ini": "[pytest]\n",
            ".gitignore": ".ftgate/\n__pycache__/\n_version.py\n*.egg-info/\n",
            "README.md": "one\n",
            "pyproject.toml": head + textwrap.dedent(SCM[tool]),
            "src/mine/__init__.py": "from mine._version import __version__\n",
            "src/other/__init__.py": "",
            "test_mine.py": """
                from importlib import metadata

                @ftgate.compare(threads, workers=1)
                def test_mine(worker):
                    import mine
                    assert mine.__version__ == metadata.version("mine") == "1.4.0", mine.__version__
                """,
        },
    )
    git(project.folder, "tag", "v1.4.0")
    commit_line(project, "README.md")
    commit_line(project, "README.md")
    project.run_fresh(*QUICK)
    assert by_test(project)["test_mine"]["decision"] == "unchanged", by_test(project)


def test_a_program_is_measured_since_nobody_hears_what_it_imports_from_bytecode(
    pytester: pytest.Pytester, interpreters_on_path: None
) -> None:
    """The first of its cells compiles the module, which the second does not open any more."""
    files = {
        "pytest.ini": "[pytest]\n",
        ".gitignore": ".ftgate/\n__pycache__/\n",
        "README.md": "one\n",
        "helper.py": "ONE = 1\n",
        "tool.py": "import helper\n",
        "test_tool.py": """
            from pytest_ftgate import command

            @ftgate.compare(threads, command("tool", ["{python}", "{folder}/tool.py", "{workers}"]), workers=[1, 2])
            def test_tool(worker):
                pass
            """,
    }
    project = in_git(pytester, files)
    commit_line(project, "helper.py")
    project.run_fresh(*QUICK)
    unchanged = {
        nodeid.partition("[")[2].rstrip("]"): verdict["decision"] == "unchanged"
        for nodeid, verdict in project.verdicts().items()
    }
    assert unchanged == {"3.14t-threads-w1": True, "3.14t-threads-w2": True, "tool-w1": False, "tool-w2": False}


def test_the_option_takes_two_words(project: Example) -> None:
    result = project.run_fresh(*QUICK, "-oftgate_unchanged=yes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*ftgate_unchanged=yes: takes skip or measure*"])
