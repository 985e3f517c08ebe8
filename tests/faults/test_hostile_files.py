"""What the fuzzer found, and what commands say of such files; tests/faults/fuzz.py tries the rest."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from random import Random

import hostile
import msgspec
import pytest
from mutations import mutate, mutate_text

from pytest_ftgate import cli
from pytest_ftgate.features import baseline, last_run
from pytest_ftgate.kit.errors import FtgateError
from pytest_ftgate.measure.launchers import load, workload


def test_a_real_file_of_each_kind_is_read() -> None:
    assert {kind.name: kind.read(kind.seed) for kind in hostile.KINDS} == dict.fromkeys(
        (kind.name for kind in hostile.KINDS), True
    )


@pytest.mark.parametrize("kind", hostile.KINDS, ids=lambda kind: kind.name)
def test_mutations_raise_nothing_but_our_errors(kind: hostile.Kind) -> None:
    for seed in range(60):
        random = Random(seed)
        kind.read(mutate_text(kind.seed, random.randrange))
        if not kind.binary:
            kind.read(json.dumps(mutate(json.loads(kind.seed), random.randrange)).encode())


def test_a_number_of_answers_that_is_infinite_is_no_output() -> None:
    text = hostile.OHA.decode().replace('"200":', '"201": 1e999, "200":', 1)
    with pytest.raises(FtgateError, match="did not print its figures"):
        load.parse("oha", text)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100, b"c\x00\x00"])
def test_a_result_that_no_runner_writes_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        workload.result_of(content)


GIGABYTES = (100_000_000).to_bytes(4, "little")


@pytest.mark.parametrize("content", [b"(" + GIGABYTES, b"[\x02\0\0\0" + b"(\x09\0\0\0" * 2, b"s" + GIGABYTES])
def test_a_length_that_exceeds_the_file_allocates_nothing(content: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="a length that exceeds them"):
            workload.result_of(content)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_report_that_contradicts_itself_is_named_beside_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A metric that does not exist, of a report that is valid by its schema: whose fault it is cannot be known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(last_run, "READ", [])
    content = json.loads(msgspec.json.encode(hostile.small_report()))
    for metric in content["tables"][0]["rows"][0]["verdict"]["metrics"]:
        metric["metric"] = "peak."
    content["tables"][0]["gated"] = ["peak."]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert cli.main(["report", str(path), "-v"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert f"ftgate: error: a mistake of pytest-ftgate, unless {path} was changed by hand: KeyError: 'peak.'" in said


def test_a_mistake_of_ours_is_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And ends with the exit code of an error, as 1 means that something regressed."""

    def mistaken() -> None:
        raise KeyError("ours")

    monkeypatch.setattr(last_run, "READ", [])
    monkeypatch.setattr(baseline, "store_of", mistaken)
    assert cli.main(["baseline", "list"]) == 2
    assert "ftgate: error: a mistake of pytest-ftgate: KeyError: 'ours'\n" in capsys.readouterr().err
