"""Types of the keywords of `scramjet.train`. Made by tools/keyword_types.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from scramjet.algorithms.config import AlphaZeroConfig, PPOConfig, SPOConfig
from scramjet.policies.config import PolicyConfig
from scramjet.selfplay.config import SelfPlayConfig
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig
from scramjet.training.curiosity.config import BonusConfig


class PPOSettings(TypedDict, total=False):
    """What a dict given as `ppo` may hold."""

    learning_rate: float | str
    """Adam's step size: a number, or a schedule over env steps such as 0.001@0,0.0001@40M or 0.001@0,0@end."""
    gamma: float
    """Discount of the future, per step."""
    gae_lambda: float
    """Trades bias against variance of the advantages: 0 is one-step, 1 is Monte Carlo."""
    loss: Literal["ppo", "impala"]
    """The policy's loss: the clipped surrogate, or IMPALA's policy gradient."""
    advantage: Literal["auto", "gae", "vtrace"]
    """How advantages are estimated: gae once for each rollout, vtrace again before each pass for the policy of that
    moment; auto: vtrace for impala and for trajectories of older weights, else gae."""
    vtrace_rho_clip: float
    """vtrace: bound on the probability ratio that weights a step's error."""
    vtrace_c_clip: float
    """vtrace: bound on the probability ratio that carries later errors back."""
    bptt_horizon: int | None
    """With memory: steps that gradients go back; divides num_steps; none: the whole rollout."""
    num_epochs: int | Literal["auto"]
    """Passes over each rollout; auto: 10, for impala 1, since its loss does not bound how far a policy moves."""
    num_minibatches: int | None
    """Gradient steps per pass, in place of a size; each sample is in exactly one minibatch."""
    minibatch_size: int | Literal["auto"] | None
    """Samples per gradient step; auto: 256, of other libraries' envs 64, or more where a pass would have over 64
    steps; none: by the number of minibatches."""
    clip_epsilon: float | str
    """How far the probability ratio may move: a number or a schedule."""
    value_clip: float | None
    """How far a value may move per update (the larger of the two losses counts); none: no clipping."""
    entropy_coef: float | str
    """Weight of the entropy bonus: a number or a schedule."""
    target_entropy: float | None
    """Adapt entropy_coef so that actions stay this random: choices, a share of the largest entropy, 0 to 1;
    continuous, the entropy of noise of this deviation. None: not adapted."""
    target_entropy_rate: float
    """target_entropy: how fast entropy_coef adapts: its logarithm changes by this much an update if the entropy is
    off by all of its range, or by a nat if actions are continuous."""
    value_coef: float
    """Weight of the value loss."""
    value_scale: Literal["none", "popart", "symlog"]
    """What the value network gives instead of returns: popart, returns normalized by running statistics; symlog,
    their logarithm with a sign, whose mean is below theirs where chance decides. A value_clip is a distance in that
    scale."""
    max_grad_norm: float | None
    """Bound on the norm of all gradients together; none: no bound."""
    normalize_advantages: Literal["minibatch", "batch", "off"]
    """Over which samples advantages are normalized to mean 0 and deviation 1."""
    target_kl: float | None
    """Stop an update's epochs once the mean KL divergence of an epoch exceeds this; none: never."""
    adam_eps: float
    """Adam's epsilon, which keeps its steps finite where gradients are near 0."""
    normalize_observations: bool
    """Normalize observations to mean 0 and deviation 1 by running statistics: numbers, not choices, flags or images."""
    normalize_rewards: bool
    """Scale rewards by the running deviation of the discounted return."""
    reward_clip: float | None
    """Clip the rewards that are learned from to -x to x; reported returns are not clipped; none: no clipping."""


class SPOSettings(TypedDict, total=False):
    """What a dict given as `spo` may hold."""

    particles: int
    """Particles that search from each position."""
    depth: int
    """Steps that each particle looks ahead."""
    resample: Literal["period", "ess"]
    """When particles are resampled: after every resample_period steps, or where their effective sample size gets
    small."""
    resample_period: int
    """period: steps between two resamplings; there is none after the last step."""
    ess_threshold: float
    """ess: the share of effective particles below which a position's particles are resampled."""
    dirichlet_alpha: float
    """Concentration of the Dirichlet noise in the first actions; smaller noise falls on fewer actions."""
    dirichlet_fraction: float
    """Share of the noise in the first actions' probabilities; continuous actions have none."""
    temperature: float
    """The temperature eta of the particles' weights when training begins; a dual variable that is learned from then
    on."""
    epsilon: float
    """KL divergence of the searched policy from the policy that the temperature holds."""
    alpha: float
    """The weight of the KL divergence from the target policy when training begins; a dual variable that is learned
    from then on."""
    epsilon_alpha: float
    """KL divergence of the policy from the target policy that alpha holds."""
    dual_learning_rate: float
    """Adam's step size for the temperature and alpha."""
    target_rate: float
    """How far the target network moves to the network after each gradient step."""
    replay_size: int
    """Samples kept to learn from."""


