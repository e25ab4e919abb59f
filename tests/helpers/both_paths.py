"""Draws settings of whole trainings and compares the fast path with plain torch: what was played, and the weights.

The settings come from the table of flags itself: every one that is not in `NOT_DRAWN`, with the reason there, is drawn
by its type. So a new setting that touches acting or learning is compared without anybody listing it.
"""

from __future__ import annotations

import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from unittest import mock

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from hypothesis import strategies as st
from torch import nn

import scramjet
from scramjet.adapters.registry import is_foreign
from scramjet.algorithms.algorithm import ALGORITHMS
from scramjet.engine.layout import num_players
from scramjet.engine.trees import leaves
from scramjet.errors import ScramjetError
from scramjet.executors.cuda_graphs import Recorder, Stage
from scramjet.policies import default_network
from scramjet.search.requirements import check_searchable
from scramjet.training.components import policy_for
from scramjet.training.config.keywords import TABLES, with_keywords
from scramjet.training.config.resolution import resolve
from scramjet.training.config.run_config import RunConfig
from scramjet.training.session import Session

NUM_UPDATES = 3
CHANGED_AFTER = (1, 3)
"""After which update a callback changes a policy: before a GPU records anything, and when all is recorded."""
CLOSE = 1e-3
"""Largest distance of the fast path from plain torch: of weights in units of what was learned, of numbers relative."""
MOST_GRADIENTS = 100
"""Gradient steps of an update, at most: more take long, and rounding grows with them."""
TREMOR, TREMORS = 1e-5, 3
"""Where a training is further off, each path is run so many times with its first weights changed by this share: one
that comes out elsewhere then depends on rounding, as where advantages are all alike and yet are normalized."""
SENSITIVITY = 10.0
"""How much further than the tremors took it a training must be, to be more than sensitive to rounding."""

NOT_DRAWN = {
    "env": "drawn from WORLDS",
    "env_parameters": "rules are compared by the parity tests; whatever they are, both paths play the same ones",
    "total_timesteps": f"{NUM_UPDATES} updates",
    "time_limit": "the clock would decide where a training ends",
    "num_processes": "each process runs one of the two paths; the gradients are summed outside of them",
    **dict.fromkeys(("num_workers", "on_env_error", "env_timeout"), "processes of envs, which both paths step alike"),
    **dict.fromkeys(("log_info", "video_every", "tags", "track", "track_project"), "what is told of a run"),
    **dict.fromkeys(
        ("mode", "num_actors", "max_policy_lag", "actors", "ray_address", "record_schedule", "replay_schedule"),
        "who plays when is decided by the clock",
    ),
    **dict.fromkeys(("device", "precision"), "one device, in float32: other precisions are not equal up to rounding"),
    "fused": "what is compared",
    **{f"eval.{item.name}": "evaluation learns nothing" for item in fields(TABLES["eval"])},
    **{f"checkpoint.{item.name}": "saving learns nothing" for item in fields(TABLES["checkpoint"])},
}
"""The settings that are not drawn, and why."""

SMALL: dict[str, Any] = {
    "num_envs": 4, "num_steps": 8, "num_epochs": 2, "num_minibatches": 2, "num_threads": 1,
    "policy.hidden": (16, 16),
    "policy.memory_size": 8, "policy.grid_channels": (4,), "policy.attention_width": 8, "policy.attention_heads": 2,
    "policy.attention_blocks": 1, "alphazero.simulations": 4, "alphazero.considered": 4, "spo.particles": 4,
    "spo.depth": 2, "spo.replay_size": 256, "alphazero.replay_size": 256, "bonus.features": 8,
    "bonus.elliptical_features": 8, "self_play.pool_size": 3, "self_play.snapshot_every": 1,
    "self_play.change_every": 1, "self_play.opponents_at_once": 2,
}  # fmt: skip
"""Settings of every training that is compared, where none is drawn: as large as the paths need to show a difference."""
OF_TEXT = {
    "algorithm": tuple(ALGORITHMS),
    "policy.ignore": ("me", "who", "agents", "board"),
    "self_play.opponents": ("random", "greedy", "minimax:1"),
}
"""The words that settings which are text, or lists of it, are drawn from."""


