"""The built-in world in JAX on the CPU: `step` is a pure function, so `jit`, `scan` and `vmap` take it as their own.

(state, actions) -> pure_callback -> the compiled kernel over all worlds -> (state, observations, rewards, done)

The state is the bytes of the worlds, streams of chance included. A step reads and writes nothing else: the same state
and actions give the same results, and a state can be kept, copied, saved and returned to.
"""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stockade.cage2 import kernel
from stockade.cage2.actions import N_ACTIONS
from stockade.cage2.batch import Batch, Snapshot
from stockade.cage2.config import WorldConfig
from stockade.cage2.seeds import Seeds, read_seeds
from stockade.errors import InvalidActionError

State = tuple[Any, ...]
"""Arrays (n, bytes) uint8: worlds, then the reference's streams with `chance="cyborg"`, blue's with `obs="memory"`."""


class JaxWorlds:
    """`n_envs` worlds as two functions that XLA can call.

    Example:
        >>> import jax
        >>> from stockade.integrations.jax import JaxWorlds
        >>> worlds = JaxWorlds(4, red="meander", horizon=30)
        >>> state, observations = worlds.reset(jax.random.key(0))
        >>> state, observations, rewards, done = jax.jit(worlds.step)(state, jax.numpy.zeros(4, int))
        >>> observations.shape, rewards.shape
        ((4, 52), (4,))
    """

    def __init__(self, n_envs: int, *, threads: int | None = None, **world: Any) -> None:
        """`world`: as of WorldConfig (`red`, `horizon`, `rules`, `chance`, `green`, `obs`, `reward`)."""
        config = WorldConfig(**world)
        if config.red == "player":
            raise ValueError("red='player' has no actions here; take an attacker, such as 'bline'")
        self.config, self.n_envs, self.n_actions = config, n_envs, N_ACTIONS
        self._batch = Batch(config, n_envs, threads)  # memory to work in, for one call at a time
        self._lock = threading.Lock()
        self.obs_size = self._batch.obs_size
        parts = [part for part in self._batch.snapshot().parts if part is not None]
        self._state = tuple(jax.ShapeDtypeStruct(part.shape, np.uint8) for part in parts)
        self._seen = jax.ShapeDtypeStruct((n_envs, self.obs_size), np.uint8)

    def reset(self, seed: Any) -> tuple[State, Any]:
        """Begin episodes in all worlds: state, observations (n, 52 or 160) uint8.

        `seed`: a key of `jax.random`; or an int s for the seeds s, s + 1, ..., as in all vector environments.
        """
        if isinstance(seed, int):
            words: Any = read_seeds(seed, self.n_envs).values.view(np.uint32).reshape(-1, 2)
        else:
            words = jax.random.bits(seed, (self.n_envs, 2), np.uint32)
        return jax.pure_callback(self._reset, (self._state, self._seen), words, vmap_method="sequential")

    def step(self, state: State, actions: Any) -> tuple[State, Any, Any, Any]:
        """Step all worlds with actions, (n,) integers; where an episode is done, the next one begins at once.

        Returns state, observations (n, 52 or 160) uint8, rewards (n,) float32, done (n,) bool. Where an episode is
        done, state and observation are already the next episode's.
        """
        chosen = jnp.asarray(actions)
        if not jnp.issubdtype(chosen.dtype, jnp.integer):
            raise InvalidActionError(f"actions have dtype {chosen.dtype}; take whole numbers from 0 to {N_ACTIONS - 1}")
        floats, flags = (jax.ShapeDtypeStruct((self.n_envs,), dtype) for dtype in (np.float32, np.bool_))
        results = self._state, self._seen, floats, flags
        return jax.pure_callback(self._step, results, state, chosen, vmap_method="sequential")

    def _reset(self, words: Any) -> tuple[State, np.ndarray]:
        values = np.ascontiguousarray(words).view(np.uint64)[:, 0]
        obs = np.empty(self._seen.shape, np.uint8)
        with self._lock:
            self._batch.reset(obs, Seeds(values, np.ones(self.n_envs, np.bool_)))
            return self._now(), obs

    def _step(self, state: State, actions: Any) -> tuple[State, np.ndarray, np.ndarray, np.ndarray]:
        chosen = np.asarray(actions).astype(np.int64)
        if chosen.shape != (self.n_envs,) or not kernel.are_valid(chosen, N_ACTIONS):
            raise InvalidActionError(f"actions must be ({self.n_envs},) whole numbers from 0 to {N_ACTIONS - 1}")
        obs, rewards = np.empty(self._seen.shape, np.uint8), np.empty(self.n_envs)
        done = np.empty(self.n_envs, np.bool_)
        parts = iter(np.asarray(part) for part in state)
        with self._lock:
            batch = self._batch
            worlds = next(parts)
            ledgers, memory = (None if held is None else next(parts) for held in (batch.ledgers, batch.memory))
            batch.restore(Snapshot(self.config, worlds, ledgers, memory))
            batch.step(chosen, obs, rewards, done, False)
            if done.any():
                batch.reset(obs, read_seeds(None, self.n_envs), done)
            return self._now(), obs, rewards.astype(np.float32), done

    def _now(self) -> State:
        return tuple(part for part in self._batch.snapshot().parts if part is not None)
