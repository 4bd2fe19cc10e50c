"""Pages of the site that are files at the root of the repository: CHANGELOG.md and CONTRIBUTING.md, links adapted."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"CHANGELOG.md": "about/changes.md", "CONTRIBUTING.md": "about/contributing.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them, with links as seen from docs/about."""
    root = Path(config.docs_dir).parent
    for name, uri in PAGES.items():
        text = re.sub(r"\]\(docs/", "](../", (root / name).read_text())
        for other, place in PAGES.items():
            text = text.replace(f"]({other})", f"]({Path(place).name})")
        files.append(File.generated(config, uri, content=text))
    return files
