"""The command `stockade`. Each command is a dataclass in the package that does the work: its fields are the flags, its
`run()` gives the exit code. Here they are only listed, parsed and run."""

import argparse
import contextlib
import importlib
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

import stockade
from stockade import startup
from stockade.errors import InputError, SettingError, VectorError, WorkError, did_you_mean, missing_package
from stockade.text import Table

#: Where each command is, and what it is for. It is imported when it is called.
COMMANDS = {
    "train": ("stockade.learn.config:TrainConfig", "train a PPO agent"),
    "evaluate": ("stockade.workflow.evaluation:Evaluate", "play the challenge's protocol with any policy"),
    "exploit": ("stockade.learn.exploit:ExploitConfig", "train attackers against a policy: how much do they hurt it?"),
    "search": ("stockade.workflow.config:SearchConfig", "find out in which order to repair hosts"),
    "replay": ("stockade.replay.command:ReplayCommand", "look at an episode in the browser, every move judged"),
    "play": ("stockade.replay.play:PlayCommand", "defend the network yourself, every move judged at the end"),
    "report": ("stockade.report.command:Report", "write a page about a run, a search or an evaluation"),
    "runs": ("stockade.learn.runs:RunsConfig", "list and compare what was trained or searched"),
    "export": ("stockade.learn.runs:ExportConfig", "write a run's policy to files of its own"),
    "verify": ("stockade.cage2.verify:Verify", "compare the simulator with recorded episodes of CybORG"),
    "bench": ("stockade.bench.cli:Bench", "measure speed, memory and learning"),
}
OVERVIEW = """\
Train and study agents that defend a computer network, on CAGE Challenge 2.

{commands}

Examples:
  stockade evaluate champion               how good is the shipped policy?
  stockade train --red-agent meander       train your own agent
  stockade runs                            list what was trained, and how well
  stockade evaluate meander-memory-seed0   how good is the agent you trained?
  stockade replay champion --open          see an episode, move by move
  stockade play --open                     defend the network yourself

stockade COMMAND --help explains the flags of a command.
stockade --version prints the version."""


def parse(name: str, arguments: Sequence[str]) -> Any:
    """Make a command of its flags; SystemExit means that tyro has given help, or said what is wrong with a flag."""
    module, _, name_there = COMMANDS[name][0].partition(":")
    command: Any = getattr(importlib.import_module(module), name_there)
    given: dict[str, Any] = {"args": arguments, "prog": f"stockade {name}", "config": (tyro.conf.DisallowNone,)}
    if hasattr(command, "resumed"):
        given["default"] = defaults_of(command, arguments)
    said, shown = io.StringIO(), io.TextIOWrapper(io.BytesIO(), sys.stdout.encoding)  # which decides on frames
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
            return tyro.cli(command, **given)
    except SystemExit as ended:  # tyro explains a ValueError of a dataclass in its own words: ours are better
        cause: BaseException | None = ended
        while cause is not None and not isinstance(cause, InputError):
            cause = cause.__context__
        if cause is not None:
            raise cause from None
        sys.stderr.write(said.getvalue())
        width = shutil.get_terminal_size().columns
        shown.seek(0)
        for line in shown.read().splitlines():  # tyro does not wrap what stands outside its frames
            is_usage = line.startswith("usage:")
            words = line.replace(",", ", ") if is_usage else line  # between the names of subcommands too
            indent = "  " if is_usage else ""
            wrapped = textwrap.fill(words, width, subsequent_indent=indent, break_on_hyphens=False)
            print(wrapped if len(line) > width else line)
        raise


def defaults_of(command: Any, arguments: Sequence[str]) -> Any:
    """What flags change: the settings of what --resume continues, or of a --preset, or the plain defaults."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--resume", "--runs", "--preset"):
        parser.add_argument(flag, nargs="?")
    given = parser.parse_known_args(list(arguments))[0]
    if given.resume:
        return command.resumed(given.resume, Path(given.runs or command.runs))
    return command.of_preset(given.preset) if given.preset and hasattr(command, "of_preset") else command()


def run(arguments: Sequence[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "--version"):
        commands = Table(["Command", ""], [[name, summary] for name, (_, summary) in COMMANDS.items()])
        print(OVERVIEW.format(commands=commands) if name != "--version" else f"stockade {stockade.__version__}")
        return 0
    if name not in COMMANDS:
        near = did_you_mean(name, [*COMMANDS, "--version"])
        raise InputError(f"there is no command {name!r}.{near} Commands: {', '.join(COMMANDS)}")
    command = parse(name, arguments[1:])
    startup.interrupts_as_exceptions()
    return int(command.run())


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Exit codes: 0 fine, 1 the answer is no, 2 the input cannot be used, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a sign that the terminal does not know is shown as its number
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (InputError, OSError, MemoryError, ModuleNotFoundError, WorkError, VectorError) as error:
        print(f"stockade: {explain(error)}", file=sys.stderr)
        code = 1 if isinstance(error, WorkError | VectorError) else 2
    except KeyboardInterrupt:
        if startup.IS_COMMAND:
            startup.end_after_cleaning_up()
        print("stockade: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def explain(error: Exception) -> str:
    """One line, or a few, instead of a traceback."""
    if isinstance(error, SettingError):
        return error.as_command()
    if isinstance(error, ModuleNotFoundError):
        return str(missing_package(error))
    if isinstance(error, MemoryError):
        return "not enough memory: " + str(error).partition(" for an array")[0]  # NumPy describes its type
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


if __name__ == "__main__":
    main()
