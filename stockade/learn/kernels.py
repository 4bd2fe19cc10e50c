"""The three loops of PPO that are not matrix products: sampling actions, advantages, the loss and its gradient.

Each reads its rows once and writes once, where a tensor library would go over them ten times. They hold no GIL, and
their sums run in a fixed order, so that a seed gives the same bits every time.
"""

import math
from typing import Any

import numpy as np

from stockade.cage2.jit import cached

#: Sums that `loss_head` adds to, in this order.
STATS = ("policy_loss", "value_loss", "entropy", "kl", "clipped")
#: The episode after a step: it continues; its horizon ended it; it reached its own end.
RUNNING, TRUNCATED, TERMINATED = 0, 1, 2

# Sums in any order may be vectorised ("reassoc"); infinities and NaN keep their meaning, so that a broken run shows.
_compiled = cached("learn/kernels.py", fastmath={"reassoc", "contract", "nsz", "arcp"})
_LOG2_E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_LARGEST, _SMALLEST = np.float32(88.0), np.float32(-87.0)
_TAYLOR = tuple(np.float32(1 / math.factorial(k)) for k in range(7))
_ONE, _HALF = np.float32(1), np.float32(0.5)
_CLOSED = np.float32(-1e9)  # the logit of an action that is not possible now
_NEVER = np.float32(1e-37)  # more than its weight


@_compiled
def _exp(x: Any) -> Any:
    """exp in float32 to 5e-7, in a form that the compiler can vectorise: 2**k times a polynomial."""
    x = min(max(x, _SMALLEST), _LARGEST)
    k = np.floor(x * _LOG2_E + _HALF)
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    p = _TAYLOR[6]
    p = p * r + _TAYLOR[5]
    p = p * r + _TAYLOR[4]
    p = p * r + _TAYLOR[3]
    p = p * r + _TAYLOR[2]
    p = p * r + _ONE
    p = p * r + _ONE
    power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23))
    return p * power.view(np.float32)


@_compiled
def _weights(logits: Any, n: Any, out: Any) -> Any:
    """exp(logits - largest) of a row into `out`; returns the largest logit and the sum."""
    largest = logits[0]
    for j in range(1, n):
        largest = max(largest, logits[j])
    for j in range(n):
        out[j] = _exp(logits[j] - largest)
    total = np.float32(0)
    for j in range(n):
        total += out[j]
    return largest, total


@_compiled
def _layer(x: Any, n_in: Any, flat: Any, begin: Any, n_out: Any, y: Any) -> Any:
    """y = x @ weight + bias of all rows, both at `begin` of the flat weights; returns where the next layer begins."""
    end = begin + n_in * n_out
    for i in range(len(x)):
        for j in range(n_out):
            y[i, j] = flat[end + j]
        for k in range(n_in):
            factor = np.float32(x[i, k])
            if factor != 0:  # most inputs are bits that are not set, and half of what relu gives is zero
                row = np.uintp(begin + k * n_out)
                for j in range(np.uintp(n_out)):
                    y[i, j] += factor * flat[row + j]
    return end + n_out


@_compiled
def _body(obs: Any, n_in: Any, flat: Any, begin: Any, hidden: Any, tanh: Any, layers: Any) -> Any:
    """Hidden layers of all rows, which see n_in values, into `layers`, the last one in its last; returns where the next
    weights begin."""
    for k in range(len(hidden)):
        y = layers[k]
        if k == 0:
            begin = _layer(obs, n_in, flat, begin, hidden[k], y)
        else:
            begin = _layer(layers[k - 1], n_in, flat, begin, hidden[k], y)
        n_in = hidden[k]
        for i in range(len(y)):
            for j in range(n_in):
                y[i, j] = np.tanh(y[i, j]) if tanh else max(y[i, j], np.float32(0))
    return begin


@_compiled
def forward(obs: Any, flat: Any, shape: Any, hidden: Any, layers: Any, logits: Any, values: Any) -> None:
    """Logits and values of observations: as `Workspace.forward`, in one call that holds no GIL. For the few rows of a
    step, tensor operations cost more than they compute, and threads wait for each other between them.

    Args:
        obs: (rows, inputs) of any type. flat: all weights, in the order of `Architecture.shapes`.
        shape: (n_logits, shared: 0 or 1, tanh: 0 or 1, inputs of the actor; the critic sees all).
        hidden: (layers,) int64, sizes of the hidden layers.
        layers: (2, layers, rows, largest size) float32, for use in here.
        logits: (rows, n_logits) float32 written. values: (rows, 1) float32 written.
    """
    n_logits, shared, tanh, n_actor = shape
    last = len(hidden) - 1
    begin = _body(obs, n_actor, flat, 0, hidden, tanh, layers[0])
    if not shared:
        begin = _body(obs, obs.shape[1], flat, begin, hidden, tanh, layers[1])
    begin = _layer(layers[0, last], hidden[last], flat, begin, n_logits, logits)
    _layer(layers[0 if shared else 1, last], hidden[last], flat, begin, 1, values)


