"""Measurements, each a command of `stockade bench` that prints a table and can write JSON with a machine stamp."""
