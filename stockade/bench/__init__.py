"""Measurements: each is a command of `stockade bench` that prints a table and can write JSON with a machine stamp.

A bench declares cases by tags -> `runner.in_turns` measures them round by round -> `result.Result` -> `report` fills
tables and pictures, `compare` finds what became slower. Figures are identified by unit and tags:

throughput  world, mode, backend, n_envs: steps/s; with to="pipes": times
scaling     part="native": n_envs, threads; part="n_envs": world, backend, n_envs; part="workers": backend, workers,
            n_envs, step_us: steps/s and "of the cores"; part="takeover": backend, n_envs, step_us: times serial;
            part="crossing": backend, n_envs: microseconds
bottleneck  world, mode, backend, n_envs, part: % of the time; part="total": ms; part="calls": % of the wall time
stragglers  backend, sigma, n_envs: of the cores; kind="bound": the theoretical one; to="shared_memory": times
true-state  world, mode, backend, n_envs: steps/s; with to="steps only": % that true states cost
memory      backend, n_envs, workers, part (a worker, all workers, main process, all, a world): MiB or bytes
startup     backend, start_method, n_envs, workers, part (start, close): s
vector      part="overhead": backend, n_envs: steps/s; part="efficiency": backend, n_envs, step_us: of the cores
kernel      case
train       n_envs, case (2 threads, 1 thread, Stable-Baselines3): episodes/s; part: ms per iteration and %
learn       case (ours, Stable-Baselines3): return
search      parallel: workflows/min
search-quality          red, method, budget, part (regret, RMSE: points; time: s; reported: orders); one round per seed
search-truth-RED-STEPS  order, training (alone, together), seed, episodes, judged: return
"""
