"""The command `stockade bench`: one subcommand per measurement, and those that make something of the results."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Annotated

import tyro

from stockade.bench.all_benches import AllBenches
from stockade.bench.bottleneck import BottleneckBench, StragglersBench
from stockade.bench.compare import Compare
from stockade.bench.footprint import MemoryBench, StartupBench
from stockade.bench.kernel import KernelBench
from stockade.bench.report import Report
from stockade.bench.search import SearchParallelBench
from stockade.bench.search_quality import SearchQualityBench
from stockade.bench.throughput import ScalingBench, ThroughputBench, TrueStateBench, VectorBench
from stockade.bench.train import LearnBench, TrainBench

BENCHES = (ThroughputBench, ScalingBench, BottleneckBench, StragglersBench, TrueStateBench, MemoryBench, StartupBench,
           KernelBench, VectorBench, TrainBench, LearnBench, SearchParallelBench, SearchQualityBench)  # fmt: skip
_COMMANDS = {"all": AllBenches, **{bench.name: bench for bench in BENCHES}, "report": Report, "compare": Compare}
_ANY_COMMAND = functools.reduce(
    operator.or_, [Annotated[command, tyro.conf.subcommand(name)] for name, command in _COMMANDS.items()]
)


@dataclass(frozen=True)
class Bench:
    """Measure speed, memory and start, and compare results."""

    what: Annotated[_ANY_COMMAND, tyro.conf.arg(name="")]  # type: ignore[valid-type] # a union made of the table above

    def run(self) -> int:
        return int(self.what.run())  # type: ignore[attr-defined]
