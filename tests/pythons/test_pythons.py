"""Targets, finding and describing interpreters, and the parts of provisioning that need no network."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import filelock
import msgspec
import pytest
from report_by_hand import GIL

from pytest_ftgate import cli
from pytest_ftgate.model import Interpreter, Settings, Target
from pytest_ftgate.model.targets import TargetError, parse_target
from pytest_ftgate.pythons import (
    InterpreterBroken,
    InterpreterNotFound,
    build_from_source,
    build_key,
    describe,
    environment_variables,
    find_interpreter,
    provide,
    settings_unsupported,
)
from pytest_ftgate.pythons.build import missing_modules
from pytest_ftgate.pythons.describe import MARKER, scrubbed_environment
from pytest_ftgate.pythons.provide import InterpreterSource
from pytest_ftgate.pythons.source_package import (
    SourcePackage,
    SourceUnavailable,
    extract,
    fetch,
    known_package,
    mirrors,
)

OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def an_interpreter(**changes: object) -> Interpreter:
    built = msgspec.structs.replace(
        GIL,
        pgo=True,
        shared=False,
        compiler="GCC 12.2.0",
        config_args="'--prefix=/opt/python' '--enable-optimizations'",
        build="gcc 12.2.0, PGO, no LTO, found on PATH",
        start_methods=(),
    )
    return msgspec.structs.replace(built, **changes)


def quiet(_: str) -> None:
    """Show no progress."""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def real(spec: str) -> Interpreter:
    try:
        return find_interpreter(parse_target(spec))
    except InterpreterNotFound as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("spec", "request_", "settings"),
    [
        ("3.14", "3.14", Settings()),
        ("3.14t", "3.14t", Settings()),
        ("3.14.7", "3.14.7", Settings()),
        ("3.15.0rc1t", "3.15.0rc1t", Settings()),
        ("3.14t[gil=on]", "3.14t", Settings(gil="on")),
        ("3.14[jit=on]", "3.14", Settings(jit="on")),
        ("3.14[switchinterval=0.1ms]", "3.14", Settings(switchinterval_ns=100_000)),
        ("3.14t[gil=on, switchinterval=5us]", "3.14t", Settings(gil="on", switchinterval_ns=5_000)),
        ("/opt/p/bin/python[gil=off]", "/opt/p/bin/python", Settings(gil="off")),
        ("./python", "./python", Settings()),
    ],
)
def test_parse_target_splits_interpreter_and_settings(spec: str, request_: str, settings: Settings) -> None:
    assert parse_target(spec) == Target(spec=spec, request=request_, settings=settings)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "names no interpreter"),
        ("3", "neither a version"),
        ("python3.14", "neither a version"),
        ("3.12", "too old"),
        ("2.7", "too old"),
        ("3.14[]", "unknown setting ''"),
        ("3.14[speed=9]", "unknown setting 'speed=9'"),
        ("3.14[gil]", "unknown setting 'gil'"),
        ("3.14t[gil=maybe]", "write gil=on or gil=off"),
        ("3.14t[gil=on,gil=off]", "gil is set twice"),
        ("3.14[switchinterval=5]", "is not a duration"),
        ("3.14[switchinterval=-5ms]", "is not a duration"),
        ("3.14[switchinterval=10ns]", "too short"),
    ],
)
def test_parse_target_names_the_spec_and_a_fix(spec: str, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_target(spec)
    assert said in str(caught.value)
    assert repr(spec) in str(caught.value)


def test_environment_variables_hold_only_what_is_set() -> None:
    assert environment_variables(Settings(switchinterval_ns=100_000)) == {}
    assert environment_variables(Settings(gil="off", jit="on")) == {"PYTHON_GIL": "0", "PYTHON_JIT": "1"}


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        ({}, Settings(gil="on"), None),
        ({}, Settings(gil="off"), "3.14t"),
        ({}, Settings(jit="on"), "--enable-experimental-jit"),
        ({}, Settings(jit="off"), None),
        ({"jit_available": True}, Settings(jit="on"), None),
        ({}, Settings(switchinterval_ns=1_000), None),
        ({"free_threaded": True, "gil_enabled": False}, Settings(gil="on"), None),
        ({"free_threaded": True, "gil_enabled": False}, Settings(gil="off"), None),
        ({"free_threaded": True, "gil_enabled": False}, Settings(switchinterval_ns=1_000), "no effect without the GIL"),
        ({"free_threaded": True, "gil_enabled": False}, Settings(gil="on", switchinterval_ns=1_000), None),
    ],
)
def test_settings_unsupported_gives_the_reason(
    changes: dict[str, object], settings: Settings, said: str | None
) -> None:
    reason = settings_unsupported(an_interpreter(**changes), settings)
    assert (reason is None) if said is None else (reason is not None and said in reason)


def test_build_key_reads_well() -> None:
    key = build_key(an_interpreter(free_threaded=True, gil_enabled=False))
    assert key.startswith("cpython-3.14.7t-nogil-")
    assert build_key(an_interpreter(jit_available=True, jit_enabled=True)).startswith("cpython-3.14.7-gil-jit-")


@pytest.mark.parametrize(
    "changes",
    [
        {"executable": "/home/me/bin/python3.14"},
        {"found": "uv", "build": "another line"},
        {"config_args": "'--enable-optimizations' '--prefix=/home/me' '--libdir=/home/me/lib'"},
        {"config_args": "'--prefix=/x' '--enable-optimizations' 'CFLAGS=-ffile-prefix-map=/build/a=.'"},
    ],
)
def test_build_key_does_not_hang_on_the_place(changes: dict[str, object]) -> None:
    assert build_key(an_interpreter(**changes)) == build_key(an_interpreter())


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "3.14.8"},
        {"compiler": "GCC 13.1.0"},
        {"pgo": False},
        {"lto": True},
        {"shared": True},
        {"debug": True},
        {"gil_enabled": False},
        {"config_args": "'--prefix=/opt/python' '--enable-optimizations' 'CFLAGS=-O3 -march=native'"},
    ],
)
def test_build_key_changes_with_what_changes_speed(changes: dict[str, object]) -> None:
    assert build_key(an_interpreter(**changes)) != build_key(an_interpreter())


def test_describe_tells_the_running_interpreter() -> None:
    told = describe(sys.executable, found="path")
    assert told.executable == sys.executable
    assert told.version == ".".join(map(str, sys.version_info[:3]))
    assert told.implementation == sys.implementation.name
    assert "spawn" in told.start_methods
    assert told.build.endswith("given as a path") or "built from" in told.build


def test_describe_is_free_of_the_callers_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert describe(sys.executable, found="path").implementation == sys.implementation.name
    assert not any(name.startswith("PYTHON") for name in scrubbed_environment())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\necho 'shim: no such version' >&2\nexit 127\n", "shim: no such version"),
        ("#!/bin/sh\nexit 0\n", "did not describe itself"),
        ("#!/bin/sh\nkill -9 $$\n", "signal 9"),
        ("#!/no/such/shell\n", "does not start"),
        ('#!/bin/sh\nfor last; do :; done; echo \'{"version": 3}\' > "$last"\n', "did not describe itself"),
    ],
)
def test_a_broken_interpreter_is_an_error_that_names_it(tmp_path: Path, script: str, said: str) -> None:
    path = executable(tmp_path / "python3.14", script)
    with pytest.raises(InterpreterBroken) as caught:
        describe(str(path), found="PATH")
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_a_hanging_interpreter_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[describe.__module__], "TIMEOUT_S", 0.2)
    path = executable(tmp_path / "python3.14", "#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(InterpreterBroken, match="did not describe itself within"):
        describe(str(path), found="PATH")


def test_a_marker_beside_the_interpreter_says_how_it_was_built(tmp_path: Path) -> None:
    facts = (
        '{"executable": "x", "base_executable": "x", "base_prefix": "PREFIX", "version": "3.14.7",'
        '"implementation": "cpython", "free_threaded": true, "gil_enabled": false, "jit_available": false,'
        '"jit_enabled": false, "pgo": false, "lto": false, "shared": false, "debug": false, "compiler": "GCC 12.2.0",'
        '"config_args": "", "start_methods": ["forkserver", "spawn", "fork"]}'
    ).replace("PREFIX", str(tmp_path))
    script = f"#!/bin/sh\nfor last; do :; done; cat > \"$last\" <<'END'\n{facts}\nEND\n"
    path = executable(tmp_path / "bin" / "python3.14t", script)
    (tmp_path / MARKER).write_text('{"line": "built from the source package 3.14.7", "missing_modules": ["ssl"]}')
    told = describe(str(path), found="cache: built from source")
    assert told.build == "gcc 12.2.0, no PGO, no LTO, built from the source package 3.14.7"
    assert told.start_methods == ("fork", "forkserver", "spawn")
    assert missing_modules(tmp_path) == ("ssl",)
    assert missing_modules(tmp_path / "bin") == ()


def test_find_by_version_gives_the_build_that_was_asked() -> None:
    plain, threaded = real("3.14"), real("3.14t")
    assert (plain.free_threaded, plain.gil_enabled) == (False, True)
    assert (threaded.free_threaded, threaded.gil_enabled) == (True, False)
    assert plain.version.startswith("3.14.")
    assert build_key(plain) != build_key(threaded)


def test_settings_are_applied_when_an_interpreter_is_described() -> None:
    threaded = real("3.14t[gil=on]")
    assert threaded.free_threaded
    assert threaded.gil_enabled
    assert build_key(threaded) != build_key(real("3.14t"))


def test_a_setting_that_the_build_cannot_have_leaves_it_described() -> None:
    plain = real("3.14[gil=off]")
    assert plain.gil_enabled
    assert settings_unsupported(plain, Settings(gil="off"))


def test_find_passes_over_dead_shims_and_wrong_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = real("3.14t")
    plain = real("3.14")
    dead = executable(tmp_path / "a" / "python3.14t", "#!/bin/sh\nexit 127\n")
    wrong = tmp_path / "b" / "python3.14t"
    wrong.parent.mkdir()
    wrong.symlink_to(plain.executable)
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(dead.parent), str(wrong.parent), str(Path(good.executable).parent)])
    )
    assert find_interpreter(parse_target("3.14t")).executable == good.executable


def test_find_measures_the_interpreter_behind_a_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = real("3.14")
    shim = executable(tmp_path / "python3.14", f'#!/bin/sh\nexec "{good.executable}" "$@"\n')
    monkeypatch.setenv("PATH", str(shim.parent))
    assert find_interpreter(parse_target("3.14")).executable == good.executable


def test_find_looks_into_our_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = real("3.14t")
    shim = f'#!/bin/sh\nexec "{good.executable}" "$@"\n'
    executable(tmp_path / "pythons" / "built" / "cpython-3.14.7-freethreaded" / "bin" / "python3.14t", shim)
    executable(tmp_path / "pythons" / "built" / ".unfinished" / "bin" / "python3.14t", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_interpreter(parse_target("3.14t"), cache=tmp_path)
    assert found.found == "cache: built from source"


def test_no_match_names_the_skipped_interpreters_and_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = executable(tmp_path / "python3.99", "#!/bin/sh\necho 'no 3.99 here' >&2\nexit 127\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InterpreterNotFound) as caught:
        find_interpreter(parse_target("3.99"), cache=tmp_path)
    text = str(caught.value)
    assert f"{dead} does not run (exit code 127): no 3.99 here" in text
    assert "ftgate pythons --target 3.99" in text
    assert "uv python install 3.99" in text


def test_find_by_path_checks_the_file_and_its_age(tmp_path: Path) -> None:
    with pytest.raises(InterpreterNotFound, match="no such file"):
        find_interpreter(parse_target(f"{tmp_path}/python"))
    if sys.version_info < (3, 13):
        with pytest.raises(InterpreterNotFound, match=r"CPython 3\.13 and newer"):
            find_interpreter(parse_target(sys.executable))
    threaded = real("3.14t")
    by_path = find_interpreter(parse_target(f"{threaded.executable}[gil=on]"))
    assert (by_path.found, by_path.gil_enabled) == ("path", True)


def test_provide_says_what_is_missing_and_does_not_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = provide(parse_target("3.99"), source=InterpreterSource.PATH, cache=tmp_path)
    assert outcome.interpreter is None
    assert "fix:" in outcome.notes[0]
    outcome = provide(parse_target("3.99"), cache=tmp_path)
    assert "no interpreter found for the target '3.99'" in outcome.notes[0]
    assert "ftgate pythons" not in "".join(outcome.notes)  # which is what runs
    outcome = provide(parse_target("3.99"), source=InterpreterSource.BUILD, cache=tmp_path)
    assert outcome.interpreter is None
    assert outcome.notes == ("no source package of CPython 3.99 is known; 3.14 and 3.13 are",)


def test_building_without_a_compiler_names_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    outcome = provide(parse_target("3.14"), source=InterpreterSource.BUILD, cache=tmp_path)
    assert outcome.interpreter is None
    assert "without a C compiler and make: apt install build-essential" in outcome.notes[0]


def test_mirrors_come_from_apts_own_files(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://commented.example/debian stable main\n"
        "deb [arch=amd64 signed-by=/k] http://one.example/debian/ stable main contrib # note\n"
        "deb http://one.example/debian stable-updates main\n"
        "deb http://one.example/debian-security stable-security main\n"
        "deb http://vendor.example/apt stable nonfree\n",
        encoding="utf-8",
    )
    (tmp_path / "sources.list.d" / "more.sources").write_text(
        "Types: deb\n# a comment\nURIs: https://two.example/debian\n  https://three.example/debian\n"
        "Suites: stable\nComponents: main\n\n"
        "Enabled: no\nTypes: deb\nURIs: https://off.example/debian\nSuites: stable\nComponents: main\n",
        encoding="utf-8",
    )
    (tmp_path / "sources.list.d" / "old.list.save").write_text("deb http://saved.example/debian stable main\n")
    assert mirrors(tmp_path) == (
        "http://one.example/debian",
        "https://two.example/debian",
        "https://three.example/debian",
    )


@pytest.fixture
def package(tmp_path: Path) -> SourcePackage:
    """A source package on a mirror that is a folder, as apt's `file:` sources are."""
    tree = tmp_path / "Python-3.14.99"
    tree.mkdir()
    executable(tree / "configure", "#!/bin/sh\necho no way to configure\nexit 1\n")
    pool = tmp_path / "mirror" / "pool"
    pool.mkdir(parents=True)
    with tarfile.open(pool / "python.tar.xz", "w:xz") as archive:
        archive.add(tree, tree.name)
    digest = hashlib.sha256((pool / "python.tar.xz").read_bytes()).hexdigest()
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt" / "sources.list").write_text(f"deb file://{tmp_path}/mirror stable main\n", encoding="utf-8")
    return SourcePackage(version="3.14.99", pool="pool/python.tar.xz", sha256=digest, folder=tree.name)