class AlphaZeroSettings(TypedDict, total=False):
    """What a dict given as `alphazero` may hold."""

    simulations: int
    """Positions that a search tries from each root: steps of the world, and evaluations of the network."""
    considered: int
    """The most actions that a root tries; sequential halving drops the worse half of them again and again."""
    value_scale: float
    """How much q-values count beside the policy's logits (the paper's c_scale)."""
    visit_offset: float
    """How much q-values count before there are many visits (the paper's c_visit)."""
    replay_size: int
    """Samples that are kept to learn from; at least one rollout is kept."""
    value_target: Literal["lambda", "result"]
    """What values learn: lambda-returns over the values of the search, or the result of the episode where the
    rollout sees it."""


class BonusSettings(TypedDict, total=False):
    """What a dict given as `bonus` may hold."""

    coef: float | Literal["auto"]
    """Weight of the bonuses' advantages in what the policy learns from, at most 1000; auto: 1, or 0.1 where bonuses
    end with the episode (noveld, counts, e3b), or it would pay not to finish one."""
    reward_coef: float
    """Weight of the rewards' advantages beside those of bonuses, at most 1000; 0: learn from bonuses alone."""
    gamma: float
    """Discount of bonuses, per step; that of rewards is --gamma (0.999 in the paper on rnd)."""
    learning_rate: float
    """Adam's step size for everything that curiosity learns: predictions, and the value of bonuses."""
    num_epochs: int
    """Passes over each rollout in which predictions and the value of bonuses are learned."""
    features: int
    """Numbers that describe an observation where bonuses are computed from a learned or random description."""
    icm_forward: float
    """icm: weight of the forward model's loss; the inverse model's loss has 1 minus it."""
    noveld_alpha: float
    """noveld: how much of the novelty of where a step began is taken off that of where it led."""
    first_visits: bool
    """counts: 1 for the first visit of an observation in its episode and 0 after, instead of 1 / sqrt of the visits."""
    elliptical_features: int
    """e3b: numbers that describe an observation; time and memory grow with their square."""
    elliptical_ridge: float
    """e3b: what the matrix of an episode's features begins with on its diagonal; at least 0.001."""
    episodic: Literal["counts", "first", "elliptical"] | None
    """rnd, icm: multiply bonuses by novelty within the episode: counts, 1 / sqrt of the visits of an observation;
    first, 1 at its first visit and 0 after; elliptical, the bonus of e3b; none: not."""


class PolicySettings(TypedDict, total=False):
    """What a dict given as `policy` may hold."""

    hidden: list[int] | tuple[int, ...]
    """Width of each hidden layer."""
    activation: Literal["tanh", "relu"]
    """Nonlinearity after each hidden layer."""
    shared_trunk: bool
    """One encoder and trunk for policy and value, instead of one each."""
    encoder: Literal["auto", "mlp", "nature_cnn", "impala_cnn", "grid_cnn", "value_propagation", "entity_attention"]
    """How observations become features; auto: images by a CNN, everything else laid flat."""
    ignore: list[str] | tuple[str, ...]
    """Entries of a Dict observation that the network does not see, such as a step count; inner.name for nested ones."""
    memory: Literal["lstm", "gru", "mingru"] | None
    """The recurrent core between the hidden layers and the outputs; none: the policy is not recurrent."""
    memory_size: int
    """Units of each layer of the recurrent core."""
    memory_layers: int
    """Layers of the recurrent core, one on top of the other."""
    embedding_size: int | None
    """Width of a learned embedding of each choice of a discrete observation; none: one-hot."""
    state_dependent_std: bool
    """Continuous actions: the deviation is an output of the network, instead of one learned number for all states."""
    log_std_init: float
    """Continuous actions: logarithm of the initial standard deviation."""
    bounded_actions: Literal["scale", "clip", "tanh"]
    """Continuous actions: how they are brought into their bounds: -1 to 1 stretched to them, clipped, or by tanh."""
    value_bins: int | None
    """Values as a distribution over this many returns, learned by cross entropy (two-hot); none: one number, by its
    squared error. 101 is usual."""
    noise_color: float
    """Continuous actions: how far the noise on them is correlated in time within a rollout: 0 white, 0.5 between, 1
    pink, 2 Brownian."""
    impala_width: int
    """impala_cnn: multiplies its 16, 32, 32 channels."""
    grid_channels: list[int] | tuple[int, ...]
    """grid_cnn: channels of each 3x3 convolution; value_propagation: the first is the width of its cell embedding."""
    grid_blocks: int
    """grid_cnn: residual blocks of two more 3x3 convolutions each, after those of `grid_channels`."""
    grid_readout: Literal["flatten", "pool"]
    """grid_cnn: features are those of every cell, or the mean and maximum of each channel."""
    symmetry: Literal["none", "canonical", "average"]
    """How the symmetries that a world declares are used; none: not; canonical: of all turned boards the network sees
    one; average: it sees all of them, and its outputs are averaged."""
    planning_steps: int | None
    """value_propagation: sweeps over the grid; none: until no value changes."""
    attention_blocks: int
    """entity_attention: blocks of self-attention, cross-attention and feed-forward."""
    attention_heads: int
    """entity_attention: heads of each attention."""
    attention_width: int
    """entity_attention: numbers that describe an entity; a multiple of the heads."""


