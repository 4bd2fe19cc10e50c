"""The error for what a user gave and cannot be used; commands show its message and end with exit code 2."""


class InputError(ValueError):
    """An option, file or value that cannot be used. The message names it, and what to give instead."""
