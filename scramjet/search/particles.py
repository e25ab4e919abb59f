"""The search of SPO (Macfarlane et al. 2024, Algorithm 1): particles walk by the policy, are weighed and resampled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scramjet.algorithms.config import SPOConfig
from scramjet.algorithms.spo import (
    advantage,
    effective_sample_size,
    fitted_temperature,
    inverted,
    normalized_weights,
    resampled,
)
from scramjet.engine.layout import obs_bytes
from scramjet.engine.simulator import Simulator
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.executors.executor import ActStep, Executor
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies.categorical import draw_log_gammas
from scramjet.policies.networks import PolicyOutput
from scramjet.policies.policy import Policy
from scramjet.runtime.machine import require_memory
from scramjet.search.search import Rewards, Search, SearchResult


@dataclass(slots=True)
class ParticleResult(SearchResult):
    """What P particles found from each of N roots."""

    root_actions: Tensor  # [N, P, *action_shape], the first actions of the particles that are left
    weights: Tensor  # [N, P], of these particles; each row sums to 1
    advantages: Tensor  # [N, depth, P], accumulated since the last resampling, before the one after this step
    is_counted: Tensor  # [N, depth] bool, whether a period ends with this step: by resampling, or with the search
    ess: Tensor  # [N], effective sample size of the final weights, as a share of P
    improvement: Tensor  # [N], advantage of the weighted particles over the policy's own draws, summed over periods


@dataclass(slots=True)
class Particles:
    """What B = N x P particles carry beside their branches; those of one root are neighbours."""

    root_action: Tensor  # [B, *action_shape], the first action
    accumulated: Tensor  # [B], advantages since the last resampling
    value: Tensor  # [B], of where it stands, for whoever is to move there
    logits: Tensor | None  # [B, num_inputs], of where it stands; None where actions are drawn from observations

    def gathered(self, source: Tensor) -> Particles:
        """Copies of the particles `source` [B]."""
        return Particles(
            root_action=self.root_action.index_select(0, source),
            accumulated=self.accumulated.index_select(0, source),
            value=self.value.index_select(0, source),
            logits=None if self.logits is None else self.logits.index_select(0, source),
        )


class ParticleSearch(Search[ParticleResult]):
    """Particles from each root; the policy proposes their actions, and its values weigh them.

    Where two seats take turns, only moves of the root's own seat change a weight. The other seat moves by the policy,
    as a part of the world: were its moves weighted, resampling would pick its blunders.
    """

    def __init__(
        self,
        pool: WorldPool,
        policy: Policy,
        num_roots: int,
        rewards: Rewards,
        config: SPOConfig,
        executor: Executor | None = None,
    ) -> None:
        """`executor` draws actions and computes values where the policy does these apart; None: torch's operators."""
        self.num_branches = num_branches = num_roots * config.particles
        shown = pool.state_bytes().shape[1] + obs_bytes(pool.observation_space)
        require_memory(
            num_branches * (2 * shown + 4 * config.depth),  # twice: resampling copies them
            f"particles of {pool.name} (num_envs={num_roots}, particles={config.particles}, depth={config.depth}, "
            f"records and observations of {shown} bytes)",
            "lower --num-envs or --spo.particles",
        )
        super().__init__(pool, policy, num_roots, rewards)
        self._executor = TorchExecutor(policy) if executor is None else executor
        self.config = config
        self.simulator = Simulator(pool, num_branches)
        device, distribution = self.device, policy.distribution
        self.eta = torch.full((1,), config.temperature, device=device)
        """The temperature [1]; who learns it writes it here."""
        self.fits_temperature = False
        """Whether each root has a temperature fitted to its particles in place of `eta`, where none was learned."""
        self._noise = distribution.noise(config.depth, num_branches, torch.Generator(device))  # [depth, B, ...]
        self._log_gammas = torch.zeros(num_roots, distribution.num_inputs, device=device)
        self._uniform = torch.zeros(config.depth, num_roots, 1, device=device)  # for each resampling, and the choice
        shape = num_branches, *distribution.action_shape
        self._action = torch.zeros(shape, dtype=distribution.action_dtype, device=device)
        self._log_prob = torch.zeros(num_branches, device=device)
        self._value_buffer = torch.zeros(num_branches, device=device)
        # A network that computes values apart from logits need not be asked for both at once, and draws by kernels.
        self._draws = (
            self._executor.actions([self._act_step(step) for step in range(config.depth)]) if policy.splits else []
        )
        self._itself = torch.arange(config.particles, device=device).expand(num_roots, -1)  # [N, P]
        self._first = torch.arange(num_roots, device=device).unsqueeze(1) * config.particles  # [N, 1], first of a root

    def _act_step(self, step: int) -> ActStep:
        """The buffers of drawing an action for each particle where it stands."""
        now = self.simulator.now
        mask, noise = self._mask(now.mask), self._noise[step]
        return ActStep(now.obs, mask, noise, self._action, self._log_prob, value=None, state=None)

    def _draw(self, generator: torch.Generator) -> None:
        """Draw the noise of all actions, of the roots, of resampling and of the choice."""
        self.policy.distribution.noise(self.config.depth, self.num_branches, generator, out=self._noise)
        draw_log_gammas(self.config.dirichlet_alpha, self._log_gammas, generator)
        torch.rand(self._uniform.shape, generator=generator, out=self._uniform, device=self.device)

    def _search(self) -> ParticleResult:
        """Walk, weigh, resample; then choose among the first actions of the particles that are left."""
        root = self._evaluate(self.roots.obs)
        particles = self._at_the_roots(root)
        advantages, ends = [], []
        for step in range(1, self.config.depth + 1):
            action = self._drawn(particles, step)
            if step == 1:
                particles.root_action = action.clone()
            self._walk(particles, action, step)
            advantages.append(particles.accumulated.view(self.num_roots, -1))
            particles, period_ends = self._resampled(particles, step)
            ends.append(period_ends)
        return self._result(root, particles, torch.stack(advantages, dim=1), torch.stack(ends, dim=1))

    def _at_the_roots(self, root: PolicyOutput) -> Particles:
        """P particles at each root; their first actions are drawn from the policy with noise."""
        roots, now = self.roots, self.simulator.now
        self.simulator.load(roots.records, self.config.particles)
        now.mask.copy_(self._for_each_particle(roots.mask))
        if self.has_seats:
            now.turn.copy_(self._for_each_particle(roots.turn))
        fraction = 0.0 if self.is_deterministic else self.config.dirichlet_fraction
        mixed = self.policy.distribution.mixed_with_dirichlet
        noisy = mixed(root.logits, self._mask(roots.mask), self._log_gammas, fraction)
        value = self._for_each_particle(root.value)
        return Particles(self._action, torch.zeros_like(value), value, self._for_each_particle(noisy))

    def _for_each_particle(self, of_roots: Tensor) -> Tensor:
        """Numbers of roots [N, ...], or none [0], as those of their particles, [B, ...]."""
        return of_roots.unsqueeze(1).expand(-1, self.config.particles, *of_roots.shape[1:]).flatten(0, 1)

    def _drawn(self, particles: Particles, step: int) -> Tensor:
        """An action for each particle where it stands, [B, *action_shape]; the next call writes over it."""
        if particles.logits is None:
            self._draws[step - 1]()
        else:
            mask, noise = self._mask(self.simulator.now.mask), self._noise[step - 1]
            self.policy.distribution.sample(particles.logits, mask, noise, self._action, self._log_prob)
        return self._action

    def _walk(self, particles: Particles, action: Tensor, step: int) -> None:
        """Step the live particles and add each one's advantage; a particle that had ended keeps what it has."""
        now = self.simulator.now
        counts, mover = self.simulator.live.clone(), now.turn.clone()
        self.simulator.step(self.policy.distribution.env_action(action), self._key, step)
        before = particles.value
        if step < self.config.depth and not self._draws:
            after = self._evaluate(now.obs)
            particles.value, particles.logits = after.value, after.logits
        else:
            self._executor.values(now.obs, None, self._value_buffer)
            particles.value, particles.logits = self._value_buffer.clone(), None
        next_value = particles.value
        if self.has_seats:
            next_value = torch.where(now.turn == mover, next_value, -next_value)
            counts &= mover == self._for_each_particle(self.roots.turn)
        gain = self._gain(now, mover)
        gained = advantage(gain, before, next_value, self._is_over(now), gamma=self.rewards.gamma)
        particles.accumulated = particles.accumulated + torch.where(counts, gained, 0.0)

    def _weights(self, accumulated: Tensor) -> Tensor:
        """Weights [N, P] of particles that accumulated these advantages [N, P]."""
        epsilon = self.config.epsilon
        eta = fitted_temperature(accumulated, epsilon=epsilon) if self.fits_temperature else self.eta
        return normalized_weights(accumulated, eta)

    def _resampled(self, particles: Particles, step: int) -> tuple[Particles, Tensor]:
        """The particles after resampling those of the roots where it is due; where a period ends, [N] bool."""
        config = self.config
        ends = torch.full((self.num_roots,), True, device=self.device)
        if not config.resamples_after(step):
            return particles, ends if step == config.depth else ~ends
        weights = self._weights(particles.accumulated.view(self.num_roots, -1))
        ancestors = resampled(weights, self._uniform[step - 1])
        if config.resample == "ess":
            ends = effective_sample_size(weights) < config.ess_threshold * config.particles
            ancestors = torch.where(ends.unsqueeze(1), ancestors, self._itself)
        source = (self._first + ancestors).flatten()  # [B]
        self.simulator.gather(source)
        particles = particles.gathered(source)
        particles.accumulated = torch.where(self._for_each_particle(ends), 0.0, particles.accumulated)
        return particles, ends

    def _result(
        self, root: PolicyOutput, particles: Particles, advantages: Tensor, is_counted: Tensor
    ) -> ParticleResult:
        weights = torch.stack([self._weights(each) for each in advantages.unbind(1)], dim=1)  # [N, depth, P]
        gained = (weights * advantages).sum(-1) - advantages.mean(-1)
        root_actions = particles.root_action.unflatten(0, (self.num_roots, -1))
        return ParticleResult(
            action=self._chosen(root_actions, weights[:, -1]),
            value=root.value,
            logits=root.logits,
            root_actions=root_actions,
            weights=weights[:, -1],
            advantages=advantages,
            is_counted=is_counted,
            ess=effective_sample_size(weights[:, -1]) / self.config.particles,
            improvement=torch.where(is_counted, gained, 0.0).sum(-1),
        )

    def _chosen(self, root_actions: Tensor, weights: Tensor) -> Tensor:
        """One of the actions [N, P, *action_shape] of each root, drawn by their weights [N, P].

        Without exploration it is the mode of a policy that is fitted to them: the choice of largest total weight, of
        several choices each one's, and of continuous actions the weighted mean.
        """
        if not self.is_deterministic:
            chosen = inverted(weights, self._uniform[-1]).clamp(
                max=self.config.particles - 1
            )  # [N, 1]; NaN is told later
            return root_actions.flatten(0, 1).index_select(0, (self._first + chosen).flatten())
        if root_actions.is_floating_point():
            return torch.einsum("np,npd->nd", weights, root_actions)
        parts = root_actions.unsqueeze(-1) if root_actions.dim() == 2 else root_actions  # [N, P, components]
        totals = weights.new_zeros(self.num_roots, self.policy.distribution.num_inputs)  # no component has more choices
        modes = [totals.scatter_add(1, part, weights).argmax(-1) for part in parts.unbind(-1)]
        return modes[0] if root_actions.dim() == 2 else torch.stack(modes, dim=-1)