@_compiled
def close_gates(obs: Any, gates: Any, logits: Any) -> None:
    """Rule out actions that are not possible now.

    Args:
        obs: (rows, inputs) of any type. logits: (rows, at least actions) float32, changed.
        gates: (actions,) int64, the input that is not 0 where the action is possible; -1: it always is.
    """
    for i in range(len(obs)):
        for j in range(len(gates)):
            if gates[j] >= 0 and obs[i, gates[j]] == 0:
                logits[i, j] = _CLOSED


@_compiled
def sample(logits: Any, n_actions: Any, uniforms: Any, actions: Any, log_probs: Any) -> None:
    """Sample an action for each row by inverting its distribution function.

    Args:
        logits: (rows, at least n_actions) float32. uniforms: (rows,) float32 in [0, 1).
        actions: (rows,) int64 written. log_probs: (rows,) float32 written.
    """
    weights = np.empty(n_actions, np.float32)
    for i in range(len(uniforms)):
        largest, total = _weights(logits[i], n_actions, weights)
        left = uniforms[i] * total
        chosen = n_actions
        for j in range(n_actions):
            left -= weights[j]
            if left < 0:
                chosen = j
                break
        if chosen == n_actions:  # rounding left a rest
            chosen -= 1
            while chosen > 0 and weights[chosen] < _NEVER:
                chosen -= 1
        actions[i] = chosen
        log_probs[i] = logits[i, chosen] - largest - np.log(total)


@_compiled
def estimate_advantages(
    rewards: Any, values: Any, ended: Any, gamma: Any, gae_lambda: Any, horizon_is_end: Any, out: Any
) -> None:
    """Generalised advantage estimation; a truncation with `horizon_is_end` is a true end: nothing is earned after it.

    The row after the end of an episode is the dead one of next_step autoreset, which shows the episode's last
    observation: its value is what a truncated episode is continued with. What is written for dead rows means nothing.

    Args:
        rewards: (T, n) float32. values: (T + 1, n) float32. ended: (T, n) uint8. out: (T, n) float32 written.
    """
    steps, n = rewards.shape
    carry = np.zeros(n, np.float32)
    for t in range(steps - 1, -1, -1):
        for i in range(n):
            over = ended[t, i] == TERMINATED or (horizon_is_end and ended[t, i] == TRUNCATED)
            future = np.float32(0) if over else gamma * values[t + 1, i]
            if ended[t, i] != RUNNING:
                carry[i] = np.float32(0)
            carry[i] = rewards[t, i] + future - values[t, i] + gamma * gae_lambda * carry[i]
            out[t, i] = carry[i]


@_compiled
def loss_head(
    logits: Any, values: Any, n_actions: Any, rows: Any, data: Any, scale: Any, coefficients: Any, stats: Any
) -> None:
    """PPO's loss of some rows, and its gradient in the place of what it was computed from.

    Args:
        logits: (b, width) float32, overwritten by the gradient; columns from n_actions on become 0.
        values: (b,) float32, overwritten by the gradient.
        rows: (b,) int64, where in `data` each row belongs.
        data: actions int64, old log probabilities, old values, advantages, returns, float32 all (m,).
        scale: 1 / rows of the whole minibatch, float32.
        coefficients: clip, value clip (0: none), weight of the value loss, of the entropy; float32.
        stats: (5,) float64, sums over rows are added: STATS.
    """
    actions, old_log_probs, old_values, advantages, returns = data
    clip, value_clip, value_weight, entropy_weight = coefficients
    p = np.empty(n_actions, np.float32)
    for i in range(len(rows)):
        row = rows[i]
        action, advantage = actions[row], advantages[row]
        largest, total = _weights(logits[i], n_actions, p)
        log_total = largest + np.log(total)
        inverse = _ONE / total
        entropy = np.float32(0)
        for j in range(n_actions):
            p[j] = p[j] * inverse if p[j] > _NEVER else np.float32(0)  # numbers that are almost 0 take long
            logits[i, j] -= log_total
            entropy -= p[j] * logits[i, j]
        log_ratio = logits[i, action] - old_log_probs[row]
        ratio = np.exp(log_ratio)
        clipped = min(max(ratio, _ONE - clip), _ONE + clip)
        surrogate, bound = ratio * advantage, clipped * advantage
        pull = -surrogate * scale if surrogate <= bound else np.float32(0)  # d loss / d log probability of the action
        weight = entropy_weight * scale
        for j in range(n_actions):
            logits[i, j] = p[j] * (weight * (logits[i, j] + entropy) - pull)
        logits[i, action] += pull
        logits[i, n_actions:] = np.float32(0)

        error = values[i] - returns[row]
        loss, slope = error * error, error
        if value_clip > 0:
            moved = min(max(values[i] - old_values[row], -value_clip), value_clip)
            clipped_error = old_values[row] + moved - returns[row]
            if clipped_error * clipped_error > loss:
                loss = clipped_error * clipped_error
                slope = clipped_error if abs(values[i] - old_values[row]) < value_clip else np.float32(0)
        values[i] = value_weight * scale * slope

        stats[0] -= min(surrogate, bound)
        stats[1] += _HALF * loss
        stats[2] += entropy
        stats[3] += (ratio - _ONE) - log_ratio
        stats[4] += abs(ratio - _ONE) > clip