def strip(hint: Any) -> Any:
    """A type without what is annotated to it."""
    return strip(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


@cache
def all_settings() -> dict[str, tuple[Any, Any]]:
    """The type and the default of every setting, by the name of its flag with an underscore for a hyphen."""
    default, found = RunConfig(), dict[str, tuple[Any, Any]]()
    for table, part in ((None, default), *((table, getattr(default, table)) for table in TABLES)):
        hints = get_type_hints(type(part), include_extras=True)
        prefix = "" if table in (None, "ppo") else f"{table}."
        for item in fields(part):
            if not (table is None and item.name in TABLES):
                found[prefix + item.name] = strip(hints[item.name]), getattr(part, item.name)
    return found


def values_of(name: str, hint: Any, default: Any) -> list[Any]:
    """What a setting of this type is drawn from; a TypeError where nobody knows how."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return [value for argument in arguments for value in values_of(name, strip(argument), default)]
    if origin is Literal:
        return [*arguments]
    if hint is str and name in OF_TEXT:
        return [*OF_TEXT[name]]
    if origin is tuple and arguments[0] is int:
        return [(8,), (16, 8), (8, 8, 8), (24,), (64, 64), (130,)]
    if origin is tuple and arguments[0] is str:
        return [(word,) for word in OF_TEXT[name]]
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    if hint is bool:
        return [False, True]
    if name == "num_threads":
        return [1, 2, 3]
    if hint is int:
        return [0, 1, 2, 3, 4, 5, 8, 12, *([default // 2, default] if is_number else [33, 70])]
    if hint is float:
        scale = abs(default) if is_number and default else 0.25
        return [scale / 4, scale / 2, 2 * scale, 4 * scale, *([0.0, 1.0] if scale >= 0.1 else [0.0])]
    if hint is str and isinstance(default, float):
        return [f"{2 * default}@0,{default / 4}@end"]
    if hint is type(None):
        return [None]
    raise TypeError(f"say how {name}, of type {hint}, is drawn, or why it is not: tests/helpers/both_paths.py")


def drawn_settings() -> dict[str, list[Any]]:
    """The values that each setting is drawn from."""
    known = all_settings()
    return {name: values_of(name, *known[name]) for name in known if name not in NOT_DRAWN}


# --- worlds: one of each kind, and all that come with scramjet ------------------------------------------------------


class Dials(scramjet.Env):
    """Several choices at once, some forbidden, seen as named numbers."""

    max_episode_steps = 6
    observation_space = Dict({"me": Box(0, 4, (3,), np.float32), "who": Discrete(4)})
    action_space = MultiDiscrete([3, 4])
    state = {"first": np.int32, "second": np.int32, "age": np.int32}

    def reset(self, s):
        s.first = (s._index + s._episode) % 3
        s.second = (s._index + 3 * s._episode) % 4

    def step(self, s, action):
        reward = 1.0 * (action[0] == s.first) + 0.5 * (action[1] == s.second)
        s.age += 1
        s.first = (s.first + action[1] + 1) % 3
        s.second = (s.second + s.age) % 4
        return reward, action[0] == 2 and action[1] == 3 and s.age > 2

    def observe(self, s, obs):
        obs.me[0] = s.first
        obs.me[1] = s.second
        obs.me[2] = s.age / 5
        obs.who[0] = s.second

    def mask(self, s, mask):
        mask[(s.first + 1) % 3] = False


class Team(scramjet.Env):
    """Three agents act at once and die at different ages."""

    num_agents = 3
    max_episode_steps = 7
    observation_space = Dict({"me": Box(0, 10, (2,), np.float32), "who": Discrete(3)})
    action_space = Discrete(4)
    state = {"age": np.int32, "life": (np.int32, 3)}

    def reset(self, s):
        for player in range(3):
            s.life[player] = 3 + (s._index + 2 * s._episode + player * s._index) % 5

    def step(self, s, action, reward):
        s.age += 1
        for player in range(3):
            reward[player] = 1.0 * (action[player] == (s.age + player) % 4) - 0.1 * (action[player] == action[0])
        return action[0] == 3 and action[1] == 3 and action[2] == 3

    def alive(self, s, player):
        return s.age < s.life[player]

    def observe(self, s, obs, player):
        obs.me[0] = s.age
        obs.me[1] = s.life[player]
        obs.who[0] = player

    def mask(self, s, mask, player):
        mask[(s.age + player) % 3] = False


class Arm(scramjet.Env):
    """Two continuous actions with bounds of their own; an episode ends where both meet, or by the time limit."""

    max_episode_steps = 5
    observation_space = Box(-2, 2, (3,), np.float32)
    action_space = Box(np.array([-1, 0], np.float32), np.array([2, 0.5], np.float32))
    state = {"at": (np.float32, 2), "goal": np.float32}

    def reset(self, s):
        s.goal = ((s._index * 7 + s._episode * 3) % 11) / 11

    def step(self, s, action):
        s.at[0] = 0.5 * s.at[0] + 0.5 * action[0]
        s.at[1] = action[1]
        off = abs(s.at[0] - s.goal) + abs(s.at[1] - 0.25)
        return 1.0 - off, off < 0.2

    def observe(self, s, obs):
        obs[0] = s.at[0]
        obs[1] = s.at[1]
        obs[2] = s.goal


OWN_WORLDS: dict[str, type[scramjet.Env]] = {"own_dials": Dials, "own_team": Team, "own_arm": Arm}
CORE_WORLDS = ("cartpole", "pendulum", "tic_tac_toe")
"""Worlds that other tests of the core compile too."""


def worlds() -> tuple[str, ...]:
    """The names of all worlds that are compared; those of this file become known."""
    register_worlds()
    return (*(entry.name for entry in scramjet.envs.registry.registrations()), "gym:CartPole-v1")


@cache
def register_worlds() -> None:
    """Make the worlds of this file known by name."""
    for name, world in OWN_WORLDS.items():
        scramjet.register(name, world)


# --- what users do: networks of their own, and callbacks that change a policy while it trains ------------------------

Network = Callable[[Any, Any, Any], nn.Module]


def with_gelu(*spaces_and_config: Any) -> nn.Module:
    """A default network with another activation."""
    network = default_network(*spaces_and_config)
    for module in network.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.Tanh | nn.ReLU):
                setattr(module, name, nn.GELU())
    return network


def of_own_class(*spaces_and_config: Any) -> nn.Module:
    """A default network of a class of one's own, whose actor is another kind of Sequential."""
    network = default_network(*spaces_and_config)
    first = next(module for module in network.modules() if type(module) is nn.Sequential)
    first.__class__ = type(
        "Doubling", (nn.Sequential,), {"forward": lambda self, x: 2 * nn.Sequential.forward(self, x)}
    )
    return network


NETWORKS: dict[str, Network | None] = {"default": None, "gelu": with_gelu, "own class": of_own_class}
"""The networks that are trained."""

Change = Callable[[Session, int], None]
"""What a callback does with a session after an update, counted from the one after which it changes something."""


def activation_in(session: Session) -> tuple[nn.Module, str] | None:
    """The first activation of a network, as its parent and its name there."""
    for module in session.policy.network.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.Tanh | nn.ReLU):
                return module, name
    return None


