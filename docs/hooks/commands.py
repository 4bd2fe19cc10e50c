"""Reference of the command line, generated from the parser of every command: it cannot differ from `--help`.

COMMANDS of stockade.cli -> tyro's parsers -> one page per command, with a table of flags for each group
"""

import importlib
import re
from collections.abc import Iterator
from typing import Any

import tyro
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from stockade.cli import COMMANDS

FOLDER = "reference/commands"
EMPTY = "None", "()", "", "''"  # defaults that say nothing
TITLES = {"positional arguments": "Arguments", "options": "Options"}
#: How a page begins; the table of commands follows.
OVERVIEW = """# Command line

`pip install .` installs the command `stockade`. These pages are generated from its parser, so they say what
`stockade COMMAND --help` says.

"""
EXIT_CODES = """
`stockade --version` prints the version.

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | the answer is no, or the work could not be completed |
| 2 | the input cannot be used; a message says why |
| 130, 143 | ended by Ctrl-C (SIGINT) or SIGTERM, after saving what can be saved |
"""


def on_config(config: MkDocsConfig) -> None:
    """Append a page per command to the section `Command line` of the navigation."""
    for entry in _sections(config.nav or []):
        if "Command line" in entry:
            entry["Command line"] += [f"{FOLDER}/{name}.md" for name in COMMANDS]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    rows = "".join(f"| [`stockade {name}`]({name}.md) | {summary} |\n" for name, (_, summary) in COMMANDS.items())
    texts = {"index": f"{OVERVIEW}| command | what it does |\n|---|---|\n{rows}{EXIT_CODES}"}
    texts |= {name: f"# stockade {name}\n\n{_described(_parser(name), 2)}" for name in COMMANDS}
    for name, text in texts.items():
        files.append(File.generated(config, f"{FOLDER}/{name}.md", content=text))
    return files


def _sections(nav: list[Any]) -> Iterator[dict[str, Any]]:
    for entry in nav:
        if isinstance(entry, dict):
            yield entry
            for below in entry.values():
                if isinstance(below, list):
                    yield from _sections(below)


def _parser(name: str) -> Any:
    module, _, there = COMMANDS[name][0].partition(":")
    command = getattr(importlib.import_module(module), there)
    return tyro.extras.get_parser(command, prog=f"stockade {name}", config=(tyro.conf.DisallowNone,))


def _described(parser: Any, level: int) -> str:
    """A command in words, its groups of flags as tables, then its subcommands in the same way."""
    text = f"{parser.description or ''}\n\n"
    commands: dict[str, Any] = {}
    for group in parser._action_groups:
        flags = [action for action in group._group_actions if action.dest != "help"]
        if flags and isinstance(flags[0].choices, dict):
            commands = flags[0].choices
        elif flags:
            title = TITLES.get(group.title) or f"`{group.title.removesuffix(' options')}`"
            words = f"{group.description}\n\n" if group.description else ""
            rows = "".join(map(_row, flags))
            text += f"{'#' * level} {title}\n\n{words}| flag | default | what it does |\n|---|---|---|\n{rows}\n"
    for name, command in commands.items():
        text += f"{'#' * level} stockade {parser.prog.split()[1]} {name}\n\n{_described(command, level + 1)}"
    return text


def _row(action: Any) -> str:
    """One flag: its names and values, its default, what it does."""
    said = re.sub(r"\s+", " ", action.help or "").strip().replace("%%", "%")
    words, _, default = said.removesuffix(" (required)").partition(" (default: ")
    default = default.removesuffix(")")
    values = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    if default in ("True", "False"):  # of two names, the one that need not be given
        default = action.option_strings[default == "False"]
    shown = "required" if said.endswith(" (required)") else f"`{default}`" if default not in EMPTY else ""
    parts = [", ".join(action.option_strings), values.replace(",", ", ") if action.nargs != 0 else ""]
    flag = " ".join(f"`{part}`" for part in parts if part)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (flag, shown, words)) + " |\n"