class SelfPlaySettings(TypedDict, total=False):
    """What a dict given as `self_play` may hold."""

    pool_fraction: float
    """Share of the envs in which one seat or agent learns and an opponent from the pool plays the others; in the
    rest the newest policy plays all of them."""
    pool_size: int
    """Earlier selves that the pool holds at most; those that stay are spread over the run."""
    snapshot_every: int
    """Updates between two snapshots that enter the pool; 0: only at snapshot_win_rate."""
    snapshot_win_rate: float | None
    """Snapshots enter only while the policy wins at least this share of its games against the pool, draws counted
    half; none: whatever it wins."""
    opponents: list[str] | tuple[str, ...]
    """Opponents in the pool from the start: runs, checkpoints, and players: random, greedy, minimax:2, module:Name."""
    fixed_fraction: float
    """Share of the envs that always play against `opponents`, divided evenly among them."""
    opponents_at_once: int
    """Opponents from the pool that play at the same time, each in as many envs."""
    change_every: int
    """Updates after which other opponents are drawn; each takes over when a game ends."""
    selection: Literal["prioritized", "uniform", "newest"]
    """How opponents are drawn; prioritized: in proportion to (1 - win rate against them)^priority_exponent; uniform;
    newest: the last snapshots."""
    priority_exponent: float
    """prioritized: 0 draws all alike, 2 and more nearly always those that beat us."""
    uniform_share: float
    """prioritized: share of uniform draws, so that nobody is forgotten."""
    memory: int
    """Games after which an old result counts 1/e in a win rate."""
    exploiters: int
    """Further learners in the same run, each of which only has to beat the present policy; their snapshots enter the
    pool."""


class EvaluationSettings(TypedDict, total=False):
    """What a dict given as `eval` may hold."""

    every: int
    """Updates between evaluations; 0: only at the end."""
    episodes: int
    """Episodes played in each evaluation; in games for several also as many from each seat against random moves, and
    against the policy's own first self."""
    final_episodes: int
    """Episodes played after the last update; 0: none."""
    samples: bool
    """Draw actions as in training, instead of taking the most likely; for games that would run in circles."""
    max_steps: int | None
    """Steps after which an episode is cut and its return so far counted; none: 10,000 in a world without a time
    limit."""


class CheckpointSettings(TypedDict, total=False):
    """What a dict given as `checkpoint` may hold."""

    every: int
    """Updates between checkpoints; 0: only at the end and when stopped."""
    keep_last_n: int | None
    """Older checkpoints are deleted, but never the best; none: keep all."""