def hook(session: Session, update: int) -> None:
    if update == 0 and (place := activation_in(session)) is not None:
        getattr(*place).register_forward_hook(lambda module, given, out: 0.5 * out)


def halve_a_gradient(session: Session, update: int) -> None:
    if update == 0:
        next(session.policy.network.parameters()).register_hook(lambda gradient: 0.5 * gradient)


def swap(session: Session, update: int) -> None:
    if update == 0 and (place := activation_in(session)) is not None:
        setattr(*place, nn.Softsign())


def decay(session: Session, update: int) -> None:
    if update == 0:
        session.learner.optimizer.param_groups[0]["weight_decay"] = 1.0


def freeze_and_thaw(session: Session, update: int) -> None:
    next(session.policy.network.parameters()).requires_grad_(update != 0)


def shrink(session: Session, update: int) -> None:
    with torch.no_grad():
        for weight in session.policy.network.parameters():
            weight.mul_(0.9)


def replace_values(session: Session, update: int) -> None:
    network = session.policy.network
    if update == 0 and hasattr(type(network), "value"):
        network.value = types.MethodType(lambda self, *given: 0.5 * type(self).value(self, *given), network)


CHANGES: dict[str, Change | None] = {
    "none": None,
    **{
        change.__name__: change
        for change in (hook, halve_a_gradient, swap, decay, freeze_and_thaw, shrink, replace_values)
    },
}
"""What a callback changes while a run trains."""


# --- cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A training that is run by both paths."""

    world: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    network: str = "default"
    change: str = "none"
    device: str = "cpu"
    changed_after: int = CHANGED_AFTER[0]

    def config(self, *, fused: bool) -> RunConfig:
        """The run's config; an error where the settings do not fit each other or the world."""
        register_worlds()
        settings = {**SMALL, **self.settings, "device": self.device, "precision": "float32"}
        if {"minibatch_size", "num_minibatches"} <= settings.keys() and settings["minibatch_size"] is not None:
            settings.pop("num_minibatches")
        settings = {name: value for name, value in settings.items() if name not in SMALL or _is_meant(name, settings)}
        config = resolve(with_keywords(RunConfig(env=self.world), {**settings, "fused": fused}))
        steps = (NUM_UPDATES - CHANGED_AFTER[0] + self.changed_after) * config.batch_size
        return with_keywords(config, {"total_timesteps": steps, "eval.every": 0, "eval.final_episodes": 0})


