"""Imported by a fork server before it makes workers, so that each finds the kernels of `chance="cyborg"` loaded."""

from stockade.cage2.prepare import prepare
from stockade.cage2.state import ledger_dtype

prepare(ledger_dtype(1))  # the one for all usual horizons
