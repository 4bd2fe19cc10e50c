"""Measures trainings of the champion and fills the tables of docs/champion.md: `python benchmarks/champion.py --help`.

evaluate, curves, ablate, behaviour, cyborg -> benchmarks/results/champion/*.json -> tables -> docs/champion.md
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import tyro
from champion_ablate import Ablate
from champion_behaviour import Behaviour
from champion_curves import Curves
from champion_evaluate import Cyborg, Evaluate
from champion_tables import Tables

from stockade.errors import InputError

COMMANDS = (
    Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Curves, tyro.conf.subcommand("curves")]
    | Annotated[Ablate, tyro.conf.subcommand("ablate")]
    | Annotated[Behaviour, tyro.conf.subcommand("behaviour")]
    | Annotated[Cyborg, tyro.conf.subcommand("cyborg")]
    | Annotated[Tables, tyro.conf.subcommand("tables")]
)


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0, 2 for what cannot be done, or that of a training that was stopped."""
    command: Any = tyro.cli(COMMANDS, args=arguments, description=__doc__)
    try:
        return int(command.run())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
