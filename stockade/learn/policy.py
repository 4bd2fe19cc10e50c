"""The agent: two small networks, one that chooses actions and one that predicts the return.

observations (b, n) -> bodies (relu or tanh) -> logits (b, actions), values (b,)

All weights lie in one flat tensor, so that averaging, clipping and Adam are one operation each. The gradient is written
out: for a chain of matrix products that is twenty lines, needs no graph, and reuses its memory. A test compares it with
autograd.
"""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from stockade.learn.kernels import close_gates, sample

_LANES = 8  #: matrix products are fastest if the number of columns is a multiple of this


@dataclass(frozen=True)
class Architecture:
    """What a policy is made of."""

    n_inputs: int  #: values of an observation, which is all that the actor sees
    actions: tuple[int, ...]  #: the environment's actions that it chooses from
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"  #: or `tanh`
    shared: bool = False  #: actor and critic have one body
    gates: tuple[int, ...] = ()  #: of each action the input that must not be 0 for it, -1 for none; () without gates
    n_hidden_inputs: int = 0  #: values behind the observation that only the critic sees, while it learns

    @property
    def bodies(self) -> tuple[str, ...]:
        """Names of the chains of hidden layers."""
        return ("body",) if self.shared else ("actor", "critic")

    @property
    def kernel_shape(self) -> tuple[tuple[int, int, int, int], np.ndarray]:
        """The network's shape as `kernels.forward` takes it."""
        shape = self.n_logits, int(self.shared), int(self.activation == "tanh"), self.n_inputs
        return shape, np.array(self.hidden, np.int64)

    @property
    def n_logits(self) -> int:
        """Columns of the policy's head: the actions, and padding that stays zero."""
        return -(-len(self.actions) // _LANES) * _LANES

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each weight; a layer is `x @ weight + bias`."""
        shapes: dict[str, tuple[int, ...]] = {}
        for body in self.bodies:
            sizes = (self.inputs_of(body), *self.hidden)
            for k, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
                shapes[f"{body}.{k}.weight"], shapes[f"{body}.{k}.bias"] = (n_in, n_out), (n_out,)
        for head, n_out in (("policy", self.n_logits), ("value", 1)):
            shapes[f"{head}.weight"], shapes[f"{head}.bias"] = (self.hidden[-1], n_out), (n_out,)
        return shapes

    def inputs_of(self, body: str) -> int:
        """How many values a chain of hidden layers sees, the first ones."""
        return self.n_all_inputs if body == "critic" else self.n_inputs

    @property
    def n_all_inputs(self) -> int:
        """With those that only the critic sees."""
        return self.n_inputs + self.n_hidden_inputs

    def to_json(self) -> dict[str, Any]:
        optional = "gates", "n_hidden_inputs"
        return {name: value for name, value in asdict(self).items() if name not in optional or value}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
        return cls(**{**content, **lists})


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Products as small as ours are slower on several threads; the caller's setting is given back."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def views_of(flat: Tensor, architecture: Architecture) -> dict[str, Tensor]:
    """Name each weight's part of a flat tensor."""
    shapes = architecture.shapes()
    parts = flat.split([math.prod(shape) for shape in shapes.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


class Policy:
    """Weights, and the actions and values that they give for an observation."""

    def __init__(self, architecture: Architecture) -> None:
        """All weights zero; see `create` and `load_weights`."""
        self.architecture = architecture
        self.flat = torch.zeros(sum(math.prod(shape) for shape in architecture.shapes().values()))
        self.weights = views_of(self.flat, architecture)
        self.actions = np.array(architecture.actions, np.int64)  # the environment's, for each column of the logits
        n = len(self.actions)  # the other columns of the policy's head are padding
        self._real = {k: w[..., :n] if k.startswith("policy") else w for k, w in self.weights.items()}
        self._workspace: Workspace | None = None

    @classmethod
    def create(cls, architecture: Architecture, seed: int) -> Self:
        """Random weights: orthogonal, small for the policy's head, so that all actions are about equally likely."""
        policy = cls(architecture)
        generator = torch.Generator().manual_seed(seed)
        gains = {"policy.weight": 0.01, "value.weight": 1.0}
        for name, real in policy._real.items():
            if name.endswith("weight"):
                start = torch.empty(real.shape)
                real.copy_(torch.nn.init.orthogonal_(start, gains.get(name, math.sqrt(2)), generator=generator))
        return policy

    def save_weights(self) -> dict[str, np.ndarray]:
        """Copies of the weights by name, without padding."""
        return {name: real.numpy().copy() for name, real in self._real.items()}

    def load_weights(self, weights: dict[str, np.ndarray], prefix: str = "") -> None:
        """Take the weights that `save_weights` gave; in `weights` their names have this prefix."""
        for name, real in self._real.items():
            given = weights.get(prefix + name)
            found = "nothing" if given is None else given.shape
            if given is None or found != real.shape:
                raise ValueError(f"the weights {name} should have shape {tuple(real.shape)}; found {found}")
            real.copy_(torch.from_numpy(np.ascontiguousarray(given, np.float32)))

    @one_torch_thread()
    def evaluate(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits (b, actions) and values (b,), float32, valid until the next call."""
        logits, values = self._room(len(observations)).forward(torch.from_numpy(observations))
        return logits.numpy()[:, : len(self.actions)], values.numpy()

    @one_torch_thread()
    def act(self, observations: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
        """(b,) int64, the environment's actions: sampled, or without a generator the likeliest."""
        b, n = len(observations), len(self.actions)
        logits = self._room(b).logits(torch.from_numpy(observations)).numpy()[:, :n]
        if generator is None:
            return self.actions[logits.argmax(axis=1)]
        chosen, log_probs = np.empty(b, np.int64), np.empty(b, np.float32)
        sample(logits, n, generator.random(b, np.float32), chosen, log_probs)
        return self.actions[chosen]

    def _room(self, b: int) -> "Workspace":
        if self._workspace is None or self._workspace.rows < b:
            self._workspace = Workspace(self, b)
        return self._workspace


class Workspace:
    """Memory for passing up to `rows` observations through a policy, forwards and backwards: to `gradient`, flat."""

    def __init__(self, policy: Policy, rows: int) -> None:
        arch = policy.architecture
        self.policy, self.rows = policy, rows
        self._ends = arch.bodies[0], arch.bodies[-1]  # the actor's and the critic's
        self._inputs = torch.empty(rows, arch.n_all_inputs)
        self._layers = {body: [torch.empty(rows, n) for n in arch.hidden] for body in arch.bodies}
        self._slopes = {body: [torch.empty(rows, n) for n in arch.hidden] for body in arch.bodies}
        self._logits = torch.empty(rows, arch.n_logits)
        self._values = torch.empty(rows, 1)
        self.gradient = torch.zeros_like(policy.flat)
        self._gradients = views_of(self.gradient, arch)
        self._tanh = arch.activation == "tanh"
        self._gates = np.array(arch.gates, np.int64)

    def logits(self, observations: Tensor) -> Tensor:
        """Of b observations of any type: (b, n_logits), in this workspace's memory; the critic is left out."""
        b, weights = len(observations), self.policy.weights
        given = observations.reshape(b, -1)
        self._inputs[:b, : given.shape[1]].copy_(given)
        last = self._hidden(self._ends[0], b)
        logits = torch.addmm(weights["policy.bias"], last, weights["policy.weight"], out=self._logits[:b])
        if len(self._gates):
            close_gates(self._inputs[:b].numpy(), self._gates, logits.numpy())
        return logits

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Of b observations of any type: logits (b, n_logits) and values (b,), in this workspace's memory."""
        b, weights, (actor, critic) = len(observations), self.policy.weights, self._ends
        logits = self.logits(observations)
        last = self._layers[actor][-1][:b] if critic == actor else self._hidden(critic, b)
        torch.addmm(weights["value.bias"], last, weights["value.weight"], out=self._values[:b])
        return logits, self._values[:b].view(b)

    def _hidden(self, body: str, b: int) -> Tensor:
        """The last hidden layer of a body, from the inputs."""
        x, weights = self._seen(body, b), self.policy.weights
        for k, layer in enumerate(self._layers[body]):
            y = layer[:b]
            torch.addmm(weights[f"{body}.{k}.bias"], x, weights[f"{body}.{k}.weight"], out=y)
            x = y.tanh_() if self._tanh else y.relu_()
        return x

    def _seen(self, body: str, b: int) -> Tensor:
        return self._inputs[:b, : self.policy.architecture.inputs_of(body)]

    def backward(self, b: int) -> None:
        """From the gradients by logits and values, which stand in their place, to `gradient`."""
        weights, gradients = self.policy.weights, self._gradients
        actor, critic = self._ends
        for head, body, slope in (("policy", actor, self._logits[:b]), ("value", critic, self._values[:b])):
            torch.mm(self._layers[body][-1][:b].t(), slope, out=gradients[f"{head}.weight"])
            torch.sum(slope, 0, out=gradients[f"{head}.bias"])
        torch.mm(self._logits[:b], weights["policy.weight"].t(), out=self._slopes[actor][-1][:b])
        if actor == critic:
            self._slopes[actor][-1][:b].addmm_(self._values[:b], weights["value.weight"].t())
        else:
            torch.mul(self._values[:b], weights["value.weight"].t(), out=self._slopes[critic][-1][:b])
        for body, layers in self._layers.items():
            slopes = self._slopes[body]
            for k in range(len(layers) - 1, -1, -1):
                y, slope = layers[k][:b], slopes[k][:b]
                if self._tanh:
                    torch.ops.aten.tanh_backward.grad_input(slope, y, grad_input=slope)
                else:
                    torch.ops.aten.threshold_backward.grad_input(slope, y, 0, grad_input=slope)
                x = layers[k - 1][:b] if k else self._seen(body, b)
                torch.mm(x.t(), slope, out=gradients[f"{body}.{k}.weight"])
                torch.sum(slope, 0, out=gradients[f"{body}.{k}.bias"])
                if k:
                    torch.mm(slope, weights[f"{body}.{k}.weight"].t(), out=slopes[k - 1][:b])
