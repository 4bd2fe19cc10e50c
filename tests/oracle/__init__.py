"""An independent reference model of the rules, and everything that is compared with it.

    traces of the reference simulator -> model.py -> (differential tests) -> the kernel

`model.py` is plain Python and shares no code with the package: stream.py (random numbers), network.py (tables),
red.py (the attackers). facts.py names what is compared; test_*.py and differential_run.py compare it.
"""