class Settings(PPOSettings, total=False):
    """The settings of a run, as `scramjet.train` takes them."""

    env_parameters: Mapping[str, Any]
    """The world's own parameters, where they differ from its defaults."""
    algorithm: str
    """ppo: policy gradients; impala: the same for rollouts that are late; spo: learn from a search by particles;
    alphazero: learn from a tree search; or one that a package or scramjet.register_algorithm adds. A search needs a
    native world without hidden information."""
    seed: int
    """Decides everything random: weights, actions, episodes, minibatches."""
    num_envs: int | Literal["auto"]
    """Envs stepped together, in all processes; auto: 64, or 8 of another library; 768 for spo, 256 for alphazero."""
    num_steps: int | Literal["auto"]
    """Steps of each env in one rollout; auto: 64, or 256 of another library's env; down to 16 for a short training;
    21 for spo, 32 for alphazero."""
    frame_stack: int
    """Observations a policy sees at once, the newest last; 1: the newest alone."""
    num_threads: int | Literal["auto"]
    """CPU threads for envs and networks; auto: one for each core, only one if minibatches are small, and no more
    than there are idle cores if torch's operators learn."""
    num_processes: int
    """Processes that train together and divide the envs among them; WORLD_SIZE of a launcher such as torchrun
    overrides it."""
    num_workers: int | Literal["auto"]
    """Worker processes for Gymnasium envs; auto: one for each core, fewer or none for quick envs; 0: none."""
    on_env_error: Literal["auto", "fail", "restart"]
    """If a Gymnasium env raises, hangs or dies: stop with its traceback, or make it anew and go on; auto: fail, or
    restart with --mode async."""
    env_timeout: float
    """Seconds after which an env that does not answer counts as hanging."""
    log_info: list[str] | tuple[str, ...]
    """Numbers in a Gymnasium env's info to log as stat/NAME, by the last step of each episode: success, or reward/x
    for info["reward"]["x"]; without it, all that are not nested."""
    video_every: int
    """Updates between videos of the policy at play, made in the background into RUN/videos; 0: none."""
    mode: Literal["sync", "async"]
    """sync: learn from each rollout after it is played; async: learn while actors go on playing."""
    num_actors: int | Literal["auto"]
    """async: actors that the envs are divided among: threads, or processes for Gymnasium envs; auto: one for every
    two cores, one for each core for Gymnasium envs, four for Atari games."""
    actors: Literal["local", "ray"]
    """async: where actors are: threads or processes of this machine, or processes of Ray's on any machines (see
    docs/scale.md)."""
    ray_address: str | None
    """The Ray cluster of --actors ray: auto for one on this machine, HOST:PORT, or ray://HOST:PORT; none: Ray is
    started for this run, on this machine."""
    max_policy_lag: int
    """async: how many updates old a trajectory may be; older ones are not learned from."""
    record_schedule: bool
    """async: record what each actor and the learner did and when (schedule.jsonl), for a replay."""
    replay_schedule: str | None
    """async: replay a recorded schedule.jsonl on one thread: the same run again, for debugging."""
    device: Literal["auto", "cpu", "cuda"]
    """Where envs and networks run; auto: an NVIDIA GPU if there is one, else the CPU."""
    env_device: Literal["auto", "cpu", "cuda"]
    """Where envs run, if not where networks do; auto: as `device`, but frame stacks on the CPU."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"]
    """Precision of matrix products on the GPU, with sums in float32; auto: tf32 on the GPU, float32 on the CPU."""
    fused: bool
    """Run plain networks with compiled functions, which are faster (Numba on the CPU, Triton on the GPU); off: with
    torch's operators."""
    tags: list[str] | tuple[str, ...]
    """Words of your own by which the page finds the run, such as --tags baseline paper."""
    track: (
        list[Literal["tensorboard", "aim", "wandb", "mlflow", "trackio"]]
        | tuple[Literal["tensorboard", "aim", "wandb", "mlflow", "trackio"], ...]
    )
    """Tools that get every number, the config and videos while the run trains: tensorboard, aim, wandb, mlflow,
    trackio."""
    track_project: str | None
    """The project (W&B, Trackio) or experiment (Aim, MLflow) that --track files the run under; none: the tool's own
    setting, else scramjet."""
    curiosity: Literal["rnd", "icm", "noveld", "counts", "e3b"] | None
    """Reward what is new beside what the world pays, for worlds where reward is rare: rnd, what a network cannot yet
    predict of a random one; icm, where a step led that could not be predicted; noveld, a step from what is known to
    what is new; counts, what the episode has visited least; e3b, what is far from all of the episode so far; see
    docs/curiosity.md."""
    ppo: PPOSettings | PPOConfig
    """The settings of PPO; the searches use some of them too."""
    spo: SPOSettings | SPOConfig
    """The settings of SPO: its search by particles, and learning from it."""
    alphazero: AlphaZeroSettings | AlphaZeroConfig
    """The settings of Gumbel AlphaZero: its tree search, and learning from it."""
    bonus: BonusSettings | BonusConfig
    """The bonuses of `curiosity` for what is new."""
    policy: PolicySettings | PolicyConfig
    """The network that chooses actions and estimates values."""
    self_play: SelfPlaySettings | SelfPlayConfig
    """Opponents in games of several players: earlier selves, policies of other runs, scripted players."""
    eval: EvaluationSettings | EvaluationConfig
    """Evaluation during training, on envs of its own."""
    checkpoint: CheckpointSettings | CheckpointConfig
    """How often checkpoints are written, and how many are kept."""
