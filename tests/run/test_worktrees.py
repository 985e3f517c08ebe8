"""The two sides of a comparison: real git repositories, their worktrees, and everything that may go wrong in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import msgspec
import pytest
from project import NOBODY, commit, git

from pytest_ftgate.kit import git as git_module
from pytest_ftgate.kit.git import AgainstError
from pytest_ftgate.model.spec import Executor, Interpreter, Source, Spec
from pytest_ftgate.run.sides import references as installs
from pytest_ftgate.run.sides import worktrees
from pytest_ftgate.run.sides.checkout import Checkout
from pytest_ftgate.run.sides.worktrees import NothingToCompare, Pair
from pytest_ftgate.store.names import file_name
from pytest_ftgate.targets import describe, environments

NO_CI = {"HOME": "/nowhere"}
CI = {"CI": "true"}
pytestmark = pytest.mark.usefixtures("bare_git")


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "repo"
    folder.mkdir()
    git(folder, "init", "--quiet", "--template=")
    write(folder, a="one\n", b="same\n", c="c\n")
    (folder / ".gitignore").write_text("*.bin\n.ftgate/\n", encoding="utf-8")
    commit(folder)
    write(folder, a="two\n")
    commit(folder)
    return folder


@pytest.fixture
def repo(template: Path, tmp_path: Path) -> Path:
    """Two commits: `a` says one, then two; `b` and `c` stay."""
    return Path(shutil.copytree(template, tmp_path / "repo"))


def against(repo: Path, revision: str = "HEAD", *, root: Path | None = None, ci: dict[str, str] | None = None) -> Pair:
    project = root or repo
    return worktrees.pair(project, revision, project / ".ftgate", environ=ci or NO_CI)


def files(side: Checkout) -> dict[str, str]:
    """Every file of a side with its text; a link with an arrow."""
    return {
        str(path.relative_to(side.project)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(side.project.rglob("*"))
        if (path.is_file() or path.is_symlink()) and path.name not in (".git", ".gitignore")
    }


def state(repo: Path) -> tuple[bytes, str, str, str]:
    """What must never change: the index byte for byte, what git says of the files, all references, the stash."""
    index = (repo / ".git" / "index").read_bytes()
    said = [("status", "--porcelain"), ("for-each-ref",), ("stash", "list")]
    status, references, stash = (git(repo, "--no-optional-locks", *words) for words in said)
    return index, status, references + git(repo, "symbolic-ref", "HEAD"), stash


# ---- what is on the two sides


def test_a_clean_working_tree_is_head_itself(repo: Path) -> None:
    before = state(repo)
    found = against(repo, "HEAD~1")
    assert found.changed.commit == git(repo, "rev-parse", "HEAD")
    assert found.changed.label == f"HEAD ({found.changed.commit[:10]})"
    assert found.reference.label == f"HEAD~1 ({git(repo, 'rev-parse', 'HEAD~1')[:10]})"
    assert files(found.reference) == {"a": "one\n", "b": "same\n", "c": "c\n"}
    assert files(found.changed) == {"a": "two\n", "b": "same\n", "c": "c\n"}
    assert len(found.reference.root) == len(found.changed.root)
    assert found.reference.project.parent == repo / ".ftgate" / "worktrees"
    assert state(repo) == before


def test_two_commits_are_compared_without_the_working_tree(repo: Path) -> None:
    write(repo, a="three\n")
    found = against(repo, "HEAD~1..main")
    assert [files(side)["a"] for side in (found.reference, found.changed)] == ["one\n", "two\n"]
    assert found.changed.label == f"main ({git(repo, 'rev-parse', 'HEAD')[:10]})"
    with pytest.raises(NothingToCompare, match="are one commit: there is nothing to compare; name another"):
        against(repo, "HEAD..main")
    with pytest.raises(AgainstError, match="nowhere: git knows no such revision"):
        against(repo, "main..nowhere")


def test_uncommitted_changes_are_measured_as_they_are(repo: Path) -> None:
    write(repo, a="edited\n", staged="first\n", new__deep="new\n", **{"x.bin": "ignored\n"})
    git(repo, "add", "staged")
    write(repo, staged="second\n")
    (repo / "b").unlink()
    git(repo, "mv", "c", "moved")
    (repo / "link").symlink_to("a")
    (repo / "run").write_text("#!/bin/sh\n", encoding="utf-8")
    (repo / "run").chmod(0o755)
    before = state(repo)
    found = against(repo)
    assert found.changed.label == "working tree (uncommitted changes)"
    assert files(found.changed) == {
        "a": "edited\n",
        "link": "-> a",
        "moved": "c\n",
        "new/deep": "new\n",
        "run": "#!/bin/sh\n",
        "staged": "second\n",
    }
    assert os.access(found.changed.project / "run", os.X_OK)
    assert files(found.reference) == {"a": "two\n", "b": "same\n", "c": "c\n"}
    assert state(repo) == before


def test_the_branch_is_gits_own_and_of_a_lone_commit_what_ci_says(repo: Path, tmp_path: Path) -> None:
    github = {"GITHUB_HEAD_REF": "", "GITHUB_REF_NAME": "v1"}
    assert git_module.branch_of(repo, github) == "main"
    git(repo, "checkout", "--quiet", "--detach")
    assert git_module.branch_of(repo, {}) == ""
    assert git_module.branch_of(repo, github) == "v1"
    assert git_module.branch_of(repo, github | {"GITHUB_HEAD_REF": "faster"}) == "faster"
    outside = tmp_path / "outside"
    outside.mkdir()
    assert git_module.branch_of(outside, github) == ""


def test_a_project_has_the_name_of_its_distribution_or_folder(tmp_path: Path) -> None:
    assert environments.project_of(tmp_path) == tmp_path.name
    write(tmp_path, **{"pyproject.toml": '[project]\nname = "My.Words"\n'})
    assert environments.project_of(tmp_path) == "my-words"
    write(tmp_path, **{"pyproject.toml": "[project"})
    assert environments.project_of(tmp_path) == tmp_path.name


def test_a_change_is_seen_however_soon_after_the_index_was_written(repo: Path) -> None:
    git(repo, "config", "core.trustctime", "false")
    long_ago_s = (repo / "a").stat().st_mtime - 1000
    write(repo, a="add\n")
    os.utime(repo / "a", (long_ago_s, long_ago_s))
    git(repo, "add", "a")
    write(repo, a="end\n")  # as long, and at one moment with the index: only its content tells
    for path in (repo / "a", repo / ".git" / "index"):
        os.utime(path, (long_ago_s, long_ago_s))
    assert files(against(repo).changed)["a"] == "end\n"


def test_a_file_becomes_a_folder_and_a_folder_a_link(repo: Path) -> None:
    write(repo, d__f="f\n", e__f="f\n")
    commit(repo)
    for name in ("a", "d/f", "e/f"):
        (repo / name).unlink()
    for name in ("d", "e"):
        (repo / name).rmdir()
    write(repo, a__inner="inner\n", d="file\n")
    (repo / "e").symlink_to("a")
    assert files(against(repo).changed) == {"a/inner": "inner\n", "b": "same\n", "c": "c\n", "d": "file\n", "e": "-> a"}


def test_a_conflict_is_taken_as_it_stands_in_the_file(repo: Path) -> None:
    git(repo, "checkout", "--quiet", "-b", "other", "HEAD~1")
    write(repo, a="other\n")
    commit(repo)
    git(repo, "checkout", "--quiet", "main")
    subprocess.run(["git", "merge", "other"], cwd=repo, env=os.environ | NOBODY, capture_output=True)
    assert "<<<<<<<" in files(against(repo).changed)["a"]


def test_names_that_are_not_text(repo: Path) -> None:
    names = [b"with\nnewline", b"latin-\xe9", b" spaced ", "日本".encode(), b":(top)magic", b"-rf"]
    for name in names:
        with open(os.path.join(os.fsencode(repo), name), "wb") as file:
            file.write(b"x")
    found = os.listdir(os.fsencode(against(repo).changed.root))
    assert set(names) <= set(found)


def test_what_is_ours_is_never_in_a_snapshot(repo: Path) -> None:
    (repo / ".gitignore").unlink()
    write(repo, **{".ftgate__.gitignore": "nothing\n", ".ftgate__last-run.json": "{}", "sub__.ftgate__x": "x"})
    changed = against(repo).changed
    assert files(changed) == {"a": "two\n", "b": "same\n", "c": "c\n"}
    again = against(repo).changed  # with worktrees in the folder now
    assert (again.commit, sorted(files(again))) == (changed.commit, ["a", "b", "c"])


def test_what_is_ours_and_somebody_staged_or_committed(repo: Path) -> None:
    write(repo, **{".ftgate__kept": "committed\n"})
    git(repo, "add", "--force", ".ftgate/kept")
    commit(repo)
    with pytest.raises(NothingToCompare):
        against(repo)
    write(repo, **{".ftgate__staged": "staged\n", ".ftgate__kept": "changed\n"})
    git(repo, "add", "--force", ".ftgate/staged")
    with pytest.raises(NothingToCompare):
        against(repo)


def test_new_baselines_are_no_uncommitted_changes(repo: Path) -> None:
    place = "baselines__test_a.py__test_x__{}"
    recorded = file_name("2026-11-22T00:00:55Z", "", 1, "linux")
    write(repo, **{place.format(recorded): "{}", place.format(f"1{recorded}"): "{}"})
    assert list(files(against(repo).changed)) == ["a", "b", f"baselines/test_a.py/test_x/1{recorded}", "c"]
    (repo / "baselines" / "test_a.py" / "test_x" / f"1{recorded}").unlink()
    git(repo, "add", "baselines")
    with pytest.raises(NothingToCompare):
        against(repo)


def test_an_index_of_every_kind(repo: Path) -> None:
    write(repo, d__f="f\n", later="later\n")
    git(repo, "add", "--intent-to-add", "later")
    git(repo, "update-index", "--split-index")
    assert files(against(repo).changed) == {"a": "two\n", "b": "same\n", "c": "c\n", "d/f": "f\n", "later": "later\n"}
    commit(repo)
    git(repo, "sparse-checkout", "set", "--no-cone", "/a", "/later")
    assert not (repo / "b").exists()
    with pytest.raises(NothingToCompare):
        against(repo)
    write(repo, later="much\n")
    assert files(against(repo).changed)["later"] == "much\n"
    git(repo, "sparse-checkout", "disable")
    (repo / ".git" / "index").unlink()
    assert files(against(repo).changed) == {"a": "two\n", "b": "same\n", "c": "c\n", "d/f": "f\n", "later": "much\n"}


def test_line_ends_and_filters_of_the_user(repo: Path) -> None:
    git(repo, "config", "core.autocrlf", "true")
    git(repo, "config", "core.safecrlf", "true")
    git(repo, "config", "filter.loud.clean", "tr a-z A-Z")
    git(repo, "config", "filter.loud.smudge", "tr A-Z a-z")
    write(repo, a="dirty\n", x__loud="loud\n", **{".gitattributes": "loud filter=loud\n"})
    changed = against(repo).changed
    assert files(changed)["x/loud"] == "loud\n"
    assert git(changed.project, "show", "HEAD:x/loud") == "LOUD"
    assert (changed.project / "a").read_bytes() == b"dirty\r\n"
    assert against(repo).changed == changed


def test_ours_hides_itself_where_nobody_does(repo: Path) -> None:
    (repo / ".gitignore").write_text("*.bin\n", encoding="utf-8")
    commit(repo)
    against(repo, "HEAD~1")
    assert git(repo, "status", "--porcelain", "--untracked-files=all") == ""


def test_a_project_in_a_folder_of_the_repository(repo: Path) -> None:
    write(repo, packages__one__test_x="x\n", libs__y="y\n")
    first = commit(repo)
    write(repo, packages__one__test_x="z\n")
    project = repo / "packages" / "one"
    found = against(repo, root=project)
    assert found.reference.commit == first
    assert found.reference.project.is_relative_to(project / ".ftgate" / "worktrees")
    assert found.reference.root.endswith("/packages/one")
    assert files(found.reference) == {"test_x": "x\n"}
    assert files(found.changed) == {"test_x": "z\n"}
    assert (found.changed.top(found.changed.project) / "libs" / "y").read_text() == "y\n"
    with pytest.raises(AgainstError, match=r"HEAD~1 .* has no folder packages/one/"):
        against(repo, "HEAD~1", root=project)


def test_the_working_tree_may_be_a_worktree_itself(repo: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "--quiet", "-b", "topic", str(linked))
    write(linked, a="linked\n")
    found = against(linked)
    assert files(found.changed)["a"] == "linked\n"
    assert git(linked, "status", "--porcelain") == "M a"


# ---- submodules, filters, hooks, identity


def test_broken_submodules_and_repositories_within_are_left_alone(repo: Path) -> None:
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{git(repo, 'rev-parse', 'HEAD')},sub")
    git(repo, "commit", "--quiet", "-m", "with a submodule")
    write(repo, a="dirty\n", empty__f="f", whole__f="f", sub__f="f", **{"sub__.git": "gitdir: /nowhere"})
    git(repo / "empty", "init", "--quiet")
    git(repo / "whole", "init", "--quiet")
    commit(repo / "whole")
    found = against(repo, "HEAD")
    assert files(found.changed) == {"a": "dirty\n", "b": "same\n", "c": "c\n"}
    assert [path.name for path in found.changed.project.iterdir() if path.is_dir()] == ["sub"]
    assert not list((found.changed.project / "sub").iterdir())


@pytest.fixture
def nested(repo: Path, tmp_path: Path) -> Path:
    """A third commit with a submodule `lib`, which has one of its own, `deep`; the fourth moves `lib` by a commit."""
    for name in ("deep", "lib"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "--quiet")
        write(tmp_path / name, **{name: "one\n"})
        commit(tmp_path / name)
    git(tmp_path / "lib", "submodule", "--quiet", "add", "../deep", "deep")
    commit(tmp_path / "lib")
    git(repo, "submodule", "--quiet", "add", f"file://{tmp_path}/lib", "lib")
    git(repo, "submodule", "--quiet", "update", "--init", "--recursive")
    commit(repo)
    write(repo / "lib", lib="two\n")
    commit(repo / "lib")
    commit(repo)
    return repo


OF_SUBMODULES = ("lib/lib", "lib/deep/deep")


def in_submodules(side: Checkout) -> list[str]:
    return [(side.project / name).read_text() for name in OF_SUBMODULES]


def test_submodules_are_checked_out_at_the_commit_of_each_side(nested: Path, tmp_path: Path) -> None:
    for gone in ("lib", "deep"):
        shutil.rmtree(tmp_path / gone)  # all objects are here
    before = state(nested), (nested / ".git" / "config").read_text()
    found = against(nested, "HEAD~1")
    assert in_submodules(found.reference) == ["one\n", "one\n"]
    assert in_submodules(found.changed) == ["two\n", "one\n"]
    (found.reference.project / "lib" / "lib").write_text("edited\n")
    (found.reference.project / "lib" / "deep" / "deep").write_text("edited\n")
    inodes = (found.changed.project / "lib").stat().st_ino
    assert in_submodules(against(nested, "HEAD~1").reference) == ["one\n", "one\n"]
    assert (found.changed.project / "lib").stat().st_ino == inodes
    assert (state(nested), (nested / ".git" / "config").read_text()) == before
    assert not (nested / ".git" / "modules" / "lib" / "worktrees").exists()
    for broken in ("lib/.git/objects/info/alternates", ".git"):
        (found.reference.project / broken).unlink()
        assert in_submodules(against(nested, "HEAD~1").reference) == ["one\n", "one\n"]


def test_what_is_edited_in_a_submodule_is_measured(nested: Path) -> None:
    write(nested / "lib" / "deep", deep="edited\n", new="new\n")
    before = state(nested), state_of_submodule(nested / "lib" / "deep")
    changed = against(nested).changed
    assert changed.label == "working tree (uncommitted changes)"
    assert in_submodules(changed) == ["two\n", "edited\n"]
    assert (changed.project / "lib" / "deep" / "new").read_text() == "new\n"
    assert (state(nested), state_of_submodule(nested / "lib" / "deep")) == before
    assert against(nested).changed == changed
    git(nested / "lib" / "deep", "checkout", "--quiet", ".")
    (nested / "lib" / "deep" / "new").unlink()
    git(nested / "lib", "checkout", "--quiet", "HEAD~1")
    assert in_submodules(against(nested).changed) == ["one\n", "one\n"]


def state_of_submodule(folder: Path) -> str:
    return git(folder, "--no-optional-locks", "status", "--porcelain") + git(folder, "for-each-ref")


def test_a_submodule_that_is_not_checked_out_stays_empty_on_both_sides(nested: Path) -> None:
    git(nested, "submodule", "--quiet", "deinit", "--force", "lib")
    shutil.rmtree(nested / ".git" / "modules")
    found = against(nested, "HEAD~1")
    assert [list((side.project / "lib").iterdir()) for side in (found.reference, found.changed)] == [[], []]


def test_a_commit_of_a_submodule_that_is_not_here_is_named_with_the_command_that_fetches_it(
    nested: Path, tmp_path: Path
) -> None:
    write(tmp_path / "lib", lib="three\n")
    far = commit(tmp_path / "lib")
    git(nested, "update-index", "--cacheinfo", f"160000,{far},lib")
    git(nested, "commit", "--quiet", "-m", "further")
    with pytest.raises(AgainstError, match=rf"submodule lib has no commit {far[:10]} here: fetch it with") as raised:
        against(nested, "HEAD")
    (command,) = re.findall(r"`(.*?)`", str(raised.value))
    subprocess.run(command, shell=True, cwd=nested, check=True, capture_output=True)
    assert in_submodules(against(nested, "HEAD").reference) == ["three\n", "one\n"]


def test_in_ci_a_shallow_submodule_gets_the_commit_that_it_lacks(
    nested: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path / "lib", "config", "uploadpack.allowAnySHA1InWant", "true")
    git(nested / "lib", "push", "--quiet", "origin", "HEAD:refs/heads/two")
    write(tmp_path / "lib", lib="three\n")
    commit(tmp_path / "lib")
    words = ("--quiet", "--depth=1", "--recurse-submodules", "--shallow-submodules", f"file://{nested}", "job")
    git(tmp_path, "clone", *words)
    job = tmp_path / "job"
    before = git(job / "lib", "for-each-ref")
    monkeypatch.setenv("CI", "true")
    assert in_submodules(against(job, "HEAD~1", ci=CI).reference) == ["one\n", "one\n"]
    assert git(job / "lib", "for-each-ref") == before


def test_hooks_are_not_run(repo: Path) -> None:
    for name in ("post-checkout", "pre-commit", "post-commit", "reference-transaction", "post-index-change"):
        hook = repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {name} >> {repo.parent}/ran\nexit 1\n", encoding="utf-8")
        hook.chmod(0o755)
    write(repo, a="dirty\n")
    against(repo, "HEAD~1")
    assert not (repo.parent / "ran").exists()


def test_it_works_within_a_hook_and_without_a_name(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere/i", "GIT_WORK_TREE": "/nowhere"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EMAIL", "")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "nonsense")
    write(repo, a="dirty\n")
    assert files(against(repo).changed)["a"] == "dirty\n"


# ---- what is found again


def made(pair: Pair) -> list[int]:
    return [side.project.stat().st_ino for side in (pair.reference, pair.changed)]


def test_the_same_content_is_found_again(repo: Path) -> None:
    write(repo, a="dirty\n")
    first = against(repo)
    identities = made(first)
    write(repo, a="else\n")
    assert against(repo).changed != first.changed
    write(repo, a="dirty\n")
    assert against(repo) == first
    assert made(first) == identities


def test_a_half_made_worktree_is_made_again(repo: Path) -> None:
    found = against(repo, "HEAD~1")
    stamp = found.reference.project.with_name(found.reference.project.name + ".whole")
    (found.reference.project / ".git").unlink()
    (found.reference.project / "b").unlink()
    git(repo, "worktree", "lock", found.reference.root)
    assert files(against(repo, "HEAD~1").reference)["b"] == "same\n"
    stamp.unlink()
    assert files(against(repo, "HEAD~1").reference)["b"] == "same\n"
    assert stamp.exists()


def released() -> None:
    """As after the end of the process that used worktrees."""
    for stamp in worktrees._used.values():
        os.close(stamp)
    worktrees._used.clear()


def test_a_worktree_that_no_run_uses_serves_the_next_commit(repo: Path) -> None:
    first = against(repo, "HEAD~1")
    write(repo, a="dirty\n", d="new\n")
    held = against(repo, "HEAD~1")
    assert held.reference == first.reference
    assert held.changed.root != first.changed.root, "this process uses the other"
    released()
    write(repo, a="else\n")
    (repo / "d").unlink()
    free = against(repo, "HEAD~1")
    assert free.reference == first.reference
    assert free.changed.root == held.changed.root
    assert files(free.changed) == {"a": "else\n", "b": "same\n", "c": "c\n"}


def test_what_was_built_for_one_commit_is_not_taken_for_another(repo: Path) -> None:
    envs = repo / ".ftgate" / "envs"
    envs.mkdir(parents=True)
    write(repo, a="1\n")
    for number, (name, stays) in enumerate([("x.egg-info/SOURCES.txt", True), ("x.bin", False)]):
        side = against(repo).changed
        write(side.project, **{name.replace("/", "__"): "built"})
        worktrees.note_built(repo, side, envs)
        released()
        write(repo, a=f"then {number}\n")
        again = against(repo).changed
        assert again.root == side.root
        worktrees.remove_extras(repo, again, envs)
        assert (again.project / name).exists() == stays


def test_what_happens_to_a_worktree_never_reaches_the_users_files(repo: Path) -> None:
    found = against(repo, "HEAD~1")
    (found.reference.project / ".git").unlink()  # git finds the user's repository from there
    write(repo, a="edited\n")
    assert files(against(repo, "HEAD~1").reference)["a"] == "one\n"
    assert (repo / "a").read_text() == "edited\n"


def test_a_repository_that_was_moved_or_cleaned_makes_its_worktrees_again(repo: Path, tmp_path: Path) -> None:
    against(repo, "HEAD~1")
    moved = repo.rename(tmp_path / "moved")
    assert files(against(moved, "HEAD~1").reference)["a"] == "one\n"
    before = against(moved, "HEAD~1")
    shutil.rmtree(moved / ".ftgate")
    released()
    assert against(moved, "HEAD~1") == before, "where environments are kept, as in CI, they serve again"
    assert files(before.reference)["a"] == "one\n"
    copied = Path(shutil.copytree(moved, tmp_path / "copied", symlinks=True))
    assert files(against(copied, "HEAD~1").reference)["a"] == "one\n"
    assert git(copied, "status", "--porcelain") + git(moved, "status", "--porcelain") == ""


def test_runs_at_once_make_them_once(repo: Path) -> None:
    write(repo, a="dirty\n")
    with ThreadPoolExecutor(4) as pool:
        pairs = list(pool.map(lambda _: against(repo, "HEAD~1"), range(4)))
    assert len(set(pairs)) == 1
    assert len(git(repo, "worktree", "list").splitlines()) == 3
    assert sorted(path.name for path in (repo / ".ftgate" / "worktrees").iterdir() if path.is_file()) == sorted(
        f"{side.project.name}.whole" for side in (pairs[0].reference, pairs[0].changed)
    )


# ---- revisions


@pytest.mark.parametrize("revision", ["topic", "v1", "v1-annotated", "HEAD~1", "origin/far", "far", "@{-1}", "full"])
def test_a_revision_is_a_branch_a_tag_a_commit_or_a_remotes_branch(repo: Path, revision: str) -> None:
    wanted = git(repo, "rev-parse", "HEAD~1")
    git(repo, "branch", "topic", "HEAD~1")
    git(repo, "tag", "v1", "HEAD~1")
    git(repo, "tag", "-a", "-m", "one", "v1-annotated", "HEAD~1")
    git(repo, "update-ref", "refs/remotes/origin/far", "HEAD~1")
    git(repo, "checkout", "--quiet", "topic")
    git(repo, "checkout", "--quiet", "main")
    revision = wanted if revision == "full" else revision
    reference = against(repo, revision).reference
    assert reference.commit == wanted
    assert reference.label == (wanted[:10] if revision == wanted else f"{revision} ({wanted[:10]})")


def test_an_unknown_revision_names_close_ones_or_says_what_is_taken(repo: Path) -> None:
    git(repo, "branch", "feature-x")
    with pytest.raises(AgainstError, match=r"feature-y: git knows no such revision; did you mean feature-x\?"):
        against(repo, "feature-y")
    for wrong in ("", "-rf", "--all", "zzzzzz", "HEAD:a", "0" * 40, "HEAD~99", "a"):
        with pytest.raises(
            AgainstError, match=r"takes a branch, .*dist:NAME==VERSION, dist:PATH\.whl or python:TARGET"
        ):
            against(repo, wrong)


def test_an_ambiguous_commit_shows_gits_own_words(repo: Path) -> None:
    commits = "".join(
        f"commit refs/heads/many\ncommitter me <me> {number} +0000\ndata 0\n" for number in range(1, 2000)
    )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repo, input=commits.encode(), check=True)
    short = [name[:4] for name in git(repo, "rev-list", "--all").split()]
    twice = next(name for name in short if short.count(name) > 1)
    with pytest.raises(AgainstError, match=f"{twice} is ambiguous"):
        against(repo, twice)


def test_the_same_commit_is_nothing_to_compare(repo: Path) -> None:
    for revision in ("HEAD", "main", git(repo, "rev-parse", "HEAD")):
        with pytest.raises(NothingToCompare, match=r"nothing to compare; .* --ftgate-against HEAD~1"):
            against(repo, revision)
    write(repo, a="dirty\n")
    assert against(repo).reference.commit == git(repo, "rev-parse", "HEAD")


def test_no_repository_no_commit_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    bare = tmp_path / "bare"
    for name in ("none", "empty", "bare"):
        (tmp_path / name).mkdir()
    with pytest.raises(AgainstError, match=r"none to be in a git repository: .*not a git repository"):
        against(tmp_path / "none")
    git(tmp_path / "empty", "init", "--quiet")
    with pytest.raises(AgainstError, match="has no commit yet"):
        against(tmp_path / "empty", "merge-base")
    git(bare, "init", "--quiet", "--bare")
    with pytest.raises(AgainstError, match="bare repository"):
        against(bare)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgainstError, match="needs git, which could not be run"):
        against(tmp_path / "empty")


def test_a_repository_of_somebody_else_is_refused_in_gits_own_words(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(AgainstError, match=r"safe\.directory"):
        against(repo, "HEAD~1")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "*")
    assert files(against(repo, "HEAD~1").reference)["a"] == "one\n"


# ---- the merge base


@pytest.fixture
def clone(repo: Path, tmp_path: Path) -> Path:
    """On a branch of its own, one commit beyond the remote's main, which has gone on since."""
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repo), str(folder))
    git(folder, "checkout", "--quiet", "-b", "topic")
    write(folder, a="three\n")
    commit(folder)
    write(repo, b="gone on\n")
    commit(repo)
    git(folder, "fetch", "--quiet")
    return folder


