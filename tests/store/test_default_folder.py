"""Where baselines go if nothing is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ftgate.store.folder import default_folder

PROJECT = "[project]\nname = 'x'\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "baselines"),
        ({"pyproject.toml": PROJECT}, "tests/baselines"),
        ({"pyproject.toml": f"{PROJECT}[tool.setuptools]\npackages = ['x']\n"}, "baselines"),
        ({"pyproject.toml": PROJECT, "setup.cfg": "[options]\npackages = x\n"}, "baselines"),
        ({"pyproject.toml": PROJECT, "setup.cfg": "[options]\npython_requires = >=3.9\n"}, "tests/baselines"),
        ({"pyproject.toml": PROJECT, "setup.py": "setup(packages=['x'])"}, "baselines"),
        ({"pyproject.toml": PROJECT, "src/x/__init__.py": ""}, "baselines"),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'hatchling.build'\n"}, "baselines"),
        ({"pyproject.toml": "[tool.ruff]\n", "setup.cfg": "nonsense"}, "baselines"),
    ],
)
def test_setuptools_does_not_take_them_for_a_package(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert default_folder(tmp_path) == expected
