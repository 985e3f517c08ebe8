"""The JSON Schema of the report: the published file is what the code generates, and reports are valid by it."""

from __future__ import annotations

import json as plain_json
import math
import os
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import report_by_hand
from report_by_hand import of_rows

from golden import FOLDER
from pytest_ftgate.kit.values import Interval
from pytest_ftgate.model.report import SCHEMA, Figures, Report, Row
from pytest_ftgate.report import json

PUBLISHED = Path(__file__).parents[2] / "docs" / "report.schema.json"


def schema() -> str:
    """The JSON Schema of what `json.render` writes, as JSON text."""
    generated = msgspec.json.schema(Report)
    generated["$defs"]["Report"]["properties"]["schema"] = {"const": SCHEMA}
    about = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pytest-ftgate report",
        "description": "What --ftgate-report json:PATH and `ftgate report --to json:PATH` write.",
    }
    return msgspec.json.format(msgspec.json.encode(about | _published(generated)), indent=2).decode() + "\n"


def _published(value: Any) -> Any:
    """A part of the schema as `json.render` writes it: numbers that JSON cannot hold are strings."""
    if isinstance(value, list):
        return [_published(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "number":
        rest = {key: item for key, item in value.items() if key != "type"}
        return {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}], **rest}
    # A default that is a whole struct says nothing that its own definition does not say.
    kept = {key: item for key, item in value.items() if key != "default" or not (isinstance(item, dict) and item)}
    described = kept.get("description")
    if isinstance(described, str):
        kept["description"] = " ".join(described.split())
    return {key: _published(item) for key, item in kept.items()}


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(plain_json.loads(schema()))


def test_the_published_file_is_what_the_code_generates() -> None:
    if os.environ.get("WRITE_GOLDEN"):
        PUBLISHED.write_text(schema(), encoding="utf-8")
    assert PUBLISHED.read_text(encoding="utf-8") == schema()


def test_it_is_a_schema(validator: jsonschema.Draft202012Validator) -> None:
    jsonschema.Draft202012Validator.check_schema(validator.schema)


def test_the_golden_report_is_valid(validator: jsonschema.Draft202012Validator) -> None:
    validator.validate(plain_json.loads((FOLDER / "report.json").read_text(encoding="utf-8")))


def test_a_report_of_every_verdict_is_valid(validator: jsonschema.Draft202012Validator) -> None:
    validator.validate(plain_json.loads(json.render(report_by_hand.report())))


def with_wall(wall: Interval) -> Report:
    """A report of one cell with this wall time."""
    row = report_by_hand.report().tables[0].rows[0]
    shown = Row(cell=row.cell, verdict=row.verdict, figures=Figures(wall_ns=wall))
    return of_rows(shown)


def test_numbers_that_json_cannot_hold_are_valid(validator: jsonschema.Draft202012Validator) -> None:
    wall = Interval(value=math.inf, low=-math.inf, high=math.nan, level=0.95)
    validator.validate(plain_json.loads(json.render(with_wall(wall))))


@pytest.mark.parametrize(
    "change", [{"schema": 1}, {"seed": "one"}, {"wall_s": "long"}, {"tables": [{"title": "t"}]}, {"surplus": 1}]
)
def test_what_is_no_report_is_not_valid(validator: jsonschema.Draft202012Validator, change: dict[str, object]) -> None:
    report = plain_json.loads(json.render(report_by_hand.report()))
    assert not validator.is_valid(report | change)
