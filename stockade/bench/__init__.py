"""Measurements, each a command of `stockade bench` that prints a table and can write JSON with a machine stamp.

All write the same format (`result.Result`). Figures are found by unit and tags:

throughput  world, mode, backend, n_envs, kind (ours, peer): steps/s; with to="pipes": times
scaling     part="native": n_envs, threads; part="n_envs": world, backend, n_envs; part="workers": backend, workers,
            n_envs, step_us: all in steps/s and in "of the cores"; part="takeover": backend, n_envs, step_us: times
            serial; part="crossing": backend, n_envs: microseconds
bottleneck  world, mode, backend, n_envs, part (environment, true states, messages, waiting for the slowest, process
            management): % of the time; part="total": ms (a step of all); part="calls": % of the wall time (calls for
            true states alone); part="start and close": % of an episode
stragglers  backend, sigma, n_envs: of the cores; kind="bound": the theoretical one; with to="shared_memory": times
true-state  world, mode, backend, n_envs: steps/s; with to="steps only": % (what the true states cost)
memory      backend, n_envs, workers, part (a worker, all workers, main process, all, a world): MiB or bytes
startup     backend, start_method, n_envs, workers, part (start, close): seconds
vector      part="overhead": backend, n_envs: steps/s; part="efficiency": backend, n_envs, step_us: of the cores
kernel      part (steps, snapshot, memory, scaling, start)
train       n_envs, case (2 threads, 1 thread, Stable-Baselines3): episodes/s; and part (world, policy, advantage,
            update, the rest): ms an iteration and %
learn       case (ours, Stable-Baselines3): return
"""
