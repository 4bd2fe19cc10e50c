"""Measurements: each is a command of `stockade bench` that prints a table and can write JSON with a machine stamp.

A bench declares cases by tags -> `runner.in_turns` measures them round by round -> `result.Result`.
docs/reference/files.md lists the tags of every bench; in a checkout, scripts in benchmarks/ make pages of results.
"""