def test_fetch_verifies_keeps_and_unpacks(package: SourcePackage, tmp_path: Path) -> None:
    steps: list[str] = []
    tarball = fetch(package, tmp_path / "sources", steps.append, apt=tmp_path / "apt")
    assert any("MiB" in step for step in steps)
    shutil.rmtree(tmp_path / "mirror")
    assert fetch(package, tmp_path / "sources", steps.append, apt=tmp_path / "apt") == tarball
    extract(tarball, tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / package.folder / "configure").is_file()


def test_fetch_refuses_a_wrong_checksum_and_leaves_nothing(package: SourcePackage, tmp_path: Path) -> None:
    wrong = msgspec.structs.replace(package, sha256="0" * 64)
    with pytest.raises(SourceUnavailable, match="SHA-256"):
        fetch(wrong, tmp_path / "sources", quiet, apt=tmp_path / "apt")
    assert list((tmp_path / "sources").iterdir()) == []


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [("MOST_BYTES", 100, "has more than"), ("DOWNLOAD_S", -1.0, "did not send the file within")],
)
def test_a_download_ends_at_its_limits(
    limit: str, value: float, said: str, package: SourcePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"pytest_ftgate.pythons.source_package.{limit}", value)
    with pytest.raises(SourceUnavailable, match=said):
        fetch(package, tmp_path / "sources", quiet, apt=tmp_path / "apt")
    assert list((tmp_path / "sources").iterdir()) == []


