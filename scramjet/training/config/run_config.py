"""The configuration of a run: one frozen record of every choice, checked when it is built."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import tyro

from scramjet.adapters.library import DEFAULT_TIMEOUT, WorkerSettings
from scramjet.adapters.registry import (
    LIBRARIES,
    ForeignWorld,
    canonical_name,
    check_num_envs,
    is_foreign,
    library_of,
    load_world,
)
from scramjet.algorithms.ppo import PPOConfig
from scramjet.algorithms.schedules import Schedule, parse_count
from scramjet.envs.api import Env
from scramjet.errors import ConfigError, shortened
from scramjet.policies.networks import PolicyConfig
from scramjet.runtime.machine.cores import available_cores
from scramjet.runtime.machine.devices import cuda_is_ready
from scramjet.settings import Spelling, largest_divisor, plain_parameters, require, require_counts, settle
from scramjet.training.worlds.trust import check_name

Count = Annotated[
    int,
    Spelling(parse_count, "a number of steps such as 500000, 500K or 1M"),
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="STEPS",
        instance_from_str=lambda words: parse_count(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]
"""A number of env steps; text may say 500K or 1M."""


@dataclass(frozen=True)
class Batches:
    """How much is played and learned from at once, where nobody says: the same on every machine."""

    num_envs: int
    num_steps: int  # in a rollout, or fewer, so that many rollouts fit into the training
    minibatch_size: int


NATIVE_BATCHES = Batches(num_envs=64, num_steps=64, minibatch_size=256)
FOREIGN_BATCHES = Batches(num_envs=8, num_steps=256, minibatch_size=64)
"""Of other libraries, whose envs take a thousand times as long: more is learned from each step."""
USUAL_UPDATES, FEWEST_STEPS = 100, 16
"""Updates that a training should have, about, and steps in a rollout that are not gone below for that."""
MIN_THREADED_WORK = 4096 * 128
"""Samples in a minibatch times hidden units, or gates of memory, below which threads cost more than they save."""
MIN_THREADED_WORK_FUSED = 256 * 128
"""The same for compiled functions, which wake threads twice a minibatch and not with every operator."""
MIN_MEMORY_ON_GPU = 40 * 128
"""Envs times units of memory below which the CPU is faster: the GPU learns memory one step after the other, which takes
it about as long for few envs as for many."""

MAX_TIMESTEPS = 2**53
"""Whole numbers up to here are exact as floats too."""
MAX_SEED = 2**62 - 1
MAX_FRAMES = 1024
MAX_THREADS = 1024
"""Threads, or processes."""


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation during training, on envs of its own."""

    every: int = 20
    """Updates between evaluations; 0: only at the end."""
    episodes: int = 32
    """Episodes played in each evaluation."""
    final_episodes: int = 100
    """Episodes played after the last update; 0: none."""
    samples: bool = False
    """Draw actions as in training, instead of taking the most likely; for games that would run in circles."""
    max_steps: int | None = None
    """Steps after which an episode is cut, and its return so far counted; none: the world's own time limit, else
    10,000."""

    def __post_init__(self) -> None:
        settle(self, "eval.")
        require_counts(self, ("every", "final_episodes"), least=0, prefix="eval.")
        require_counts(self, ("episodes", "max_steps"), prefix="eval.")