def test_the_merge_base_with_the_remotes_default_branch(clone: Path) -> None:
    found = against(clone, "merge-base")
    base = git(clone, "rev-parse", "HEAD~1")
    assert found.reference.label == f"merge base with origin/main ({base[:10]})"
    assert files(found.reference) == {"a": "two\n", "b": "same\n", "c": "c\n"}


@pytest.mark.parametrize("variable", ["GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"])
def test_the_merge_base_with_the_branch_that_ci_names(clone: Path, variable: str) -> None:
    git(clone, "update-ref", "refs/remotes/origin/release", "HEAD~2")
    git(clone, "branch", "main-of-old", "HEAD~1")
    found = against(clone, "merge-base", ci={variable: "release"})
    assert found.reference.label == f"merge base with origin/release ({git(clone, 'rev-parse', 'HEAD~2')[:10]})"
    assert "origin/main" in against(clone, "merge-base", ci={variable: ""}).reference.label
    assert "main-of-old" in against(clone, "merge-base", ci={variable: "main-of-old"}).reference.label
    with pytest.raises(AgainstError, match=rf"{variable} says gone, .*git fetch origin gone"):
        against(clone, "merge-base", ci={variable: "gone"})


def test_a_local_branch_that_is_ahead_of_the_remotes_has_what_that_lacks(clone: Path) -> None:
    """The run said that the merge base lacks the tests, and not that they were on main."""

    def ahead(test: str) -> str:
        return worktrees.ahead(clone, against(clone, "merge-base"), test, environ={})

    git(clone, "checkout", "--quiet", "main")
    (clone / "test_new.py").write_text("def test_x(): ...\n")
    commit(clone, "a test")
    assert ahead("test_new.py::test_x") == "", "main is what is compared"
    git(clone, "checkout", "--quiet", "-b", "later")
    (clone / "test_new.py").write_text("def test_x(): ...\n\n\ndef test_y(): ...\n")
    assert ahead("test_new.py::test_x") == "main"
    assert ahead("test_new.py::test_y") == ahead("test_gone.py::test_x") == ""
    git(clone, "branch", "--quiet", "-D", "main")
    assert ahead("test_new.py::test_x") == ""


