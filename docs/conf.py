"""The site of the manual, from the pages as they lie in the repository: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

project = "pytest-ftgate"
extensions = ["myst_parser"]
root_doc = "docs/index"
# The source folder is the repository, so that links between pages and examples are the same there and on the site.
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**.md", "examples/*/README.md"]
exclude_patterns = [".*", "src", "tests", "baselines", "build", "dist"]
myst_heading_anchors = 4
smartquotes = False  # `--option` in prose keeps both of its dashes
highlight_language = "text"
html_theme = "furo"
html_title = "pytest-ftgate"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
suppress_warnings = ["misc.highlighting_failure"]


class HtmlAnchors(SphinxTransform):
    """Make a target of each `<a id="x"></a>`: repository hosts show no other anchor within a paragraph or a table."""

    default_priority = 200

    def apply(self, **kwargs: Any) -> None:
        for raw in list(self.document.findall(nodes.raw)):
            if found := re.fullmatch(r'<a id="([^"]+)">(</a>)?\n?', raw.astext()):
                target = nodes.target("", "", ids=[found[1]], names=[found[1]])
                self.document.note_explicit_target(target, target)
                raw.replace_self(target)


def _lead_in(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        to_first_page = '<meta http-equiv="refresh" content="0; url=docs/index.html">'
        Path(app.outdir, "index.html").write_text(f"<!DOCTYPE html><title>{project}</title>{to_first_page}\n", "utf-8")


def setup(app: Sphinx) -> None:
    """Sphinx calls this once."""
    app.add_transform(HtmlAnchors)
    app.connect("build-finished", _lead_in)