def _is_meant(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting does something: settings of other algorithms, memories and curiosities are refused."""
    table = name.partition(".")[0]
    if table in ("spo", "alphazero"):
        return bool(settings.get("algorithm", "ppo") == table)
    if name == "bonus.features":
        return settings.get("curiosity") in ("rnd", "icm", "noveld")
    if name == "bonus.elliptical_features":
        return settings.get("curiosity") == "e3b" or settings.get("bonus.episodic") == "elliptical"
    if table == "self_play":
        return bool(settings.get("self_play.pool_fraction") or settings.get("self_play.fixed_fraction"))
    return True


OPENING = ("algorithm", "curiosity", "policy.memory", "policy.encoder", "self_play.pool_fraction")
"""Settings on which it depends what others mean: drawn first, and often."""


@st.composite
def cases(draw: Any, names: tuple[str, ...], device: str = "cpu") -> Case:
    """A case whose settings are drawn one after another; those that do not fit the world or earlier ones are left."""
    values = drawn_settings() if device == "cuda" else {k: v for k, v in drawn_settings().items() if k != "env_device"}
    case = Case(draw(st.sampled_from(names)), device=device)
    opening = [name for name in OPENING if draw(st.integers(0, 2)) == 0]
    others = sorted(values.keys() - set(OPENING))
    for name in [*opening, *draw(st.lists(st.sampled_from(others), max_size=12, unique=True))]:
        tried = replace(case, settings={**case.settings, name: draw(st.sampled_from(values[name]))})
        case = tried if _is_meant(name, tried.settings) and fits(tried) else case
    return replace(
        case,
        network=draw(st.sampled_from([*["default"] * 6, *NETWORKS])),
        change=draw(st.sampled_from([*["none"] * 6, *CHANGES])),
        changed_after=draw(st.sampled_from(CHANGED_AFTER if device == "cuda" else CHANGED_AFTER[:1])),
    )


def fits(case: Case) -> bool:
    """Whether a case's settings can be trained, as far as can be said without its envs."""
    try:
        config = case.config(fused=True)
        world = config.make_env()
        policy = policy_for(world.observation_space, world.action_space, config)
        if config.traits.search is not None:
            check_searchable(world, policy, config.traits.search)
    except ScramjetError:
        return False
    if config.ppo.epochs * config.ppo.num_minibatches_for(config.batch_size, config.sequence_length) > MOST_GRADIENTS:
        return False
    is_for_one = is_foreign(case.world) or num_players(world) == 1
    return not (is_for_one and config.self_play.is_used)


# --- running and comparing -------------------------------------------------------------------------------------------


@dataclass
class Trained:
    """What one path played and learned."""

    executor: str = ""
    untrained: dict[str, np.ndarray] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    rollouts: list[dict[str, np.ndarray]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    refused: str = ""


class Watching(scramjet.Callback):
    """Keeps what a run plays and learns; `tremor` changes the first weights by such a share, drawn by `seed`."""

    def __init__(self, case: Case, tremor: float, seed: int) -> None:
        self.trained, self.tremor, self.seed = Trained(), tremor, seed
        self.change, self.changed_after = CHANGES[case.change], case.changed_after

    def on_start(self, session: Session) -> None:
        self.trained.executor = session.learner.executor.note
        generator = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            for weight in session.policy.parameters() if self.tremor else ():
                share = 1 + self.tremor * torch.randn(weight.shape, generator=generator)
                weight.mul_(share.to(weight.device))
        self.trained.untrained = numbers_of(session.policy)

    def on_update(self, record: dict[str, Any], session: Session) -> None:
        rollout = session.rollout
        kept = [item.name for item in fields(rollout) if item.name not in ("recurrent", "findings")]
        tensors = {name: [*leaves(getattr(rollout, name))] for name in kept if getattr(rollout, name) is not None}
        arrays = {
            f"{name} {i}": leaf.cpu().numpy().copy() for name, some in tensors.items() for i, leaf in enumerate(some)
        }
        self.trained.rollouts.append(arrays)
        self.trained.metrics.append(record)
        if self.change is not None:
            self.change(session, len(self.trained.rollouts) - self.changed_after)
        self.trained.weights = numbers_of(session.policy)


def numbers_of(policy: nn.Module) -> dict[str, np.ndarray]:
    """All numbers of a policy: its weights and statistics."""
    return {name: tensor.detach().cpu().double().numpy().copy() for name, tensor in policy.state_dict().items()}


def train(case: Case, *, fused: bool, tremor: float = 0.0, seed: int = 0) -> Trained:
    """Train a case by one of the paths; the plain one records nothing on a GPU, so that its Python code always runs."""
    watching = Watching(case, tremor, seed)
    with tempfile.TemporaryDirectory() as folder, nullcontext() if fused else _nothing_recorded():
        try:
            config = case.config(fused=fused)
            network = NETWORKS[case.network]
            if network is not None:
                world = config.make_env()
                torch.manual_seed(config.seed)
                network = network(world.observation_space, world.action_space, config.policy)
            scramjet.train(config, network=network, runs_dir=folder, display="quiet", callbacks=[watching])
        except ScramjetError as error:
            watching.trained.refused = f"{type(error).__name__}: {str(error).replace(folder, '')}"
    return watching.trained


@contextmanager
def _nothing_recorded() -> Iterator[None]:
    """Have `Recorder`s run their work each time."""
    with mock.patch.object(Recorder, "run", Stage.run):
        yield


@dataclass(frozen=True)
class Verdict:
    """What came of comparing both paths."""

    kind: Literal["equal", "apart", "sensitive", "refused"]
    executor: str
    distance: float = 0.0
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.distance:.2g} at {self.where or 'nothing'} ({self.executor})"


def compare(case: Case) -> Verdict:
    """Train a case by both paths, and say whether they did the same."""
    fast, plain = train(case, fused=True), train(case, fused=False)
    if fast.refused or plain.refused:
        if fast.refused == plain.refused:
            return Verdict("refused", fast.executor, where=fast.refused)
        return Verdict("apart", fast.executor, np.inf, f"fast: {fast.refused or 'trained'}; plain: {plain.refused}")
    distance, where = distance_between(fast, plain)
    if distance <= CLOSE:
        return Verdict("equal", fast.executor, distance, where)
    tremors = [
        distance_between(train(case, fused=fused, tremor=TREMOR, seed=seed), usual)[0]
        for fused, usual in ((False, plain), (True, fast))
        for seed in range(TREMORS)
    ]
    sensitivity = max(tremors)
    kind: Literal["apart", "sensitive"] = "apart" if distance > SENSITIVITY * sensitivity else "sensitive"
    return Verdict(kind, fast.executor, distance, f"{where}; tremors {sensitivity:.2g}")


def distance_between(one: Trained, other: Trained) -> tuple[float, str]:
    """How far two trainings are from each other, and where that is most."""
    found = [(abs(len(one.rollouts) - len(other.rollouts)), "number of updates")]
    for update, (mine, others) in enumerate(zip(one.rollouts, other.rollouts, strict=False), start=1):
        assert mine.keys() == others.keys()
        found += [(relative(mine[name], others[name]), f"update {update}, {name}") for name in mine]
    learned = norm_of(other.weights[name] - other.untrained[name] for name in other.weights if is_weight(other, name))
    off = norm_of(one.weights[name] - other.weights[name] for name in other.weights if is_weight(other, name))
    found.append((off / max(learned, 1e-6), "weights"))
    statistics = [name for name in other.weights if not is_weight(other, name)]
    found += [(relative(one.weights[name], other.weights[name]), name) for name in statistics]
    return max(found)


def is_weight(trained: Trained, name: str) -> bool:
    """Whether numbers of a policy are learned by gradients, and not counted."""
    return "normaliz" not in name


def norm_of(parts: Any) -> float:
    """The Euclidean norm of arrays together."""
    return float(np.sqrt(sum(float(np.square(part).sum()) for part in parts)))


def relative(one: np.ndarray, other: np.ndarray) -> float:
    """The distance of two arrays in units of the larger; of choices and flags, the share that differs."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return float("inf")
    if one.dtype.kind != "f":
        return float(np.mean(one != other)) if one.size else 0.0
    if not np.array_equal(np.isnan(one), np.isnan(other)):
        return float("inf")
    one, other = np.nan_to_num(one.astype(np.float64)), np.nan_to_num(other.astype(np.float64))
    size = max(np.linalg.norm(one), np.linalg.norm(other), 1e-6 * np.sqrt(max(one.size, 1)))
    return float(np.linalg.norm(one - other) / size)
