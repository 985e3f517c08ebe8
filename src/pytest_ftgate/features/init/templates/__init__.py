"""The files that `ftgate init` starts from: texts with $names in them."""

from __future__ import annotations

import string
from importlib.resources import files


def fill(template: str, **values: object) -> str:
    """The text of a template with its `$name`s replaced; `$$` is a dollar. Raises KeyError for a name not given."""
    text = files(__name__).joinpath(template).read_text(encoding="utf-8")
    return string.Template(text).substitute({name: str(value) for name, value in values.items()})
