"""Imported by a fork server before it makes workers, so that each finds the kernels of `chance="fast"` loaded."""

from stockade.cage2.prepare import prepare

prepare(None)
