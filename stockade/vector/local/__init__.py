"""Backends on this machine: `serial` in this process; `pipes`, `shared_memory` and `async` in worker processes.

env (vector environments) -> process (the workers, seen from here) -> channel, shared -> worker (in the process)
"""