@dataclass(frozen=True)
class CheckpointConfig:
    """What is kept on disk."""

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
    """Everything that decides a run."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[ENV]")] = "cartpole"
    """The world: a name from `scramjet list`, a file such as my_world.py or my_world.py:MyWorld, or another library's:
    gym:ID, vec:ID, ale:GAME, mujoco:ID, envpool:ID, pettingzoo:NAME, factory:MODULE:FUNCTION."""
    env_parameters: Annotated[dict[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """The world's own parameters, where they differ from its defaults."""
    seed: int = 1
    """Decides everything random: weights, actions, episodes, minibatches."""
    total_timesteps: Count = 1_000_000
    """Env steps to train for."""
    time_limit: str | None = None
    """Stop after so much time in this process, such as 30s, 5m or 2h; resume goes on."""
    num_envs: int | Literal["auto"] = "auto"
    """Envs stepped together; auto: 64, of other libraries 8."""
    num_steps: int | Literal["auto"] = "auto"
    """Steps of each env in one rollout; auto: 64, of other libraries 256, or fewer for a short training, down to 16."""
    frame_stack: int = 1
    """Observations a policy sees at once, the newest last; 1: the newest alone."""
    num_threads: int | Literal["auto"] = "auto"
    """CPU threads for envs and networks; auto: one for each core, or one in all where minibatches are small; where
    torch's operators learn, no more than there are idle cores."""
    num_workers: int | Literal["auto"] = "auto"
    """Processes for Gymnasium envs; auto: one for each core, of quick envs this one among them or alone; 0: none."""
    on_env_error: Literal["auto", "fail", "restart"] = "auto"
    """When such an env raises, hangs or dies: stop with its traceback, or make it anew and go on; auto: fail, with
    --mode async restart."""
    env_timeout: float = DEFAULT_TIMEOUT
    """Seconds after which an env that does not answer hangs."""
    mode: Literal["sync", "async"] = "sync"
    """Learn from each rollout when it is played, or beside actors that go on playing."""
    num_actors: int | Literal["auto"] = "auto"
    """async: actors that the envs are divided among, threads or of Gymnasium envs processes; auto: one for every two
    cores, of Gymnasium envs one for each, of Atari games four."""
    max_policy_lag: int = 8
    """async: updates that a trajectory may be behind; older ones are not learned from."""
    record_schedule: bool = False
    """async: write down who did what when (schedule.jsonl), to be replayed."""
    replay_schedule: str | None = None
    """async: do what such a file says, on one thread: the same run again, for debugging."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where envs and networks run; auto: an NVIDIA GPU where there is one that can and where it pays, else the CPU."""
    env_device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where envs run, should that not be where networks do; auto: as `device`, but frame stacks on the CPU."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """Of matrix products on the GPU, sums always in float32; auto: tf32 there, float32 on the CPU."""
    fused: bool = True
    """Act and learn plain networks by compiled functions that keep what they compute in the cache, on the GPU on the
    chip; off: by torch's operators."""
    ppo: Annotated[PPOConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=PPOConfig)
    """Proximal policy optimization."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """The network."""
    eval: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Evaluation during training."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """Checkpoints."""

    def __post_init__(self) -> None:
        settle(self)
        object.__setattr__(self, "env_parameters", plain_parameters(self.env_parameters))
        check_name(self.env)
        self._check_numbers()
        self._check_devices()
        self._check_mode()
        if "auto" not in (self.num_envs, self.num_steps):
            self.ppo.num_minibatches_for(self.batch_size, self.sequence_length)

    def _check_numbers(self) -> None:
        """Refuse numbers out of range, and those that do not go together."""
        require_counts(self, ("num_envs", "num_steps"))
        require_counts(self, ("frame_stack",), most=MAX_FRAMES)
        require_counts(self, ("max_policy_lag",), least=0)
        require_counts(self, ("total_timesteps",), most=MAX_TIMESTEPS)
        require_counts(self, ("num_threads", "num_actors"), most=MAX_THREADS)
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
        """Refuse what does not go with where envs and networks run."""
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

    def _check_mode(self) -> None:
        """Refuse what cannot be played asynchronously."""
        if self.mode == "sync":
            for name in ("record_schedule", "replay_schedule"):
                if getattr(self, name):
                    raise ConfigError(f"{name} is for actors beside the learner; add --mode async")
            if self.num_actors not in ("auto", 1):
                raise ConfigError(f"num_actors={self.num_actors} are actors beside the learner; add --mode async")
            return
        if self.replay_schedule == "":
            raise ConfigError("replay_schedule is empty; give the schedule.jsonl of a recorded run, or leave it out")
        if self.record_schedule and self.replay_schedule is not None:
            raise ConfigError(
                f"record_schedule, and replay_schedule={self.replay_schedule}: what is replayed is recorded already; "
                f"leave one out"
            )
        if self.max_policy_lag < 1:
            raise ConfigError(
                f"max_policy_lag={self.max_policy_lag} leaves actors nothing to do while the learner learns; "
                f"use --max-policy-lag 1 or more, or --mode sync"
            )
        if self.num_envs != "auto" and self.num_actors != "auto" and self.num_envs % self.num_actors:
            most = largest_divisor(self.num_envs, self.num_actors)
            problem = "are more than" if self.num_actors > self.num_envs else "do not evenly divide"
            raise ConfigError(f"{self.num_actors} actors {problem} num_envs={self.num_envs}; try --num-actors {most}")
        library = library_of(self.env)
        if library is not None and not library.can_be_async:
            others = ", ".join(each.prefix for each in LIBRARIES.values() if each.can_be_async)
            raise ConfigError(
                f"mode='async' cannot step {self.env}: its library steps all envs at once; use --mode sync, or envs of "
                f"{others}"
            )
        if self.env_device == "cuda":
            raise ConfigError("mode='async' steps envs on the CPU, and env_device is 'cuda'; use --env-device cpu")
        if self.frame_stack > 1 and library is not None:
            raise ConfigError(
                f"mode='async' has no frame stacks of {library.prefix} envs; use --frame-stack 1, or wrap the env"
            )

    def _check_workers(self) -> None:
        """Refuse worker processes where there would be none."""
        if self.num_workers == "auto":
            return
        library = library_of(self.env)
        has_workers = library is not None and library.has_workers
        if self.num_workers > 0 and not has_workers:
            raise ConfigError(
                f"num_workers={self.num_workers} are processes of Gymnasium envs, and {self.env} has none; leave it out"
            )
        if self.num_workers == 0 and (self.on_env_error == "restart" or self.env_timeout != DEFAULT_TIMEOUT):
            asked = "on_env_error='restart'" if self.on_env_error == "restart" else f"env_timeout={self.env_timeout:g}"
            raise ConfigError(
                f"num_workers=0 has envs step in this process, where nothing can end one that hangs, and {asked} is "
                f"for worker processes; leave one of them out"
            )
        if self.mode == "async" and has_workers:
            raise ConfigError(
                f"num_workers={self.num_workers}, and with mode='async' each actor is a process; use --num-actors "
                f"{max(1, self.num_workers)}"
            )

    def resolved(self) -> RunConfig:
        """The same config with every `auto` decided and the world's name in its one spelling."""
        cores = available_cores()
        sized = self._with_batches()
        device = sized._decided_device()
        decided = replace(
            sized,
            device=device,
            env_device=self.env_device_beside(device),
            precision=self.precision if self.precision != "auto" else "tf32" if device == "cuda" else "float32",
            env=canonical_name(self.env),
            env_parameters=self.make_env().parameters,
        )
        decided._check_workers()
        decided = decided._with_mode(cores)
        if self.num_threads != "auto":
            return decided
        if self.mode == "async":
            assert isinstance(decided.num_actors, int)
            return replace(decided, num_threads=max(1, cores - decided.num_actors))
        num_minibatches = decided.ppo.num_minibatches_for(decided.batch_size, decided.sequence_length)
        shape = decided.policy
        num_units = sum(shape.hidden) + (4 * shape.memory_size * shape.memory_layers if shape.memory else 0)
        is_fused = decided.fused and shape.encoder in ("auto", "mlp")
        least = MIN_THREADED_WORK_FUSED if is_fused else MIN_THREADED_WORK
        pays = decided.batch_size // num_minibatches * num_units >= least
        # With networks elsewhere all threads are the envs', and a pool takes no more of them than pay.
        are_for_envs = (device, decided.env_device) == ("cuda", "cpu")
        return replace(decided, num_threads=cores if pays or are_for_envs else 1)

    def _with_batches(self) -> RunConfig:
        """With the sizes of rollouts and minibatches, none of which follows from the machine."""
        usual = FOREIGN_BATCHES if is_foreign(self.env) else NATIVE_BATCHES
        num_envs = self.num_envs if isinstance(self.num_envs, int) else usual.num_envs
        num_steps = self.num_steps
        if num_steps == "auto":
            fitting = max(FEWEST_STEPS, self.total_timesteps / (USUAL_UPDATES * num_envs))
            most, horizon = min(usual.num_steps, 1 << round(math.log2(fitting))), self.ppo.bptt_horizon or 1
            num_steps = max(1, most // horizon) * horizon
        sized = replace(self, num_envs=num_envs, num_steps=num_steps)
        if isinstance(self.ppo.minibatch_size, int):
            return sized
        if self.ppo.num_minibatches is not None:
            return replace(sized, ppo=replace(self.ppo, minibatch_size=None))
        number = self.ppo.num_minibatches_for(sized.batch_size, sized.sequence_length, usual.minibatch_size)
        return replace(sized, ppo=replace(self.ppo, minibatch_size=sized.batch_size // number))

    @property
    def _by_mode(self) -> tuple[Literal["gae", "vtrace"], Literal["fail", "restart"]]:
        """The estimate of advantages and what to do about failing envs, where nobody says."""
        is_async = self.mode == "async"
        return "vtrace" if is_async or self.ppo.loss == "impala" else "gae", "restart" if is_async else "fail"

    def _with_mode(self, cores: int) -> RunConfig:
        """With what follows from the mode."""
        assert isinstance(self.num_envs, int)
        usual_advantage, usual_on_error = self._by_mode
        advantage = usual_advantage if self.ppo.advantage == "auto" else self.ppo.advantage
        on_error = usual_on_error if self.on_env_error == "auto" else self.on_env_error
        ppo = replace(self.ppo, advantage=advantage, num_epochs=self.ppo.epochs)
        decided = replace(self, ppo=ppo, on_env_error=on_error)
        if self.mode == "sync":
            return replace(decided, num_actors=1 if self.num_actors == "auto" else self.num_actors)
        if self.num_actors != "auto":
            return decided
        library = library_of(self.env)
        most = max(1, cores // 2) if library is None else library.auto_actors or cores
        return replace(decided, num_actors=largest_divisor(self.num_envs, most))

    def _decided_device(self) -> Literal["cpu", "cuda"]:
        if self.device != "auto":
            return self.device
        return "cuda" if self._gpu_pays and cuda_is_ready() else "cpu"

    @property
    def _gpu_pays(self) -> bool:
        shape = self.policy
        if shape.memory is None or self.num_envs == "auto" or self.env_device == "cuda":
            return True
        return self.num_envs * shape.memory_size * shape.memory_layers >= MIN_MEMORY_ON_GPU

    def env_device_beside(self, device: Literal["cpu", "cuda"]) -> Literal["cpu", "cuda"]:
        """Where envs run with networks on this device."""
        if self.env_device != "auto":
            return self.env_device
        if self.mode == "async":
            return "cpu"
        return device if self.frame_stack == 1 and not is_foreign(self.env) else "cpu"

    def with_open_choices(self) -> RunConfig:
        """The same with `auto` again for what followed from device and mode, so that a fork may choose others."""
        default = "tf32" if self.device == "cuda" else "float32"
        usual_advantage, usual_on_error = self._by_mode
        advantage = self.ppo.advantage
        return replace(
            self,
            ppo=replace(self.ppo, advantage="auto" if advantage == usual_advantage else advantage),
            on_env_error="auto" if self.on_env_error == usual_on_error else self.on_env_error,
            num_actors="auto" if self.mode == "sync" else self.num_actors,
            record_schedule=False,
            replay_schedule=None,
            env_device="auto" if self.env_device == self.device else self.env_device,
            precision="auto" if self.precision == default else self.precision,
        )

    def make_env(self) -> Env | ForeignWorld:
        """The world this config trains on; of another library always the same one, which is tried out once."""
        return self._foreign_world if is_foreign(self.env) else load_world(self.env, self.env_parameters)

    @cached_property
    def _foreign_world(self) -> ForeignWorld:
        world = load_world(self.env, self.env_parameters)
        assert isinstance(world, ForeignWorld)
        return replace(
            world,
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


_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds in `30s`, `5m`, `2h` or `1h30m`."""
    parts = re.findall(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)([smhd])", text)  # bounded: thousands of digits take seconds
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not 0 < seconds < math.inf:
        raise ConfigError(f"time_limit={shortened(text)} is no duration; write 30s, 5m, 2h or 1h30m")
    return seconds


def reopened(before: PPOConfig, after: PPOConfig, given: Container[str]) -> PPOConfig:
    """`after`, with `auto` again for what `before` had chosen beside a setting that is changed; `given` are the names
    of those that were changed."""
    if after.loss != before.loss and "num_epochs" not in given:
        after = replace(after, num_epochs="auto")
    if "num_minibatches" in given and "minibatch_size" not in given:
        after = replace(after, minibatch_size="auto")
    if "minibatch_size" in given and "num_minibatches" not in given:
        after = replace(after, num_minibatches=None)
    return after


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Keys whose values differ between two nested dicts, as `policy.hidden: [before, after]`."""
    found: dict[str, list[Any]] = {}
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found.update({f"{key}.{inner}": pair for inner, pair in changes(old, new).items()})
        elif (list(old) if isinstance(old, tuple) else old) != (list(new) if isinstance(new, tuple) else new):
            found[key] = [old, new]
    return found
