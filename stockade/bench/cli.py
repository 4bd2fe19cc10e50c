"""The command `stockade bench`: one subcommand per measurement, and those that make something of the results."""

from __future__ import annotations

import functools
import operator
from typing import Annotated, Any

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

Bench: Any = functools.reduce(
    operator.or_, [Annotated[command, tyro.conf.subcommand(name)] for name, command in _COMMANDS.items()]
)
"""Any of the commands; its first line of documentation is what `stockade bench --help` says of it."""
