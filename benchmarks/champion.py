"""Measures trainings of the champion and fills the tables of docs/champion.md: `python benchmarks/champion.py --help`.

evaluate, curves, ablate, behaviour, cyborg -> benchmarks/results/champion/*.json -> tables -> docs/champion.md
"""

from __future__ import annotations

import sys
from typing import Any

import tyro
from champion_ablate import Ablate
from champion_behaviour import Behaviour
from champion_evaluate import Curves, Cyborg, Evaluate
from champion_tables import Tables

from stockade.errors import InputError


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0, 2 for what cannot be done, or that of a training that was stopped."""
    commands: Any = Evaluate | Curves | Ablate | Behaviour | Cyborg | Tables
    command = tyro.cli(commands, args=arguments, description=__doc__)
    try:
        return int(command.run())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