def test_fetch_without_a_mirror_says_where_to_put_the_file(package: SourcePackage, tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match=r"no package mirror.*put the file at"):
        fetch(package, tmp_path / "sources", quiet, apt=tmp_path / "nowhere")


def test_the_known_source_package_answers_its_prefixes() -> None:
    package = known_package("3.14")
    assert package is not None
    assert known_package(package.version) == package
    assert known_package("3.1") is None


def test_an_interrupted_build_leaves_no_prefix(
    tmp_path: Path, package: SourcePackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("make") is None or shutil.which("cc") is None:
        pytest.skip("the build stops earlier where there is no compiler: apt install build-essential")
    monkeypatch.setattr("pytest_ftgate.pythons.source_package.KNOWN", (package,))
    monkeypatch.setattr("pytest_ftgate.pythons.source_package.mirrors", lambda _: (f"file://{tmp_path}/mirror",))
    cache = tmp_path / "cache"
    outcome = provide(parse_target("3.14"), source=InterpreterSource.BUILD, cache=cache)
    assert outcome.interpreter is None
    assert "configuring failed (exit code 1)" in outcome.notes[0]
    assert outcome.notes[0].endswith("no way to configure")

    def interrupt(step: str) -> None:
        if "configuring" in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        provide(parse_target("3.14"), source=InterpreterSource.BUILD, cache=cache, progress=interrupt)
    assert not (cache / "pythons" / "built").exists()
    assert list((cache / "build").iterdir()) == []


def test_a_build_waits_for_another_and_says_so(tmp_path: Path) -> None:
    done = tmp_path / "pythons" / "built" / "cpython-3.14.7-gil" / MARKER
    done.parent.mkdir(parents=True)
    done.write_text("{}", encoding="utf-8")
    lock = filelock.FileLock(tmp_path / "build.lock")
    lock.acquire()
    steps: list[str] = []

    def let_go(step: str) -> None:
        steps.append(step)
        lock.release()

    for _ in range(2):
        built = build_from_source("3.14", free_threaded=False, cache=tmp_path, jobs=1, pgo=False, progress=let_go)
        assert built == done.parent / "bin" / "python3.14"
    assert steps == ["waiting for another build to end"]


def test_the_cli_reports_usage_errors_with_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_ftgate.cli", "pythons", "--target", "3.14[speed=9]"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "unknown setting 'speed=9'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_cli_exits_with_3_where_a_named_target_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pythons", "--source=path", "--target=3.99"]) == 3
    assert "WARNING: no interpreter for 3.99" in capsys.readouterr().out
