"""The command `stockade bench`: one subcommand per measurement, and those that make something of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from stockade.bench.all_benches import AllBenches
from stockade.bench.bottleneck import BottleneckBench
from stockade.bench.compare import Compare
from stockade.bench.footprint import MemoryBench
from stockade.bench.kernel import KernelBench
from stockade.bench.report import Report
from stockade.bench.scaling import ScalingBench, VectorBench
from stockade.bench.search import SearchParallelBench
from stockade.bench.search_quality import SearchQualityBench
from stockade.bench.startup import StartupBench
from stockade.bench.stragglers import StragglersBench
from stockade.bench.throughput import ThroughputBench, TrueStateBench
from stockade.bench.train import LearnBench, TrainBench


def _command(name: str, description: str) -> Any:
    return tyro.conf.subcommand(name, description=description)


Benches = (
    Annotated[AllBenches, _command("all", "Every bench below, into a folder of results.")]
    | Annotated[ThroughputBench, _command("throughput", "Steps per second of every backend and of other libraries.")]
    | Annotated[ScalingBench, _command("scaling", "Steps per second over environments, workers, threads.")]
    | Annotated[BottleneckBench, _command("bottleneck", "Where the time of a step goes.")]
    | Annotated[StragglersBench, _command("stragglers", "Waiting for the slowest, and not.")]
    | Annotated[TrueStateBench, _command("true-state", "What true states cost.")]
    | Annotated[MemoryBench, _command("memory", "What worlds and workers weigh.")]
    | Annotated[StartupBench, _command("startup", "Seconds to start and close workers.")]
    | Annotated[KernelBench, _command("kernel", "The world's speed, memory and start.")]
    | Annotated[VectorBench, _command("vector", "Overhead and efficiency of backends, beside other libraries'.")]
    | Annotated[TrainBench, _command("train", "PPO's speed, and where the time goes.")]
    | Annotated[LearnBench, _command("learn", "PPO's returns beside another library's.")]
    | Annotated[SearchParallelBench, _command("search", "Workflows per minute on Ray, two at a time to one.")]
    | Annotated[SearchQualityBench, _command("search-quality", "Regret and errors of searches, against the truth.")]
    | Annotated[Report, _command("report", "Fill the tables of pages and draw the pictures, from results.")]
    | Annotated[Compare, _command("compare", "What became slower between two results.")]
)


@dataclass(frozen=True)
class Bench:
    """Measure speed, memory and start, and compare results."""

    what: Annotated[Benches, tyro.conf.arg(name="")]

    def run(self) -> int:
        """Run the chosen measurement."""
        return self.what.run()