def test_the_merge_base_where_the_remotes_default_is_not_known(clone: Path) -> None:
    git(clone, "remote", "set-head", "origin", "--delete")
    assert "with origin/main" in against(clone, "merge-base").reference.label
    git(clone, "update-ref", "refs/remotes/origin/topic", "HEAD")
    git(clone, "branch", "--quiet", "--set-upstream-to=origin/topic")  # the branch itself, pushed
    assert "with origin/main" in against(clone, "merge-base").reference.label
    git(clone, "update-ref", "refs/remotes/origin/develop", "HEAD~2")
    git(clone, "branch", "--quiet", "--set-upstream-to=origin/develop")
    assert "with origin/develop" in against(clone, "merge-base").reference.label
    git(clone, "checkout", "--quiet", "--detach")
    assert "with origin/main" in against(clone, "merge-base").reference.label


def test_the_merge_base_of_a_repository_without_a_remote(repo: Path) -> None:
    git(repo, "checkout", "--quiet", "-b", "topic")
    write(repo, a="three\n")
    commit(repo)
    assert "with main" in against(repo, "merge-base").reference.label
    git(repo, "branch", "--quiet", "--move", "main", "trunk")
    with pytest.raises(
        AgainstError,
        match=r"no default branch was found .* --ftgate-against REV, or fetch it with `git fetch origin NAME`$",
    ):
        against(repo, "merge-base")


