"""Help texts, docstrings and the changelog name pages by their files, `docs/guides/search.md`: these become links."""

import re
from typing import Any

from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

MENTION = re.compile(r"docs/((?:start|guides|concepts|reference|results|about)/([\w-]+)\.md)")


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Replace them on generated pages."""
    if not page.file.src_uri.startswith(("reference/", "about/changes")):
        return html

    def link(found: re.Match[str]) -> str:
        target = files.get_file_from_path(found[1])
        if target is None:
            raise ValueError(f"{page.file.src_uri} names {found[0]}, which does not exist")
        return f'<a href="{get_relative_url(target.url, page.url)}">{found[2].replace("-", " ")}</a>'

    return MENTION.sub(link, html)
