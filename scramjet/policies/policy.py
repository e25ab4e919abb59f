"""The policy: observation normalizer, network, and distribution over actions; and the layer that gives its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scramjet.adapters.env_spaces import EnvSpaces
from scramjet.engine.privileged import CRITIC, POLICY, is_privileged, policy_part, policy_space
from scramjet.engine.trees import leaves, map_leaves
from scramjet.errors import ConfigError
from scramjet.policies.config import PolicyConfig
from scramjet.policies.distributions import Distribution, make_distribution
from scramjet.policies.encoders.attention import PooledValueHead
from scramjet.policies.layers import TwoHotHead, symexp
from scramjet.policies.networks import PolicyOutput, check_network, splits
from scramjet.policies.normalization import make_normalizer
from scramjet.policies.observations import Observations, PolicyState, floats_as_float32, lowest_observations, predict
from scramjet.policies.symmetries import AveragedNetwork, CanonicalNetwork
from scramjet.runtime.checkpoints import write_checkpoint
from scramjet.settings import coerce


@dataclass(frozen=True, slots=True)
class Facts:
    """What a file of a policy says beside its weights: how it is built, what it observes, where it comes from."""

    step: int
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]  # how its values are normalized, where they are


class Policy(nn.Module):
    """Chooses actions and estimates values.

    `network` is any module with `forward(obs) -> (logits [B, distribution.num_inputs], value [B])`, where `obs` is a
    batch as the observation space lays it out (see `observations`). Where it also has the methods `logits(obs)` and
    `value(obs)`, a rollout asks for logits step by step and for all values at its end.

    A recurrent network has an attribute `state_size` and `forward(obs, state, begins) -> (logits, value, state)`:
    B = T * rows observations, T steps of each row, time-major; `state` [rows, state_size] before the first step and
    after the last; `begins` as for a `Core`. A state of zeros is the beginning of an episode.
    """

    distribution: Distribution

    def __init__(
        self,
        network: nn.Module,
        observation_space: Any,
        action_space: Any,
        config: PolicyConfig | None = None,
        *,
        normalize_observations: bool = False,
    ) -> None:
        super().__init__()
        config = PolicyConfig() if config is None else config
        self.distribution = make_distribution(action_space, config)
        check_network(network, observation_space, action_space, config)
        self.network = network
        self.observation_space = observation_space
        """What its network sees, as pools show it."""
        self.env_spaces = EnvSpaces(policy_space(observation_space), action_space, observation_space, action_space)
        """The spaces in which `predict` takes observations and gives actions: by default the policy's own; training and
        loading a policy set those of the env."""
        self.normalizer = make_normalizer(observation_space) if normalize_observations else None
        self.splits = splits(network)
        self.state_size: int = getattr(network, "state_size", 0)
        """Numbers in the recurrent state of a row; 0 if the network is not recurrent."""
        self.uses_bfloat16 = False
        """Whether matrix products on the GPU are computed in bfloat16."""
        self.values_are_symlog = False
        """Whether the network gives the symlog of values, which the policy turns back into values. While it is trained
        with `value_scale` symlog, the learner does that instead."""
        self.facts: Facts | None = None
        """What `save` writes beside the weights; set where a policy is trained or loaded."""

    def save(self, path: str | Path) -> Path:
        """Write the policy to a folder, from which `scramjet.load_policy(path)` reads it; returns the folder.

        A policy that was saved there before is replaced, whole or not at all; anything else is refused.
        """
        folder: Path = coerce("path", path, Path)
        if self.facts is None:
            raise ConfigError(
                "this policy was neither trained nor loaded by scramjet, so a file could not say how it is built; keep "
                "its weights with torch.save(policy.state_dict(), ...)"
            )
        write_checkpoint(folder, self.facts.step, self.state_dict(), self.facts.tensors, self.facts.metadata)
        return folder

    @property
    def two_hot_head(self) -> TwoHotHead | None:
        """The head that gives values as a distribution over bins; None where values are numbers."""
        return next((module for module in self.modules() if isinstance(module, TwoHotHead)), None)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters(), torch.empty(0)).device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Policy:
        """Move the distribution's tensors along with the weights: `to`, `cpu` and `cuda` end here."""
        super()._apply(fn, recurse)
        self.distribution.apply(fn)
        return self

    def forward(self, obs: Observations, state: Tensor | None = None, begins: Tensor | None = None) -> PolicyOutput:
        """Logits and values of observations as the pool gives them, and the recurrent state after them."""
        with self._precision():
            memory = (state, begins) if self.state_size else ()
            output = PolicyOutput(*self.network(self.prepare(obs), *memory))
        if self._rounds:
            output = PolicyOutput(*(part if part is None else part.float() for part in output))  # type: ignore[arg-type]
        return output._replace(value=symexp(output.value)) if self.values_are_symlog else output

    def logits(self, obs: Observations) -> Tensor:
        """Logits alone, [B, num_inputs]; only where `splits`."""
        with self._precision():
            logits: Tensor = self.network.logits(self.prepare(obs))  # type: ignore[operator]
        return logits.float() if self._rounds else logits

    def value(self, obs: Observations, state: Tensor | None = None) -> Tensor:
        """Values alone, [B]."""
        if self.splits:
            with self._precision():
                value: Tensor = self.network.value(self.prepare(obs))  # type: ignore[operator]
            value = value.float() if self._rounds else value
            return symexp(value) if self.values_are_symlog else value
        return self.forward(obs, state).value

    def initial_state(self, num_rows: int) -> Tensor:
        """The recurrent state when episodes begin: zeros [num_rows, state_size]."""
        return torch.zeros(num_rows, self.state_size, device=self.device)

    @torch.inference_mode()
    def act(
        self, obs: Any, state: Tensor | None = None, *, mask: Any = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """The most likely legal action for each observation, as the env receives it: how a trained policy plays.

        With a `generator`, on the policy's device, an action drawn at random instead, as in training.

        Takes observations and masks as a pool gives them, arrays or tensors; what only a critic sees may be left out
        (`observe_critic`), and zeros stand for it. A recurrent policy needs its `state` and
        updates it in place; set rows to zero whose episode has ended:

            state = policy.initial_state(pool.num_rows)
            out = pool.step(policy.act(out.obs, state, mask=out.mask).numpy())
            state[out.terminated | out.truncated] = 0
        """
        device = self.device
        obs = self._with_critic_part(map_leaves(lambda leaf: torch.as_tensor(leaf, device=device), obs))
        mask = None if mask is None or not mask.shape[-1] else torch.as_tensor(mask, device=device)
        if state is not None or self.state_size:
            self._check_state(state, len(leaves(obs)[0]))
        output = PolicyOutput(self.logits(obs), torch.empty(0)) if self.splits else self.forward(obs, state)
        if self.state_size:
            assert state is not None
            assert output.state is not None
            state.copy_(output.state)
        if generator is None:
            return self.distribution.env_action(self.distribution.mode(output.logits, mask))
        return self.distribution.env_action(self._drawn(output.logits, mask, generator))

    def predict(
        self,
        obs: Any,
        state: PolicyState | None = None,
        mask: Any = None,
        deterministic: bool = True,
        episode_start: Any = None,
    ) -> tuple[Any, PolicyState | None]:
        """The action for one observation, or for a batch of them, and the state to give with the next.

        Observations and actions are those of the env, or of a vector env. `state` is None where episodes begin, then
        what the last call returned; it stays None for a policy that is neither recurrent nor sees stacked frames. It is
        never changed in place. `episode_start`, a truth value for each observation, says which episodes begin with it.
        `mask` says which choices are legal. The action is the most likely one, or if not `deterministic` one drawn with
        torch's default generator. Raises a PredictError where something does not fit.
        """
        return predict(self, self.env_spaces, obs, state, mask, deterministic, episode_start)

    def _with_critic_part(self, obs: Observations) -> Observations:
        """Observations as the network takes them, with zeros for the critic where they have the policy's part alone."""
        space = self.observation_space
        if not is_privileged(space) or (isinstance(obs, dict) and CRITIC in obs):
            return obs
        zeros = lowest_observations(space.spaces[CRITIC], len(leaves(obs)[0]))
        return {POLICY: obs, CRITIC: map_leaves(lambda leaf: leaf.to(self.device), zeros)}

    def _drawn(self, logits: Tensor, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        """An action for each row of logits, [B, *action_shape]."""
        distribution, num_rows = self.distribution, len(logits)
        shape, dtype = (num_rows, *distribution.action_shape), distribution.action_dtype
        action, log_prob = torch.empty(shape, dtype=dtype, device=self.device), logits.new_empty(num_rows)
        distribution.sample(logits, mask, distribution.noise(1, num_rows, generator)[0], action, log_prob)
        return action

    def _check_state(self, state: Tensor | None, num_rows: int) -> None:
        """Refuse to act without the recurrent state that the policy needs, or with something that is none."""
        if state is None:
            raise ConfigError(
                f"this policy has memory: make state = policy.initial_state({num_rows}) when episodes begin and call "
                f"policy.act(obs, state) at every step"
            )
        if not self.state_size:
            raise ConfigError("this policy has no memory: call policy.act(obs), and give a mask by name: mask=...")
        shape = (num_rows, self.state_size)
        if not isinstance(state, Tensor) or tuple(state.shape) != shape or state.dtype != torch.float32:
            kind = "tensor" if isinstance(state, Tensor) else type(state).__name__
            given = f"a {kind} of {state.dtype} {list(state.shape)}" if hasattr(state, "shape") else f"a {kind}"
            raise ConfigError(
                f"state is {given}; this policy takes a tensor of float32 {list(shape)}, made by "
                f"policy.initial_state({num_rows}) (a mask is given by name: mask=...)"
            )

    @property
    def _rounds(self) -> bool:
        return self.uses_bfloat16 and self.device.type == "cuda"

    def _precision(self) -> AbstractContextManager[Any]:
        if not self._rounds:
            return nullcontext()
        # No cache of rounded weights: a recorded CUDA graph would read the weights of another step.
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)

    def prepare(self, obs: Observations) -> Observations:
        """Observations as the network takes them: normalized if there is a normalizer, floats as float32."""
        if self.normalizer is not None:
            obs = self.normalizer(obs)
        return floats_as_float32(obs)

    def prepare_seen(self, obs: Observations) -> Observations:
        """What the policy sees of observations as networks take it, without the part that only its critic sees."""
        if not is_privileged(self.observation_space):
            return self.prepare(obs)
        prepared = self.prepare({POLICY: policy_part(obs)})
        assert isinstance(prepared, dict)
        return prepared[POLICY]


# --- finds the layer of a network that gives its values, which PopArt rescales


def value_layer(policy: Policy) -> nn.Linear:
    """The linear layer whose one output is the value; a ConfigError says what a network without one must name."""
    network: Any = policy.network
    while isinstance(network, CanonicalNetwork | AveragedNetwork):
        network = network.network
    layer = getattr(network, "critic_head", None)
    layer = layer.output if isinstance(layer, PooledValueHead) else layer
    name = type(network).__name__
    if not isinstance(layer, nn.Linear) or layer.out_features != 1 or layer.bias is None:
        given = "no such layer" if layer is None else f"{layer} there"
        raise ConfigError(
            f"value_scale='popart' rescales the layer that gives the values, and the network {name} has {given}; name "
            f"it self.critic_head = nn.Linear(..., 1), or use --value-scale symlog"
        )
    return layer


_PROBES = ((2.0, 1.0), (0.5, -3.0))
"""Factors and offsets by which the layer is rescaled to see whether values follow. A network that gives a * output + c
follows one of them wherever c * (1 - factor) = offset * (1 - a), and both only with a = 1 and c = 0."""


@torch.no_grad()
def check_value_layer(policy: Policy, observation_space: Any) -> None:
    """Refuse a network that returns something else than the output of its value layer as the value."""
    layer, was_training = value_layer(policy), policy.training
    kept = layer.weight.clone(), layer.bias.clone()
    obs = map_leaves(lambda leaf: leaf.to(policy.device), lowest_observations(observation_space, 2))
    state = policy.initial_state(2) if policy.state_size else None
    policy.eval()
    before = policy.value(obs, state)
    follows = True
    for factor, offset in _PROBES:
        layer.weight.copy_(factor * kept[0])
        layer.bias.copy_(factor * kept[1] + offset)
        after = policy.value(obs, state)
        follows &= torch.allclose(after, factor * before + offset, rtol=1e-2, atol=1e-2)
    for parameter, numbers in zip((layer.weight, layer.bias), kept, strict=True):
        parameter.copy_(numbers)
    policy.train(was_training)
    if not follows:
        raise ConfigError(
            f"value_scale='popart' rescales critic_head, and the network {type(policy.network).__name__} returns "
            f"something else than its output as the value; return it as it is, or use --value-scale symlog"
        )