def test_a_merge_base_that_is_head(repo: Path) -> None:
    pushed = against(repo, "merge-base")  # what was pushed to main is compared with what it was pushed onto
    assert pushed.changed.commit == git(repo, "rev-parse", "HEAD")
    assert pushed.reference.commit == git(repo, "rev-parse", "HEAD~1")
    assert pushed.reference.label.startswith("HEAD~1 (")
    assert "because HEAD is the merge base with main" in pushed.reference.label
    write(repo, a="dirty\n")
    found = against(repo, "merge-base")
    assert found.reference.commit == git(repo, "rev-parse", "HEAD")


def test_no_common_ancestor(clone: Path) -> None:
    git(clone, "checkout", "--quiet", "--orphan", "alone")
    commit(clone)
    with pytest.raises(AgainstError, match="HEAD and origin/main have no common ancestor; name a revision"):
        against(clone, "merge-base")


# ---- a shallow clone


@pytest.fixture
def shallow(repo: Path, tmp_path: Path) -> Path:
    """The last commit of a branch, as CI has it, and main."""
    git(repo, "checkout", "--quiet", "-b", "topic", "HEAD~1")
    write(repo, a="three\n")
    commit(repo)
    git(repo, "checkout", "--quiet", "main")
    folder = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=topic", f"file://{repo}", str(folder))
    return folder


