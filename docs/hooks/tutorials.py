"""Tutorials: docs/tutorials/*.py (jupytext, percent format) -> executed -> pages with outputs and pictures.

Every file becomes a page beside it and an entry of the navigation, in the order of the names. `DOCS_EXECUTE=0` builds
without running any code, for a quick check of links. A cell that raises ends the build.
"""

import os
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

EXECUTE = os.environ.get("DOCS_EXECUTE", "1") != "0"
SECONDS = 600  # that the start, and each cell, may take
SHARP_FIGURES = "from matplotlib_inline.backend_inline import set_matplotlib_formats as f; f('svg'); del f"
PICTURES = {"image/svg+xml": "svg", "image/png": "png"}

_html: dict[str, list[str]] = {}  # page -> outputs that are HTML, put in place once its Markdown is converted


def on_config(config: MkDocsConfig) -> None:
    """Append the tutorials to the navigation."""
    for entry in config.nav or []:
        if "Tutorials" in entry:
            entry["Tutorials"] += [f"tutorials/{path.stem}.md" for path in _sources(config)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make a page of every tutorial, and a file of each of its pictures."""
    for path in _sources(config):
        for file in _rendered(path, config):
            files.append(file)
    return files


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Put outputs that are HTML where their places are."""
    for number, output in enumerate(_html.get(page.file.src_uri, [])):
        html = html.replace(_place(number), f'<div class="output">{output}</div>')
    return html


def _sources(config: MkDocsConfig) -> list[Path]:
    return sorted(Path(config.docs_dir, "tutorials").glob("*.py"))


def _place(number: int) -> str:
    return f'<div data-output="{number}"></div>'


def _rendered(path: Path, config: MkDocsConfig) -> list[File]:
    notebook = jupytext.read(path, fmt="py:percent")
    if EXECUTE:
        with tempfile.TemporaryDirectory() as folder:  # runs that a tutorial trains are written here
            sockets = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})  # no port is opened
            client = NotebookClient(notebook, timeout=SECONDS, startup_timeout=SECONDS, kernel_name="python3",
                                    resources={"metadata": {"path": folder}}, config=sockets)  # fmt: skip
            notebook.cells.insert(0, nbformat.v4.new_code_cell(SHARP_FIGURES))
            try:
                client.execute()
            except CellExecutionError as error:
                raise PluginError(f"{path.name} does not run: {error}") from error
            del notebook.cells[0]
    uri = f"tutorials/{path.stem}.md"
    html = _html[uri] = []
    pictures: list[File] = []
    parts: list[str] = []
    for cell in notebook.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                if output.name == "stdout":  # progress goes to stderr
                    parts.append(_text(output.text))
                continue
            data = output.get("data", {})
            kind = next((kind for kind in PICTURES if kind in data), None)
            if kind:
                name = f"{path.stem}-{len(pictures)}.{PICTURES[kind]}"
                content = data[kind].encode() if kind == "image/svg+xml" else b64decode(data[kind])
                pictures.append(File.generated(config, f"tutorials/{name}", content=content))
                parts.append(f"![]({name})" + "{ .output }")
            elif "text/html" in data:
                parts.append(_place(len(html)))
                html.append(data["text/html"])
            elif "text/plain" in data:
                parts.append(_text(data["text/plain"]))
    parts.append(f"[This tutorial as a script, or a notebook with jupytext]({path.name})")
    return [File.generated(config, uri, content="\n\n".join(parts) + "\n"), *pictures]


def _text(text: str) -> str:
    return "``` { .text .output }\n" + text.rstrip("\n") + "\n```"
