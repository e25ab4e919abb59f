"""Every number that shapes PPO, SPO and Gumbel AlphaZero. The command line reads them: torch is not imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scramjet.algorithms.schedules import Schedule
from scramjet.errors import ConfigError
from scramjet.settings import MIN_POSITIVE, largest_divisor, require, require_counts, settle

MOST_MINIBATCHES = 64
"""The most gradient steps per pass if no minibatch size is given: larger rollouts have larger minibatches."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimization."""

    learning_rate: float | str = 3e-4
    """Adam's step size: a number, or a schedule over env steps such as 0.001@0,0.0001@40M or 0.001@0,0@end."""
    gamma: float = 0.99
    """Discount of the future, per step."""
    gae_lambda: float = 0.95
    """Trades bias against variance of the advantages: 0 is one-step, 1 is Monte Carlo."""
    loss: Literal["ppo", "impala"] = "ppo"
    """The policy's loss: the clipped surrogate, or IMPALA's policy gradient."""
    advantage: Literal["auto", "gae", "vtrace"] = "auto"
    """How advantages are estimated: gae once for each rollout, vtrace again before each pass for the policy of that
    moment; auto: vtrace for impala and for trajectories of older weights, else gae."""
    vtrace_rho_clip: float = 1.0
    """vtrace: bound on the probability ratio that weights a step's error."""
    vtrace_c_clip: float = 1.0
    """vtrace: bound on the probability ratio that carries later errors back."""
    bptt_horizon: int | None = None
    """With memory: steps that gradients go back; divides num_steps; none: the whole rollout."""
    num_epochs: int | Literal["auto"] = "auto"
    """Passes over each rollout; auto: 10, for impala 1, since its loss does not bound how far a policy moves."""
    num_minibatches: int | None = None
    """Gradient steps per pass, in place of a size; each sample is in exactly one minibatch."""
    minibatch_size: int | Literal["auto"] | None = "auto"
    """Samples per gradient step; auto: 256, of other libraries' envs 64, or more where a pass would have over 64 steps;
    none: by the number of minibatches."""
    clip_epsilon: float | str = 0.2
    """How far the probability ratio may move: a number or a schedule."""
    value_clip: float | None = None
    """How far a value may move per update (the larger of the two losses counts); none: no clipping."""
    entropy_coef: float | str = 0.01
    """Weight of the entropy bonus: a number or a schedule."""
    target_entropy: float | None = None
    """Adapt entropy_coef so that actions stay this random: choices, a share of the largest entropy, 0 to 1; continuous,
    the entropy of noise of this deviation. None: not adapted."""
    target_entropy_rate: float = 2.0
    """target_entropy: how fast entropy_coef adapts: its logarithm changes by this much an update if the entropy is
    off by all of its range, or by a nat if actions are continuous."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    value_scale: Literal["none", "popart", "symlog"] = "none"
    """What the value network gives instead of returns: popart, returns normalized by running statistics; symlog, their
    logarithm with a sign, whose mean is below theirs where chance decides. A value_clip is a distance in that scale."""
    max_grad_norm: float | None = 0.5
    """Bound on the norm of all gradients together; none: no bound."""
    normalize_advantages: Literal["minibatch", "batch", "off"] = "minibatch"
    """Over which samples advantages are normalized to mean 0 and deviation 1."""
    target_kl: float | None = None
    """Stop an update's epochs once the mean KL divergence of an epoch exceeds this; none: never."""
    adam_eps: float = 1e-5
    """Adam's epsilon, which keeps its steps finite where gradients are near 0."""
    normalize_observations: bool = True
    """Normalize observations to mean 0 and deviation 1 by running statistics: numbers, not choices, flags or images."""
    normalize_rewards: bool = True
    """Scale rewards by the running deviation of the discounted return."""
    reward_clip: float | None = None
    """Clip the rewards that are learned from to -x to x; reported returns are not clipped; none: no clipping."""

    def __post_init__(self) -> None:
        settle(self)
        require(self, ("gamma", "gae_lambda"), lambda x: 0 <= x <= 1, "must be from 0 to 1")
        require_counts(self, ("num_epochs", "num_minibatches", "minibatch_size", "bptt_horizon"))
        require(self, ("value_coef",), lambda x: x >= 0, "must be at least 0")
        bounds = ("max_grad_norm", "value_clip", "reward_clip", "target_kl", "vtrace_rho_clip", "vtrace_c_clip")
        positive = ("adam_eps", "target_entropy", "target_entropy_rate", *bounds)
        require(self, positive, lambda x: x is None or x > 0, "must be above 0")
        vanishes = f"is 0 in float32; use {MIN_POSITIVE:.2g} or more"
        require(self, positive, lambda x: x is None or x >= MIN_POSITIVE, vanishes)
        if self.target_entropy is None and self.target_entropy_rate != PPOConfig.target_entropy_rate:
            raise ConfigError(
                f"target_entropy_rate={self.target_entropy_rate} does nothing without a target; add --target-entropy "
                f"0.5 or another, or leave it out"
            )
        for name in ("learning_rate", "entropy_coef", "clip_epsilon"):
            Schedule.parse(name, getattr(self, name))

    @property
    def epochs(self) -> int:
        """Passes over each rollout, decided."""
        if self.num_epochs == "auto":
            return 1 if self.loss == "impala" else 10
        return self.num_epochs

    def num_minibatches_for(self, batch_size: int, sequence_length: int = 1, usual_size: int = 256) -> int:
        """Gradient steps per pass over `batch_size` samples, all of one size; with memory, of whole sequences.

        If the config gives neither size nor number, minibatches have about `usual_size` samples.
        """
        num_units = batch_size // sequence_length
        if self.minibatch_size in ("auto", None):
            if self.num_minibatches is None:
                wanted = min(MOST_MINIBATCHES, max(1, batch_size // usual_size))
                return largest_divisor(num_units, wanted)
            if num_units % self.num_minibatches:
                fit = largest_divisor(num_units, self.num_minibatches)
                units = f"{batch_size} samples (num_envs x num_steps)"
                if sequence_length > 1:
                    units = f"{num_units} sequences of {sequence_length} steps"
                raise ConfigError(
                    f"num_minibatches={self.num_minibatches} does not split the batch of {units} evenly; "
                    f"try --num-minibatches {fit}"
                )
            return self.num_minibatches
        assert isinstance(self.minibatch_size, int)
        if batch_size % self.minibatch_size or self.minibatch_size % sequence_length:
            too_large = self.minibatch_size > batch_size
            wanted = (batch_size // 4 if too_large else self.minibatch_size) // sequence_length
            fit = sequence_length * largest_divisor(num_units, wanted or 1)
            problem = "is larger than" if too_large else "does not evenly split"
            memory = f", which memory keeps in sequences of {sequence_length} steps" if sequence_length > 1 else ""
            raise ConfigError(
                f"minibatch_size={self.minibatch_size} {problem} the batch of {batch_size} samples "
                f"(num_envs x num_steps){memory}; try --minibatch-size {fit}"
            )
        return batch_size // self.minibatch_size


@dataclass(frozen=True)
class SPOConfig:
    """Sequential Monte Carlo policy optimisation: the search by particles, and learning from it."""

    particles: int = 16
    """Particles that search from each position."""
    depth: int = 4
    """Steps that each particle looks ahead."""
    resample: Literal["period", "ess"] = "period"
    """When particles are resampled: after every resample_period steps, or where their effective sample size gets
    small."""
    resample_period: int = 4
    """period: steps between two resamplings; there is none after the last step."""
    ess_threshold: float = 0.5
    """ess: the share of effective particles below which a position's particles are resampled."""
    dirichlet_alpha: float = 0.03
    """Concentration of the Dirichlet noise in the first actions; smaller noise falls on fewer actions."""
    dirichlet_fraction: float = 0.25
    """Share of the noise in the first actions' probabilities; continuous actions have none."""
    temperature: float = 0.5
    """The temperature eta of the particles' weights when training begins; a dual variable that is learned from then
    on."""
    epsilon: float = 0.5
    """KL divergence of the searched policy from the policy that the temperature holds."""
    alpha: float = 0.5
    """The weight of the KL divergence from the target policy when training begins; a dual variable that is learned
    from then on."""
    epsilon_alpha: float = 1e-3
    """KL divergence of the policy from the target policy that alpha holds."""
    dual_learning_rate: float = 3e-4
    """Adam's step size for the temperature and alpha."""
    target_rate: float = 5e-3
    """How far the target network moves to the network after each gradient step."""
    replay_size: int = 65_536
    """Samples kept to learn from."""

    def __post_init__(self) -> None:
        prefix = "spo."
        settle(self, prefix)
        require_counts(self, ("particles", "depth", "resample_period", "replay_size"), prefix=prefix)
        require(self, ("dirichlet_fraction",), lambda x: 0 <= x <= 1, "must be from 0 to 1", prefix)
        shares = ("ess_threshold", "target_rate")
        require(self, shares, lambda x: 0 < x <= 1, "must be above 0 and at most 1", prefix)
        positive = ("dirichlet_alpha", "temperature", "epsilon", "alpha", "epsilon_alpha", "dual_learning_rate")
        require(self, positive, lambda x: x > 0, "must be above 0", prefix)
        vanishes = f"is 0 in float32; use {MIN_POSITIVE:.2g} or more"
        require(self, positive, lambda x: x >= MIN_POSITIVE, vanishes, prefix)

    def resamples_after(self, step: int) -> bool:
        """Whether particles may be resampled after step `step`, counted from 1: never after the last."""
        return step < self.depth and (self.resample == "ess" or step % self.resample_period == 0)


@dataclass(frozen=True)
class AlphaZeroConfig:
    """Gumbel AlphaZero."""

    simulations: int = 32
    """Positions that a search tries from each root: steps of the world, and evaluations of the network."""
    considered: int = 16
    """The most actions that a root tries; sequential halving drops the worse half of them again and again."""
    value_scale: float = 0.1
    """How much q-values count beside the policy's logits (the paper's c_scale)."""
    visit_offset: float = 50.0
    """How much q-values count before there are many visits (the paper's c_visit)."""
    replay_size: int = 65_536
    """Samples that are kept to learn from; at least one rollout is kept."""
    value_target: Literal["lambda", "result"] = "lambda"
    """What values learn: lambda-returns over the values of the search, or the result of the episode where the rollout
    sees it."""

    def __post_init__(self) -> None:
        settle(self, prefix="alphazero.")
        require_counts(self, ("simulations", "considered"), most=10_000, prefix="alphazero.")
        require_counts(self, ("replay_size",), prefix="alphazero.")
        require(self, ("value_scale",), lambda x: x > 0, "must be above 0", prefix="alphazero.")
        require(self, ("visit_offset",), lambda x: x >= 0, "must be at least 0", prefix="alphazero.")