def test_a_shallow_clone_says_how_to_deepen_it(shallow: Path) -> None:
    how = r"shallow.*git fetch --unshallow.*fetch-depth: 0.*GIT_DEPTH: 0"
    for revision in ("main", "merge-base"):
        with pytest.raises(AgainstError, match=how):
            against(shallow, revision)
    lines = {
        name: f"--deepen={n} origin $(git rev-parse HEAD)`" for name, n in {"HEAD~1": 1, "@^2": 1, "@~3": 3}.items()
    }
    for revision, line in {**lines, "1" * 40: f"--depth=1 origin {'1' * 40}`"}.items():
        with pytest.raises(AgainstError, match=re.escape(f"shallow: fetch it with `git fetch {line}")):
            against(shallow, revision)
    with pytest.raises(AgainstError, match=r"GITHUB_BASE_REF says main.*git fetch --unshallow"):
        against(shallow, "merge-base", ci={"GITHUB_BASE_REF": "main"})
    git(shallow, "fetch", "--quiet", "--depth=1", "origin", "main:refs/remotes/origin/main")
    with pytest.raises(AgainstError, match=r"no common ancestor in this clone.*git fetch --unshallow"):
        against(shallow, "merge-base")
    with pytest.raises(AgainstError, match=rf"commit 1111111111 is not in .*`git fetch --depth=1 origin {'1' * 40}`"):
        worktrees.commit_pair(shallow, "1" * 40, shallow / ".ftgate", environ=NO_CI)
    assert files(against(shallow, "origin/main").reference)["a"] == "two\n"
    git(shallow, "fetch", "--quiet", "--unshallow")
    assert files(against(shallow, "HEAD~1").reference)["a"] == "one\n"


