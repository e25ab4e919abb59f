"""The configuration of a run: one frozen record of every choice, checked when it is built."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from scramjet.adapters.info import InfoSelection
from scramjet.adapters.library import DEFAULT_TIMEOUT, WorkerSettings
from scramjet.adapters.registry import (
    ForeignWorld,
    check_log_info,
    check_num_envs,
    is_foreign,
    load_world,
)
from scramjet.algorithms.algorithm import Algorithm, algorithm_named
from scramjet.algorithms.config import AlphaZeroConfig, PPOConfig, SPOConfig
from scramjet.algorithms.schedules import Schedule
from scramjet.envs.api import Env
from scramjet.errors import ConfigError, shortened
from scramjet.policies.config import PolicyConfig
from scramjet.runs.world_trust import check_name
from scramjet.selfplay.config import SelfPlayConfig
from scramjet.settings import (
    Flat,
    NoFlag,
    Positional,
    largest_divisor,
    plain_parameters,
    require,
    require_counts,
    settle,
)
from scramjet.telemetry.tracking.tracker import TrackerName
from scramjet.training.config.algorithm_choice import check_algorithm
from scramjet.training.config.mode_checks import check_mode, check_processes
from scramjet.training.config.values import Count, parse_duration
from scramjet.training.curiosity.config import BonusConfig, CuriosityName, check_curiosity

MAX_TIMESTEPS = 2**53
"""Whole numbers up to here are exact as floats too."""
MAX_SEED = 2**62 - 1
MAX_FRAMES = 1024
MAX_TAGS, MAX_TAG_LENGTH = 20, 50
MAX_THREADS = 1024
"""Most threads or processes."""


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation during training, on envs of its own."""

    every: int = 20
    """Updates between evaluations; 0: only at the end."""
    episodes: int = 32
    """Episodes played in each evaluation; in games for several also as many from each seat against random moves, and
    against the policy's own first self."""
    final_episodes: int = 100
    """Episodes played after the last update; 0: none."""
    samples: bool = False
    """Draw actions as in training, instead of taking the most likely; for games that would run in circles."""
    max_steps: int | None = None
    """Steps after which an episode is cut and its return so far counted; none: 10,000 in a world without a time
    limit."""

    def __post_init__(self) -> None:
        settle(self, "eval.")
        require_counts(self, ("every", "final_episodes"), least=0, prefix="eval.")
        require_counts(self, ("episodes", "max_steps"), prefix="eval.")


@dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints: how often they are written and how many are kept."""

    every: int = 50
    """Updates between checkpoints; 0: only at the end and when stopped."""
    keep_last_n: int | None = 3
    """Older checkpoints are deleted, but never the best; none: keep all."""

    def __post_init__(self) -> None:
        settle(self, "checkpoint.")
        require_counts(self, ("every",), least=0, prefix="checkpoint.")
        require_counts(self, ("keep_last_n",), prefix="checkpoint.")


@dataclass(frozen=True)
class RunConfig:
    """Every setting of a run. Values are checked when it is made; those left at "auto" are decided by `resolve`."""

    env: Annotated[str, Positional("ENV")] = "cartpole"
    """The world: a name from `scramjet list`, a file such as my_world.py or my_world.py:MyWorld, or another library's:
    gym:ID, vec:ID, ale:GAME, mujoco:ID, envpool:ID, pettingzoo:NAME, factory:MODULE:FUNCTION."""
    env_parameters: Annotated[dict[str, Any], NoFlag()] = field(default_factory=dict)
    """The world's own parameters, where they differ from its defaults."""
    algorithm: str = "ppo"
    """ppo: policy gradients; impala: the same for rollouts that are late; spo: learn from a search by particles;
    alphazero: learn from a tree search; or one that a package or scramjet.register_algorithm adds. A search needs a
    native world without hidden information."""
    seed: int = 1
    """Decides everything random: weights, actions, episodes, minibatches."""
    total_timesteps: Count = 1_000_000
    """Env steps to train for."""
    time_limit: str | None = None
    """Stop after this much time in this process, such as 30s, 5m or 2h; the run can be resumed."""
    num_envs: int | Literal["auto"] = "auto"
    """Envs stepped together, in all processes; auto: 64, or 8 of another library; 768 for spo, 256 for alphazero."""
    num_steps: int | Literal["auto"] = "auto"
    """Steps of each env in one rollout; auto: 64, or 256 of another library's env; down to 16 for a short training; 21
    for spo, 32 for alphazero."""
    frame_stack: int = 1
    """Observations a policy sees at once, the newest last; 1: the newest alone."""
    num_threads: int | Literal["auto"] = "auto"
    """CPU threads for envs and networks; auto: one for each core, only one if minibatches are small, and no more than
    there are idle cores if torch's operators learn."""
    num_processes: int = 1
    """Processes that train together and divide the envs among them; WORLD_SIZE of a launcher such as torchrun overrides
    it."""
    num_workers: int | Literal["auto"] = "auto"
    """Worker processes for Gymnasium envs; auto: one for each core, fewer or none for quick envs; 0: none."""
    on_env_error: Literal["auto", "fail", "restart"] = "auto"
    """If a Gymnasium env raises, hangs or dies: stop with its traceback, or make it anew and go on; auto: fail, or
    restart with --mode async."""
    env_timeout: float = DEFAULT_TIMEOUT
    """Seconds after which an env that does not answer counts as hanging."""
    log_info: tuple[str, ...] = ()
    """Numbers in a Gymnasium env's info to log as stat/NAME, by the last step of each episode: success, or reward/x for
    info["reward"]["x"]; without it, all that are not nested."""
    video_every: int = 0
    """Updates between videos of the policy at play, made in the background into RUN/videos; 0: none."""
    mode: Literal["sync", "async"] = "sync"
    """sync: learn from each rollout after it is played; async: learn while actors go on playing."""
    num_actors: int | Literal["auto"] = "auto"
    """async: actors that the envs are divided among: threads, or processes for Gymnasium envs; auto: one for every two
    cores, one for each core for Gymnasium envs, four for Atari games."""
    actors: Literal["local", "ray"] = "local"
    """async: where actors are: threads or processes of this machine, or processes of Ray's on any machines (see
    docs/scale.md)."""
    ray_address: str | None = None
    """The Ray cluster of --actors ray: auto for one on this machine, HOST:PORT, or ray://HOST:PORT; none: Ray is
    started for this run, on this machine."""
    max_policy_lag: int = 8
    """async: how many updates old a trajectory may be; older ones are not learned from."""
    record_schedule: bool = False
    """async: record what each actor and the learner did and when (schedule.jsonl), for a replay."""
    replay_schedule: str | None = None
    """async: replay a recorded schedule.jsonl on one thread: the same run again, for debugging."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where envs and networks run; auto: an NVIDIA GPU if there is one, else the CPU."""
    env_device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where envs run, if not where networks do; auto: as `device`, but frame stacks on the CPU."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """Precision of matrix products on the GPU, with sums in float32; auto: tf32 on the GPU, float32 on the CPU."""
    fused: bool = True
    """Run plain networks with compiled functions, which are faster (Numba on the CPU, Triton on the GPU); off: with
    torch's operators."""
    tags: tuple[str, ...] = ()
    """Words of your own by which the page finds the run, such as --tags baseline paper."""
    track: tuple[TrackerName, ...] = ()
    """Tools that get every number, the config and videos while the run trains: tensorboard, aim, wandb, mlflow,
    trackio."""
    track_project: str | None = None
    """The project (W&B, Trackio) or experiment (Aim, MLflow) that --track files the run under; none: the tool's own
    setting, else scramjet."""
    ppo: Annotated[PPOConfig, Flat()] = field(default_factory=PPOConfig)
    """The settings of PPO; the searches use some of them too."""
    spo: SPOConfig = field(default_factory=SPOConfig)
    """The settings of SPO: its search by particles, and learning from it."""
    alphazero: AlphaZeroConfig = field(default_factory=AlphaZeroConfig)
    """The settings of Gumbel AlphaZero: its tree search, and learning from it."""
    curiosity: CuriosityName | None = None
    """Reward what is new beside what the world pays, for worlds where reward is rare: rnd, what a network cannot yet
    predict of a random one; icm, where a step led that could not be predicted; noveld, a step from what is known to
    what is new; counts, what the episode has visited least; e3b, what is far from all of the episode so far; see
    docs/curiosity.md."""
    bonus: BonusConfig = field(default_factory=BonusConfig)
    """The bonuses of `curiosity` for what is new."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """The network that chooses actions and estimates values."""
    self_play: SelfPlayConfig = field(default_factory=SelfPlayConfig)
    """Opponents in games of several players: earlier selves, policies of other runs, scripted players."""
    eval: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Evaluation during training, on envs of its own."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """How often checkpoints are written, and how many are kept."""

    def __post_init__(self) -> None:
        settle(self)
        object.__setattr__(self, "env_parameters", plain_parameters(self.env_parameters))
        check_name(self.env)
        self._settle_loss()
        self._check_numbers()
        self._check_devices()
        check_mode(self)
        self._check_tags()
        if len(set(self.track)) < len(self.track):
            raise ConfigError(f"track names one twice ({', '.join(self.track)}); name each once")
        if self.track_project == "":
            raise ConfigError("track_project is empty; give a name, or leave it out")
        check_algorithm(self)
        check_curiosity(self)
        check_processes(self)
        check_log_info(self.env, self.log_info)
        if "auto" not in (self.num_envs, self.num_steps):
            self.ppo.num_minibatches_for(self.batch_size, self.sequence_length)

    def _settle_loss(self) -> None:
        """Bring `algorithm` and `ppo.loss`, an older word for the same, to one: impala, where either says so."""
        record = self.traits  # refuses a name that is none
        if self.algorithm == "ppo" and self.ppo.loss == "impala":
            object.__setattr__(self, "algorithm", "impala")
        elif record.loss != "own" and self.ppo.loss != record.loss:
            object.__setattr__(self, "ppo", replace(self.ppo, loss=record.loss))

    def _check_tags(self) -> None:
        """Refuse tags that cannot be shown."""
        if len(self.tags) > MAX_TAGS:
            raise ConfigError(f"tags has {len(self.tags)} words; give at most {MAX_TAGS}")
        for tag in self.tags:
            if not (0 < len(tag) <= MAX_TAG_LENGTH and tag.isprintable() and tag == tag.strip()):
                raise ConfigError(
                    f"tags has {shortened(tag)}; a tag has 1 to {MAX_TAG_LENGTH} printable characters, such as baseline"
                )

    def _check_numbers(self) -> None:
        """Refuse numbers that are out of range or do not fit each other."""
        require_counts(self, ("num_envs", "num_steps"))
        require_counts(self, ("frame_stack",), most=MAX_FRAMES)
        require_counts(self, ("max_policy_lag", "video_every"), least=0)
        require_counts(self, ("total_timesteps",), most=MAX_TIMESTEPS)
        require_counts(self, ("num_threads", "num_actors", "num_processes"), most=MAX_THREADS)
        require_counts(self, ("num_workers",), least=0, most=MAX_THREADS)
        require(self, ("env_timeout",), lambda x: x > 0, "must be above 0")
        require(self, ("seed",), lambda x: 0 <= x <= MAX_SEED, "must be from 0 to 2**62 - 1")
        if is_foreign(self.env) and self.num_envs != "auto":
            check_num_envs(self.env, self.num_envs)
        if self.time_limit is not None:
            parse_duration(self.time_limit)
        for name in ("learning_rate", "entropy_coef", "clip_epsilon"):
            Schedule.parse(name, getattr(self.ppo, name)).check(name, self.total_timesteps)
        horizon = self.ppo.bptt_horizon
        if horizon is not None and self.num_steps != "auto" and self.num_steps % horizon:
            fit = largest_divisor(self.num_steps, horizon)
            raise ConfigError(
                f"bptt_horizon={horizon} does not divide num_steps={self.num_steps}; try --bptt-horizon {fit}"
            )

    def _check_devices(self) -> None:
        """Refuse settings that do not fit the devices of envs and networks."""
        if self.device == "cpu" and self.precision not in ("auto", "float32"):
            raise ConfigError(f"precision={self.precision!r} is the GPU's; use --precision float32, or --device cuda")
        if self.device == "cpu" and self.env_device == "cuda":
            raise ConfigError(
                "env_device='cuda' needs the networks there too, and device is 'cpu'; use --device cuda, or "
                "--env-device auto"
            )
        if self.env_device == "cuda" and is_foreign(self.env):
            raise ConfigError(
                f"env_device='cuda' is for native worlds, and {shortened(self.env)} is none; use --env-device cpu"
            )
        if self.env_device == "cuda" and self.frame_stack > 1:
            raise ConfigError(
                f"frame_stack={self.frame_stack} is made on the CPU, and env_device is 'cuda'; use --env-device cpu, "
                f"or --frame-stack 1 and --policy.memory gru"
            )

    def make_env(self) -> Env | ForeignWorld:
        """The world that this config trains on; one of another library is tried out once, and then kept."""
        return self._foreign_world if is_foreign(self.env) else load_world(self.env, self.env_parameters)

    @cached_property
    def _foreign_world(self) -> ForeignWorld:
        world = load_world(self.env, self.env_parameters)
        assert isinstance(world, ForeignWorld)
        return replace(
            world,
            info=InfoSelection(self.log_info),
            workers=WorkerSettings(
                None if self.num_workers == "auto" else self.num_workers,
                self.env_timeout,
                "restart" if self.on_env_error == "restart" else "fail",
            ),
        )

    @property
    def batch_size(self) -> int:
        """Samples in one rollout."""
        assert isinstance(self.num_envs, int), "resolve the config first"
        assert isinstance(self.num_steps, int), "resolve the config first"
        return self.num_envs * self.num_steps

    @property
    def traits(self) -> Algorithm:
        """The record of the algorithm: what the rest of a run goes by, whichever it is."""
        return algorithm_named(self.algorithm)

    @property
    def sequence_length(self) -> int:
        """Steps that stay together in a minibatch; 1 without memory."""
        if self.policy.memory is None:
            return 1
        assert isinstance(self.num_steps, int), "resolve the config first"
        return self.ppo.bptt_horizon or self.num_steps

    @property
    def num_updates(self) -> int:
        """Rollouts needed to reach `total_timesteps`."""
        return -(-self.total_timesteps // self.batch_size)

    @property
    def time_limit_seconds(self) -> float | None:
        """The time limit as a number."""
        return None if self.time_limit is None else parse_duration(self.time_limit)
