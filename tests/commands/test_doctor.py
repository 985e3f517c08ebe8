"""`ftgate doctor`: its figures, its text, its JSON and its exit codes."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import msgspec
import pytest
from project import executable
from report_by_hand import FREE_THREADED

from golden import check_golden
from pytest_ftgate.cli import build_parser
from pytest_ftgate.features import doctor
from pytest_ftgate.features.doctor import Diagnosis, Problem, TargetState, diagnose, read_probes, to_text
from pytest_ftgate.model.report import Machine
from pytest_ftgate.model.spec import TargetError

MACHINE = Machine(
    fingerprint="linux-x86_64-some-cpu-2c-12345678",
    system="Linux",
    arch="x86_64",
    cpu="Some CPU",
    cores=2,
    kernel="6.18.44",
    governor="powersave",
    cpu_quota=1.5,
    memory_limit_bytes=3 * 2**29,
)
INTERPRETER = msgspec.structs.replace(
    FREE_THREADED,
    executable="/opt/bin/python3.14t",
    pgo=True,
    shared=False,
    compiler="GCC 12.2.0",
    config_args="'--disable-gil'",
    found="by name",
    build="gcc 12.2.0, PGO, no LTO",
)
DIAGNOSIS = Diagnosis(
    machine=MACHINE,
    targets=(
        TargetState(spec="3.14t", interpreter=INTERPRETER, environments=("/p/.ftgate/envs/3.14.7t-1a2b3c4d",)),
        TargetState(spec="3.13", interpreter=None),
    ),
    probes={"pss": True, "pss_child": False, "schedstat": False, "schedstat_child": False},
    uv="/opt/bin/uv",
    load_1min=0.25,
    problems=(Problem(what="PSS cannot be read", fix="Linux 4.14+"),),
)


def parsed(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["doctor", *words])


def test_the_text() -> None:
    check_golden("doctor.txt", to_text(DIAGNOSIS) + "\n")
    assert to_text(msgspec.structs.replace(DIAGNOSIS, problems=())).endswith("no problems")


def test_an_interpreter_newer_than_those_that_are_tested_is_shown_with_a_note() -> None:
    newer = msgspec.structs.replace(INTERPRETER, version="3.15.0")
    assert newer.untested.startswith("newer than ")
    state = msgspec.structs.replace(DIAGNOSIS.targets[0], interpreter=newer)
    assert f"3.15.0t, free-threaded build, {newer.untested}\n" in to_text(
        msgspec.structs.replace(DIAGNOSIS, targets=(state,))
    )


def test_a_diagnosis_of_nothing_at_all_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    args = parsed("--python", "3.99", "--json", "--rootdir", str(tmp_path))
    assert args.run(args) == 3
    shown = msgspec.json.decode(capsys.readouterr().out, type=Diagnosis)
    assert shown.targets == (TargetState(spec="3.99", interpreter=None),)
    assert any("3.99" in problem.what and "uv python install 3.99" in problem.fix for problem in shown.problems)
    assert shown.machine.cores >= 1


def test_json_and_text_say_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "diagnose", lambda *_: DIAGNOSIS)
    args = parsed()
    assert args.run(args) == 0
    assert capsys.readouterr().out == to_text(DIAGNOSIS) + "\n"
    args = parsed("--json")
    assert args.run(args) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(msgspec.json.encode(DIAGNOSIS))


def test_a_spec_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(TargetError):
        diagnose(["3.14[speed=9]"], tmp_path)


def test_lacks_of_a_throttled_machine_have_their_fixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_cores = msgspec.structs.replace(MACHINE, cores=2)
    monkeypatch.setattr(doctor, "read_machine", lambda: two_cores)
    monkeypatch.setattr(doctor, "read_probes", lambda: DIAGNOSIS.probes)
    found = " | ".join(f"{problem.what}: {problem.fix}" for problem in diagnose([], tmp_path).problems)
    assert "CPU limit of 1.5 cores on 2" in found
    assert "governor is powersave" in found
    assert "performance" in found
    assert "PSS cannot be read" in found
    assert "/proc/PID/schedstat" in found


def test_probes_tell_what_the_root_holds(tmp_path: Path) -> None:
    assert read_probes(tmp_path) == {"pss": False, "pss_child": False, "schedstat": False, "schedstat_child": False}
    own = tmp_path / "proc" / "self"
    own.mkdir(parents=True)
    (own / "smaps_rollup").write_text("Rss:  8 kB\nPss:  4 kB\n", encoding="ascii")
    (own / "schedstat").write_text("1 2 3\n", encoding="ascii")
    assert read_probes(tmp_path) == {"pss": True, "pss_child": False, "schedstat": True, "schedstat_child": False}


@pytest.mark.parametrize(
    ("words", "code"), [((), 0), (("--strict",), 3), (("--strict", "--json"), 3), (("--strict", "--python=3.14t"), 0)]
)
def test_with_strict_no_target_may_lack_an_interpreter(
    words: tuple[str, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        doctor,
        "diagnose",
        lambda specs, _: msgspec.structs.replace(
            DIAGNOSIS, targets=tuple(each for each in DIAGNOSIS.targets if each.spec in (specs or ["3.14t", "3.13"]))
        ),
    )
    args = parsed(*words)
    assert args.run(args) == code


def test_an_interpreter_in_the_cache_folder_is_none_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executables: dict[str, str]
) -> None:
    """As `.ci/build-pythons` leaves it, where the Makefile has interpreters installed."""
    built = tmp_path / "pytest-ftgate" / "pythons" / "built-3.14.7t" / "bin" / "python3.14t"
    executable(built, f'exec "{executables["3.14t"]}" "$@"')
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    args = parsed("--strict", "--python=3.14t", "--rootdir", str(tmp_path))
    assert args.run(args) == 0


def test_waits_that_cannot_be_told_apart_are_a_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executables: dict[str, str]
) -> None:
    monkeypatch.setattr(doctor, "self_test", lambda python, environment: f"{Path(python).name} differs")
    found = diagnose([executables["3.14t"]], tmp_path)
    (state,) = found.targets
    assert state.waits_unavailable.endswith("differs")
    assert any("wait states of" in problem.what and "differs" in problem.what for problem in found.problems)
    text = to_text(found)
    assert "not available" in text