def test_in_ci_a_shallow_clone_gets_the_one_commit_that_it_lacks(repo: Path, shallow: Path) -> None:
    git(repo, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(repo, "tag", "-a", "-m", "a tag", "v1", "HEAD~1")
    before = state(shallow)
    first, second = (git(repo, "rev-parse", name) for name in ("main~1", "main"))
    pair = worktrees.commit_pair(shallow, second, shallow / ".ftgate", environ=CI)
    assert files(pair.reference)["a"] == "two\n"
    assert git(shallow, "rev-list", "--count", second) == "1"
    for revision, commit_id in {first: first, "v1": first, "main": second, "origin/main": second}.items():
        assert against(shallow, revision, ci=CI).reference.commit == commit_id
    assert state(shallow) == before
    for revision in ("gone", "mai*"):
        with pytest.raises(AgainstError, match=r"shallow: .*git fetch --"):
            against(shallow, revision, ci=CI)


@pytest.fixture
def job(repo: Path, tmp_path: Path) -> Path:
    """The last of three commits as actions/checkout has it for a pull request: detached, and on no branch."""
    write(repo, a="three\n")
    git(repo, "update-ref", "refs/pull/1/merge", commit(repo))
    git(repo, "reset", "--quiet", "--hard", "HEAD~2")
    job = tmp_path / "job"
    git(tmp_path, "init", "--quiet", str(job))
    git(job, "remote", "add", "origin", f"file://{repo}")
    git(job, "fetch", "--quiet", "--depth=1", "origin", "+refs/pull/1/merge:refs/remotes/pull/1/merge")
    git(job, "checkout", "--quiet", "--detach", "refs/remotes/pull/1/merge")
    return job


@pytest.mark.parametrize(("revision", "text"), [("HEAD~1", "two\n"), ("HEAD^", "two\n"), ("@~2", "one\n")])
def test_in_ci_a_clone_of_one_commit_gets_those_before_it(job: Path, revision: str, text: str) -> None:
    references = git(job, "for-each-ref")
    assert files(against(job, revision, ci=CI).reference)["a"] == text
    assert git(job, "for-each-ref") == references
    with pytest.raises(AgainstError, match=r"HEAD~3: git knows no such revision; --ftgate-against takes"):
        against(job, "HEAD~3", ci=CI)  # all three are here now


def test_elsewhere_the_command_that_the_error_names_gets_them(job: Path) -> None:
    with pytest.raises(AgainstError) as raised:
        against(job, "HEAD~2")
    (command,) = re.findall(r"`(.*?)`", str(raised.value))
    subprocess.run(command, shell=True, cwd=job, check=True, capture_output=True)
    assert files(against(job, "HEAD~2").reference)["a"] == "one\n"


def test_a_push_to_the_default_branch_gets_the_commit_before_it(repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repo}", "job")
    with pytest.raises(NothingToCompare, match="--ftgate-against HEAD~1"):
        against(tmp_path / "job", "merge-base")
    assert files(against(tmp_path / "job", "merge-base", ci=CI).reference)["a"] == "one\n"


def test_a_commit_that_the_remote_does_not_give(repo: Path, shallow: Path) -> None:
    gone = "1" * 40
    how = f"commit 1111111111 is not in .*shallow: .*`git fetch --depth=1 origin {gone}` .*git fetch .*{gone}"
    with pytest.raises(AgainstError, match=how):
        worktrees.commit_pair(shallow, gone, shallow / ".ftgate", environ=CI)
    with pytest.raises(AgainstError, match="which was dropped or never fetched"):
        worktrees.commit_pair(repo, gone, repo / ".ftgate", environ=CI)  # the clone is whole


# ---- a stored baseline's commit


def test_the_pair_of_a_baselines_commit(repo: Path) -> None:
    first = git(repo, "rev-parse", "HEAD~1")
    found = worktrees.commit_pair(repo, first, repo / ".ftgate")
    assert found.reference.label == f"the baseline's commit ({first[:10]})"
    assert files(found.reference)["a"] == "one\n"
    for wrong, said in {"": "names no commit", "1" * 40: "never fetched", f"{first}+": "uncommitted changes"}.items():
        with pytest.raises(AgainstError, match=said):
            worktrees.commit_pair(repo, wrong, repo / ".ftgate")
    with pytest.raises(NothingToCompare):
        worktrees.commit_pair(repo, git(repo, "rev-parse", "HEAD"), repo / ".ftgate")


def test_the_commit_that_brought_a_file_in(repo: Path, tmp_path: Path) -> None:
    second = git(repo, "rev-parse", "HEAD")
    write(repo, **{"d__t[*].json": "{}", "d__tx.json": "{}"})
    third = commit(repo)
    write(repo, **{"d__tx.json": "{} ", "u": "untracked", "i.bin": "ignored"})
    files = ("a", "d/t[*].json", "u", "i.bin", "gone", "d/tx.json")
    commits = [worktrees.introduced(repo, Path(name)) for name in files]
    assert commits == [second, third, "", "", "", ""]
    git(repo, "add", "d/tx.json")
    write(repo, **{"d__tx.json": "{}"})
    assert worktrees.introduced(repo, Path("d/tx.json")) == ""
    (repo / "a").touch()  # git would like to note its new time
    before = state(repo)
    assert worktrees.introduced(repo, repo / "a") == second
    assert state(repo) == before
    assert worktrees.introduced(tmp_path, Path("repo/a")) == ""


def test_a_shallow_clone_does_not_know_who_brought_a_file_in(shallow: Path) -> None:
    assert worktrees.introduced(shallow, Path("b")) == ""
    write(shallow, b="new\n")
    assert worktrees.introduced(shallow, Path("b")) == ""
    last = commit(shallow)
    assert worktrees.introduced(shallow, Path("b")) == last


# ---- another version of a dependency


@pytest.mark.parametrize("wanted", ["numpy==2.1.0", " numpy == 2.1.0rc1 ", "a.b_c-d[x,y]==1!2.0.post1.dev3+local.1"])
def test_a_distribution_is_one_more_install_on_the_same_files(tmp_path: Path, wanted: str) -> None:
    found = worktrees.pair(tmp_path, f"dist:{wanted}", tmp_path / ".ftgate")
    said = wanted.replace(" ", "")
    assert (found.reference.label, found.reference.install, found.reference.commit) == (said, (said,), "")
    assert (found.changed.install, found.changed.commit) == ((), "")
    assert found.reference.root == found.changed.root == str(tmp_path)
    assert installs.steps_of((("-e", "."),), tmp_path, found.reference) == (("-e", ".", said),)
    assert installs.steps_of((), tmp_path, found.reference) == ((said,),)
    assert not (tmp_path / ".ftgate").exists()


@pytest.mark.parametrize(
    ("requires", "installed", "label"),
    [
        (["numpy>=2.2"], ["numpy==2.1.0"], "numpy==2.1.0 in place of numpy>=2.2 (packages=)"),
        (["NumPy[a]==2.2", "x>=1"], ["x>=1", "numpy[a]==2.1.0"], "numpy==2.1.0 in place of NumPy[a]==2.2 (packages=)"),
        (["numpy-stl", "./numpy"], ["numpy-stl", "./numpy", "numpy==2.1.0"], "numpy==2.1.0"),
        ([], ["numpy==2.1.0"], "numpy==2.1.0"),
    ],
)
def test_the_version_asked_for_takes_the_place_of_what_a_test_requires(
    tmp_path: Path, requires: list[str], installed: list[str], label: str
) -> None:
    found = worktrees.pair(tmp_path, "dist:numpy==2.1.0", tmp_path / ".ftgate")
    usual = ("-e", ".", "numpy", "-e", "numpy")
    asked = tuple(requires)
    kept = ("-e", ".", "-e", "numpy", *installed)
    assert installs.steps_of((usual,), tmp_path, found.reference, asked) == (kept,)
    assert installs.described(found.reference, requires) == label
    assert installs.steps_of((usual,), tmp_path, found.changed, asked) == ((*usual, *requires),)
    assert installs.described(found.changed, requires) == "as installed"


def test_a_wheel_takes_the_place_of_the_project(tmp_path: Path) -> None:
    name = "my_package-1.0-py3-none-any.whl"
    write(tmp_path, **{"pyproject.toml": "[project]\nname = 'My.Package'\n", f"old__{name}": ""})
    found = worktrees.pair(tmp_path, f"dist:old/{name}", tmp_path / ".ftgate")
    wheel = f"{tmp_path}/old/{name}"
    assert (found.reference.label, found.reference.install) == (f"old/{name}", (wheel,))
    assert (found.changed.label, found.changed.install) == ("as installed", ())
    install = (("build",), ("--no-build-isolation", "-e", ".[fast]"), ("$", "make"))
    replaced = (("build",), ("--no-build-isolation",), ("$", "make"), (f"{wheel}[fast]",))
    assert installs.steps_of(install, tmp_path, found.reference) == replaced
    assert installs.steps_of((("dist/my_package-2.0-py3-none-any.whl",),), tmp_path, found.reference) == ((wheel,),)
    copy = (("build",), ("--no-build-isolation", ".[fast]"), ("$", "make"))
    assert installs.steps_of(install, tmp_path, found.changed) == copy
    release = worktrees.pair(tmp_path, "dist:my-package==1.0", tmp_path / ".ftgate").reference
    assert installs.steps_of((("-e", "."),), tmp_path, release) == (("my-package==1.0",),)
    of_a_folder = (("--find-links", "wheels", "my-package==2.0"),)
    assert installs.steps_of(of_a_folder, tmp_path, release) == (("--find-links", "wheels", "my-package==1.0"),)
    with pytest.raises(AgainstError, match=r"dist:new/x\.whl: .*new/x\.whl is no wheel"):
        worktrees.pair(tmp_path, "dist:new/x.whl", tmp_path / ".ftgate")


# ---- another interpreter


def test_another_interpreter_runs_the_same_files(tmp_path: Path, executables: dict[str, str]) -> None:
    found = worktrees.pair(tmp_path, "python:3.14t[gil=on]", tmp_path / ".ftgate")
    assert (found.reference.python, found.reference.install, found.reference.commit) == ("3.14t[gil=on]", (), "")
    assert re.fullmatch(r"3\.14\.\d+t\[gil=on\]", found.reference.label)
    assert (found.changed.python, found.changed.commit) == ("", "")
    assert found.reference.root == found.changed.root == str(tmp_path)
    path = executables["3.14"]
    assert worktrees.pair(tmp_path, f"python:{path}", tmp_path).reference.label.endswith(f" ({path})")


VERSIONS = ("", "numpy", "numpy==", "==1.0", "numpy>=2", "numpy==2.*", "num py==2", "numpy==2 --pre", "-x==1", "x==y")


@pytest.mark.parametrize(
    ("wanted", "fix"),
    [
        *(
            (f"dist:{each}", r"is not NAME==VERSION with one exact version, as in dist:numpy==2\.1\.0")
            for each in VERSIONS
        ),
        ("python:3.14.99t", "no interpreter found (?s:.*)fix: run `uv python install 3.14.99t`"),
        ("python:/no/such/python", "no such file: /no/such/python; give the path of an executable"),
        ("python:3.12", "is too old: targets are CPython 3.13 and newer"),
        ("python:3.14[gil=off]", "gil=off needs a free-threaded build .*: use the target 3.14t"),
        ("python:3.14[jit=on]", "was built without the JIT"),
    ],
)
def test_what_cannot_be_the_reference_is_an_error_with_a_fix(tmp_path: Path, wanted: str, fix: str) -> None:
    with pytest.raises(AgainstError, match=f"--ftgate-against {re.escape(wanted)}(?s:.)*{fix}"):
        worktrees.pair(tmp_path, wanted, tmp_path / ".ftgate")


def test_their_environments_have_names_of_one_length(repo: Path, interpreter: Interpreter) -> None:
    distribution = worktrees.pair(repo, "dist:numpy==2.1.0", repo / ".ftgate")
    for found in (distribution, against(repo, "HEAD~1")):
        folders = {
            str(
                environments.environment_folder(
                    interpreter,
                    root=repo / ".ftgate" / "envs",
                    project=side.project,
                    install=installs.steps_of((("-e", "."),), repo, side),
                )
            )
            for side in (found.reference, found.changed)
        }
        assert len(folders) == 2
        assert len({len(folder) for folder in folders}) == 1


def test_the_version_that_an_environment_has(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.14t" / "site-packages"
    meta = site / "A_b.c-1.5.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: A_b.c\nVersion: 1.5\n", encoding="utf-8")
    python = tmp_path / "bin" / "python"
    assert worktrees.installed_version(python, "a-b-c==2.0") == "1.5"
    assert worktrees.installed_version(python, "a-b") == ""


# ---- pruning


def aged(repo: Path, name: str, age_s: float) -> None:
    stamp = repo / ".ftgate" / "worktrees" / f"{name}.whole"
    now_s = stamp.stat().st_mtime
    os.utime(stamp, (now_s - age_s, now_s - age_s))


def several(repo: Path, count: int) -> list[Path]:
    """Worktrees of so many uncommitted states that no run uses, the first one the oldest; HEAD is the reference."""
    sides = []
    for number in range(count):
        write(repo, a=f"{number}\n")
        sides.append(against(repo).changed)
    for number, side in enumerate(sides):
        aged(repo, side.project.name, (count - number) * 10_000)
    released()
    return [side.project for side in sides]


def prune(repo: Path) -> None:
    worktrees.prune(repo, repo / ".ftgate")


def test_the_worktrees_used_last_stay(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = several(repo, 4)
    user = repo.parent / "users"
    git(repo, "worktree", "add", "--quiet", str(user), "-b", "users")
    monkeypatch.setattr(worktrees, "KEPT_WORKTREES", 3)
    prune(repo)
    assert [tree.exists() for tree in found] == [False, False, True, True]
    assert len(git(repo, "worktree", "list").splitlines()) == 5
    assert not list((repo / ".ftgate" / "worktrees").glob(f"{found[0].name}*"))


def test_what_a_run_uses_stays_however_many_and_old_it_is(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run of tests that were recorded at many commits would make some of them again each time."""
    monkeypatch.setattr(worktrees, "KEPT_WORKTREES", 0)
    oldest, *others = several(repo, 3)
    write(repo, a="0\n")
    assert against(repo).changed.project == oldest
    aged(repo, oldest.name, 100_000)
    prune(repo)
    assert [tree.exists() for tree in (oldest, *others)] == [True, False, False]
    released()
    prune(repo)
    assert not oldest.exists()


@pytest.fixture
def interpreter() -> Interpreter:
    return describe.describe(getattr(sys, "_base_executable", sys.executable), found="path")


def test_the_environments_of_a_pruned_worktree_go_with_it(
    repo: Path, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = repo / ".ftgate" / "envs"
    pair = against(repo, "HEAD~1")
    old, new, own = (
        environments.ensure_environment(interpreter, root=envs, project=project, install=()).parent.parent
        for project in (pair.reference.project, pair.changed.project, repo)
    )
    for side in (pair.reference, pair.changed):
        worktrees.note_built(repo, side, envs)
    released()
    aged(repo, pair.reference.project.name, 10_000)
    monkeypatch.setattr(worktrees, "KEPT_WORKTREES", 1)
    with filelock.FileLock(f"{old}.lock"):  # another run is at it
        prune(repo)
    assert not pair.reference.project.exists()
    assert old.exists()
    prune(repo)
    assert (old.exists(), new.exists(), own.exists()) == (False, True, True)
    assert [path.name for path in envs.glob("*.built")] == [f"{pair.changed.project.name}.built"]


# ---- a test on a side


def test_a_path_is_mapped_where_it_is_below_the_root(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (tmp_path / "link").symlink_to(old)
    for path, result in {
        str(old): str(new),
        str(old / "a" / "b"): str(new / "a" / "b"),
        str(tmp_path / "link" / "a"): str(new / "a"),
        f"{old}er/a": f"{old}er/a",
        "a": "a",
    }.items():
        assert git_module.mapped(path, old, new) == result
    assert git_module.mapped(str(old / "a"), tmp_path / "link", new) == str(new / "a")


def test_a_spec_moves_with_its_import_path(tmp_path: Path) -> None:
    old, new = tmp_path / "top" / "one", tmp_path / "trees" / "123" / "one"
    spec = Spec(
        nodeid="tests/test_x.py::test_x",
        source=Source(
            path=str(old / "tests" / "test_x.py"),
            line=3,
            module="test_x",
            qualname="test_x",
            sys_path=(str(old / "tests"), str(tmp_path / "top" / "libs"), "/elsewhere"),
        ),
        body="worker",
        executors=(Executor(kind="threads"),),
        workers=(1,),
        reuse="fresh",
    )
    moved = worktrees.relocated(spec, old, Checkout(label="", commit="1", root=str(new), prefix="one/"))
    assert moved.source.path == str(new / "tests" / "test_x.py")
    assert moved.source.sys_path == (str(new / "tests"), str(new.parent / "libs"), "/elsewhere")
    assert msgspec.structs.replace(moved, source=spec.source) == spec


def test_install_arguments_hold_on_a_side(tmp_path: Path) -> None:
    top, tree = tmp_path / "top", tmp_path / "deep" / "down" / "tree"
    for folder in (top / "one", top / "libs", tree / "one", tree / "libs", tmp_path / "sibling"):
        folder.mkdir(parents=True)
    side = Checkout(label="", commit="1", root=str(tree / "one"), prefix="one/", install=("x==1",))
    asked = (
        "-e",
        ".[fast]",
        "--no-deps",
        "../libs",
        "../../sibling",
        f"{top}/one[x]",
        f"--editable={top}/libs",
        "numpy>2",
    )
    moved = (
        *("-e", ".[fast]", "--no-deps", "../libs", str(tmp_path / "sibling"), f"{tree}/one[x]"),
        *(f"--editable={tree}/libs", "numpy>2", f"a @ file://{tree}/libs"),
    )
    command = ("$", f"make -C {top}")
    last = (*asked, f"a @ file://{top}/libs")
    assert installs.steps_of((command, last), top / "one", side) == (command, (*moved, "x==1"))
    assert installs.steps_of((last, command), top / "one", side) == (moved, command, ("x==1",))


def test_whether_a_side_has_the_test(repo: Path) -> None:
    write(repo, **{"test_x.py": "def test_new(worker): ...\n"})
    found = against(repo)
    assert worktrees.lacks(found.reference, "test_x.py::test_new")
    assert not worktrees.lacks(found.changed, "test_x.py::test_new")
    assert worktrees.lacks(found.changed, "test_x.py::test_else")


def test_what_git_ignores_is_on_neither_side_and_a_hint_says_so(repo: Path) -> None:
    write(repo, a="dirty\n", **{"data__corpus.bin": "x", "src__pkg__fast.cpython-314.so.bin": "x", "gen.bin": "x"})
    side = against(repo).changed
    for detail, name in {
        f"FileNotFoundError: [Errno 2] No such file or directory: '{side.root}/data/corpus.bin'": "data/corpus.bin",
        "ModuleNotFoundError: No module named 'pkg.fast'": "src/pkg/fast.cpython-314.so.bin",
        "No module named 'gen'": "gen.bin",
        "cc1: fatal error: data/corpus.bin: No such file or directory": "data/corpus.bin",
        "corpus.c:3:10: fatal error: gen.bin: No such file": "gen.bin",
    }.items():
        hint = worktrees.ignored_hint(detail, side, repo)
        assert hint.startswith(
            f"{name} is in the working tree but not in git, so neither side of --ftgate-against has it"
        )
        assert "\n" not in hint
    for detail in (
        f"'{side.root}/never'",
        "cannot open ../gen.bin or /gen.bin",
        f"File '{side.root}/a', line 1",
        "No module named 'numpy'",
        "ValueError",
    ):
        assert worktrees.ignored_hint(detail, side, repo) == ""


def test_pytest_collects_nothing_from_the_worktrees(repo: Path) -> None:
    write(repo, **{"test_x.py": "def test_x(): ...\n", "pytest.ini": "[pytest]\n"})
    found = against(repo)
    assert (found.changed.project / "test_x.py").exists()
    words = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:ftgate", "--rootdir=."]
    done = subprocess.run([sys.executable, *words], cwd=repo, capture_output=True, text=True)
    assert [line for line in done.stdout.splitlines() if "::" in line] == ["test_x.py::test_x"]
