"""Measurements: each is a command of `stockade bench` that prints a table and can write JSON with a machine stamp.

A bench declares cases by tags -> `runner.in_turns` measures them round by round -> `result.Result` -> `report` fills
tables and pictures, and finds what became slower. docs/benchmarks.md, "Result files", lists the tags of every bench.
"""
