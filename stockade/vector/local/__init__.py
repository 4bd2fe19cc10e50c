"""Backends on this machine: `serial` in this process; `pipes`, `shared_memory` and `async` in worker processes.

env (vector environments) -> pool (all workers) -> process (one worker) -> channel, rings -> worker (in the process)
"""
