"""Backends on this machine: `serial` in this process; `pipes`, `shared_memory` and `async` in worker processes."""
