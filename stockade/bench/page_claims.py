"""The notes' claims, as data: what they said, what was measured of the first version, what answers it, why they differ.

What the notes and the first version say are inputs, written down once. What is measured now is never written down: it
is looked up in the results by tags.
"""

from __future__ import annotations

from stockade.bench.page_claims_inside import ASYNC, BOTTLENECK, MEMORY, TRUTH
from stockade.bench.page_claims_throughput import CROSSING, THROUGHPUT_20, THROUGHPUT_200
from stockade.bench.page_claims_training import EPISODES, ESTIMATES

TOPICS = (THROUGHPUT_20, THROUGHPUT_200, CROSSING, BOTTLENECK, ASYNC, TRUTH, MEMORY, EPISODES, ESTIMATES)
