"""Which repair order defends best: orders as rules, one policy for all of them, and a verdict with its certainty.

orders -> environments that keep to them (strict) -> one training (together) -> greedy returns -> posterior -> verdict

`--train separate` trains every order alone instead (proposals -> engine -> training); `--constraint reward` pays for
compliance, as the first version did (aligned).
"""
