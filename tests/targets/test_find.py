"""Targets, finding and describing interpreters, and the parts of provisioning that need no network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from project import executable
from report_by_hand import GIL

from pytest_ftgate.model.spec import Interpreter, Settings, Target, TargetError, parse_target
from pytest_ftgate.targets import find
from pytest_ftgate.targets.describe import (
    Facts,
    InterpreterBroken,
    build_key,
    collect,
    describe,
    environment_variables,
    scrubbed_environment,
    settings_unsupported,
)
from pytest_ftgate.targets.find import InterpreterNotFound, find_interpreter

OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def an_interpreter(**changes: object) -> Interpreter:
    built = msgspec.structs.replace(
        GIL,
        pgo=True,
        shared=False,
        compiler="GCC 12.2.0",
        config_args="'--prefix=/opt/python' '--enable-optimizations'",
        build="gcc 12.2.0, PGO, no LTO",
        start_methods=(),
    )
    return msgspec.structs.replace(built, **changes)


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
        ("echo 'shim: no such version' >&2\nexit 127", "shim: no such version"),
        ("exit 0", "did not describe itself"),
        ("kill -9 $$", "signal 9"),
        ("#!/no/such/shell\n", "does not start"),
        ('for last; do :; done; echo \'{"version": 3}\' > "$last"', "did not describe itself"),
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
    path = executable(tmp_path / "python3.14", "exec sleep 60")
    with pytest.raises(InterpreterBroken, match="did not describe itself within"):
        describe(str(path), found="PATH")


def test_an_interpreter_is_started_once_for_each_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threaded = real("3.14t")
    starts = tmp_path / "starts"
    shim = executable(tmp_path / "python3.14t", f'echo >> {starts}\nexec "{threaded.executable}" "$@"')
    monkeypatch.setenv("PATH", str(shim.parent))
    for spec in ("3.14t", "3.14t", f"{shim}[gil=on]", f"{shim}[gil=on]"):
        find_interpreter(parse_target(spec))
    assert len(starts.read_text(encoding="utf-8").splitlines()) == 2


def test_a_description_says_how_it_was_built(tmp_path: Path) -> None:
    facts = (
        '{"executable": "x", "base_executable": "x", "version": "3.14.7",'
        '"implementation": "cpython", "free_threaded": true, "gil_enabled": false, "jit_available": false,'
        '"jit_enabled": false, "pgo": false, "lto": false, "shared": false, "debug": false, "compiler": "GCC 12.2.0",'
        '"config_args": "", "start_methods": ["forkserver", "spawn", "fork"]}'
    )
    script = f"for last; do :; done; cat > \"$last\" <<'END'\n{facts}\nEND\n"
    told = describe(str(executable(tmp_path / "bin" / "python3.14t", script)), found="path")
    assert told.build == "gcc 12.2.0, no PGO, no LTO"
    assert told.start_methods == ("fork", "forkserver", "spawn")


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
    dead = executable(tmp_path / "a" / "python3.14t", "exit 127")
    wrong = tmp_path / "b" / "python3.14t"
    wrong.parent.mkdir()
    wrong.symlink_to(plain.executable)
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(dead.parent), str(wrong.parent), str(Path(good.executable).parent)])
    )
    assert find_interpreter(parse_target("3.14t")).executable == good.executable


def test_find_measures_the_interpreter_behind_a_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = real("3.14")
    shim = executable(tmp_path / "python3.14", f'exec "{good.executable}" "$@"')
    monkeypatch.setenv("PATH", str(shim.parent))
    assert find_interpreter(parse_target("3.14")).executable == good.executable


def test_what_uv_installed_is_found_the_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = f'exec "{real("3.14t").executable}" "$@"'
    builds = [tmp_path / f"cpython-3.14.{patch}+freethreaded-linux" / "bin" / "python3.14t" for patch in (9, 10)]
    executable(builds[0], "exit 1")
    executable(builds[1], shim)
    executable(tmp_path / ".unfinished" / "bin" / "python3.14t", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
    collected: list[str] = []

    def noted(path: str) -> Facts:
        collected.append(path)
        return collect(path)

    monkeypatch.setattr(find, "collect", noted)
    assert find_interpreter(parse_target("3.14t")).free_threaded
    assert collected == [str(builds[1])]


def test_no_match_names_the_skipped_interpreters_and_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = executable(tmp_path / "python3.99", "echo 'no 3.99 here' >&2\nexit 127")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InterpreterNotFound) as caught:
        find_interpreter(parse_target("3.99"))
    text = str(caught.value)
    assert f"{dead} does not run (exit code 127): no 3.99 here" in text
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


def test_the_cli_reports_usage_errors_with_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_ftgate.cli", "doctor", "--python", "3.14[speed=9]"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "unknown setting 'speed=9'" in done.stderr
    assert "Traceback" not in done.stderr
