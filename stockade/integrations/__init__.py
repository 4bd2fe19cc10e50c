"""Bridges to other people's software. Each module needs what its name says, and nothing here imports any of them."""
