"""What a package index shows of this project and the repository's address decides: its links, and the README's.

hatchling calls this for each build. The address is `repository` in pyproject.toml, beside the path of this file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"```.*?```|`[^`\n]*`|(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:)(?P<path>[^)]*)\)", re.DOTALL)
"""A link into the repository; or code, which has none."""


class PackageIndex(MetadataHookInterface):
    """Sets `readme` and `urls` of the project's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        address, version = self.config["repository"].rstrip("/"), metadata["version"]
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": linked(text, address, version)}
        metadata["urls"] = urls(address, version)


def urls(address: str, version: str) -> dict[str, str]:
    """The project's links; none without an address."""
    if not address:
        return {}
    at = f"{address}/blob/{tag(version)}"
    return {
        "Source": address,
        "Documentation": f"{at}/docs/index.md",
        "Changelog": f"{at}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def linked(text: str, address: str, version: str) -> str:
    """The README with links that work outside the repository. Without an address only their text stays."""

    def absolute(found: re.Match[str]) -> str:
        picture, path = found["picture"], found["path"]
        if path is None:  # code
            return found[0]
        if not address:
            return "" if picture else found["text"]
        place = f"README.md{path}" if path.startswith("#") else path
        return f"{picture}[{found['text']}]({address}/{'raw' if picture else 'blob'}/{tag(version)}/{place})"

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(absolute, text))


def tag(version: str) -> str:
    """The commit that links lead to: a release has a tag."""
    return "HEAD" if "dev" in version else f"v{version}"
