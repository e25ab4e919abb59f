"""Training with memory: what is stored is what a replay of each player's own episodes gives, and all of it is used."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import scramjet
from scramjet.accelerate.numba.executor import native_play
from scramjet.algorithms.advantages import seat_vtrace, vtrace
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine.layout import PlayedBy
from scramjet.engine.trees import map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Env
from scramjet.errors import CheckpointError, ConfigError, TrainingError
from scramjet.policies import Policy, PolicyConfig
from scramjet.policies.networks import default_network
from scramjet.policies.recurrent.cores import Core
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.learner import Learner
from scramjet.training.rollout.recurrent_states import Player
from scramjet.training.rollout.rollout import Rollout, allocate_rollout, collect
from tests.helpers.choosing import choosing_world

pytestmark = pytest.mark.usefixtures("one_thread")

MEMORIES = ("lstm", "gru", "mingru")


def make_policy(env: Env, **shape: Any) -> Policy:
    """A policy whose actions and values hang on what it remembers."""
    config = PolicyConfig(**{"hidden": (8,), "memory": "lstm", "memory_size": 6, "shared_trunk": True} | shape)
    spaces = env.observation_space, env.action_space
    torch.manual_seed(0)
    policy = Policy(default_network(*spaces, config), *spaces, config)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "actor_head" in name and weight.dim() == 2:
                weight.mul_(50)
    return policy


class Recorder(NativePool):
    """A pool that keeps a copy of every step's last observations."""

    def step_unchecked(self, actions: Any, out: Any) -> None:
        super().step_unchecked(actions, out)
        self.seen.append(map_leaves(np.copy, out.final_obs))

    seen: list[Any]


def play(
    policy: Policy, env: Env, *, num_envs: int, num_steps: int, horizon: int | None, rollouts: int, native: bool = False
) -> Any:
    """A pool played for some rollouts; all of them, each with its last observations."""
    pool = Recorder(env, num_envs, backend="interpreted")
    pool.seen = []
    rollout = allocate_rollout(pool, policy, num_steps, horizon)
    if native:
        rollout.native = native_play(policy, rollout)
    pool.reset(7, out=rollout.rows[-1])
    generator = torch.Generator().manual_seed(5)
    replay = Replay(pool, policy)
    for _ in range(rollouts):
        pool.seen.clear()
        collect(pool, policy, rollout, generator)
        replay.check(rollout, pool.seen)
    return pool, rollout


class Replay:
    """An oracle: each player's episodes played again, one observation at a time, from a state of zeros."""

    def __init__(self, pool: NativePool, policy: Policy) -> None:
        self.pool, self.policy = pool, policy
        self.by_seats = pool.played_by is PlayedBy.SEATS
        self.seats = pool.num_players if self.by_seats else 1
        self.states: dict[tuple[int, int], Tensor] = {}
        self.num_cut = 0

    def state(self, row: int, seat: int) -> Tensor:
        return self.states.get((row, seat), torch.zeros(1, self.policy.state_size))

    def value(self, obs: Any, row: int, seat: int) -> float:
        return float(self.policy(obs, self.state(row, seat)).value)

    @torch.no_grad()
    def check(self, rollout: Rollout, last_seen: list[Any]) -> None:
        for t, row in itertools.product(range(rollout.num_steps), range(self.pool.num_rows)):
            if rollout.alive is not None and not rollout.alive[t, row]:
                continue
            seat = int(rollout.seat[t, row]) if self.by_seats else 0
            output = self.policy(self.at(rollout.obs, t, row), self.state(row, seat))
            mask = None if rollout.mask is None else rollout.mask[t, row : row + 1]
            action = rollout.action[t, row : row + 1]
            log_prob, _ = self.policy.distribution.log_prob_and_entropy(output.logits, action, mask)
            torch.testing.assert_close(log_prob[0], rollout.log_prob[t, row], atol=2e-5, rtol=1e-4)
            torch.testing.assert_close(output.value[0], rollout.value[t, row], atol=2e-5, rtol=1e-4)
            self.states[row, seat] = output.state
            if rollout.truncated[t, row]:
                self.check_cut(rollout, last_seen[t], t, row)
            if rollout.terminated[t, row] or rollout.truncated[t, row]:
                for each in range(self.seats):
                    self.states.pop((row, each), None)
        for row in range(self.pool.num_rows):
            seat = int(rollout.seat[-1, row]) if self.by_seats else 0
            if rollout.alive is None or rollout.alive[-1, row]:
                value = self.value(self.at(rollout.obs, -1, row), row, seat)
                assert value == pytest.approx(float(rollout.value[-1, row]), abs=2e-5, rel=1e-4)

    def check_cut(self, rollout: Rollout, last_seen: Any, t: int, row: int) -> None:
        """A truncated episode is valued at its own last observation, with what was remembered then; seats' are not."""
        self.num_cut += 1
        stored = float(rollout.final_value[t, row])
        if self.by_seats:
            assert stored == 0.0
            return
        obs = map_leaves(lambda leaf: torch.from_numpy(leaf[row : row + 1]), last_seen)
        value = self.value(obs, row, 0)
        assert value == pytest.approx(stored, abs=2e-5, rel=1e-4)
        assert value != 0.0

    @staticmethod
    def at(obs: Any, t: int, row: int) -> Any:
        return map_leaves(lambda leaf: leaf[t, row : row + 1], obs)


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    action = draw(st.sampled_from(["discrete", "multi", "box"]))
    players = draw(st.sampled_from(["one", "agents", "seats"]))
    horizon = draw(st.sampled_from([1, 2, 3, 4]))
    fewest = 2 if players == "seats" and horizon == 1 else 1  # each of two seats must see what came of a turn
    return {
        "world": {
            "obs": draw(st.sampled_from(["box", "dict"])),
            "action": action,
            "players": players,
            "masked": action != "box" and draw(st.booleans()),
        },
        "limit": draw(st.sampled_from([None, 1, 2, 3, 5])),
        "shape": {
            "memory": draw(st.sampled_from(MEMORIES)),
            "memory_size": draw(st.integers(1, 9)),
            "memory_layers": draw(st.integers(1, 2)),
            "shared_trunk": draw(st.booleans()),
        },
        "num_envs": draw(st.integers(1, 4)),
        "horizon": horizon,
        "num_steps": horizon * draw(st.integers(fewest, 4)),
        "native": draw(st.booleans()),
    }


@settings(max_examples=60)
@given(cases())
def test_before_the_first_gradient_step_every_stored_number_is_what_the_policy_gives_again(case):
    env = choosing_world(**case["world"])
    type(env).max_episode_steps = case["limit"]
    policy = make_policy(env, **case["shape"])
    shape = {name: case[name] for name in ("num_envs", "num_steps", "horizon", "native")}
    _, rollout = play(policy, env, rollouts=3, **shape)
    learner = Learner.for_rollout(rollout, policy, PPOConfig(num_minibatches=1), total_steps=100, seed=0)
    samples, wanted = learner.prepare(rollout), those_that_count(rollout).flatten().nonzero().flatten()
    if not len(wanted):
        with pytest.raises(TrainingError, match=r"nothing to learn from.*cut before a seat moved twice"):
            learner.update(samples, 0)
        return
    with torch.no_grad():
        output = policy(samples.obs, samples.state, samples.begins)
        log_prob, _ = policy.distribution.log_prob_and_entropy(output.logits, samples.action, samples.mask)
    is_step = samples.place >= 0  # sequences of seats are filled up
    torch.testing.assert_close(log_prob[is_step], samples.log_prob[is_step], atol=3e-5, rtol=1e-4)
    torch.testing.assert_close(output.value[is_step], samples.value[is_step], atol=3e-5, rtol=1e-4)
    assert sorted(samples.counted(samples.place).tolist()) == wanted.tolist()  # each once, and no other


def those_that_count(rollout: Rollout) -> Tensor:
    """What was played and whose outcome is known: of seats, a next turn of the same game, or its end; [T, R]."""
    if rollout.seat is None:
        return torch.ones_like(rollout.terminated) if rollout.alive is None else rollout.alive[:-1].bool()
    known = torch.zeros_like(rollout.terminated)
    for t, row in itertools.product(range(rollout.num_steps), range(known.shape[1])):
        for later in range(t + 1, rollout.num_steps + 1):
            if rollout.terminated[later - 1, row]:
                known[t, row] = True
            if rollout.terminated[later - 1, row] or rollout.truncated[later - 1, row]:
                break
            if rollout.seat[later, row] == rollout.seat[t, row]:
                known[t, row] = True
                break
    return known


@pytest.mark.parametrize("players", ["one", "agents", "seats"])
def test_truncated_episodes_are_among_those_replayed(players):
    env = choosing_world(obs="dict", action="multi", players=players)
    type(env).max_episode_steps = 3
    pool = Recorder(env, 3, backend="interpreted")
    pool.seen = []
    policy = make_policy(env)
    rollout = allocate_rollout(pool, policy, 8)
    pool.reset(7, out=rollout.rows[-1])
    replay = Replay(pool, policy)
    replay.check(collect(pool, policy, rollout, torch.Generator().manual_seed(5)), pool.seen)
    assert replay.num_cut > 5


@pytest.mark.parametrize("players", ["one", "agents", "seats"])
def test_a_row_changes_nothing_of_another_nor_an_episode_of_the_next(players):
    env = choosing_world(obs="box", action="discrete", players=players)
    policy = make_policy(env, shared_trunk=False)
    _, rollout = play(policy, env, num_envs=3, num_steps=12, horizon=None, rollouts=1)
    samples = Learner.for_rollout(rollout, policy, PPOConfig(num_minibatches=1), total_steps=1, seed=0).prepare(rollout)
    length, sequences = samples.begins.shape
    disturbed = samples.obs.unflatten(0, (length, sequences)).clone()
    end = int(samples.begins[1:, 0].nonzero()[0]) + 1  # where the second episode of sequence 0 begins
    disturbed[:end, 0] += 1.0
    with torch.no_grad():
        before = policy(samples.obs, samples.state, samples.begins).logits.unflatten(0, (length, sequences))
        after = policy(disturbed.flatten(0, 1), samples.state, samples.begins).logits.unflatten(0, (length, sequences))
    assert not torch.equal(before[:end, 0], after[:end, 0])
    assert torch.equal(before[end:, 0], after[end:, 0])
    assert torch.equal(before[:, 1:], after[:, 1:])


def test_a_shorter_horizon_begins_from_stored_states_and_cuts_the_gradient_there():
    env = choosing_world(obs="box", action="discrete", players="one")
    policy = make_policy(env)
    _, rollout = play(policy, env, num_envs=2, num_steps=8, horizon=4, rollouts=2)
    assert rollout.states.shape == (2, 2, policy.state_size)
    samples = Learner.for_rollout(rollout, policy, PPOConfig(num_minibatches=1), total_steps=1, seed=0).prepare(rollout)
    assert samples.begins.shape == (4, 4)
    assert samples.place.view(4, 4)[:, 2].tolist() == [8, 10, 12, 14]  # env 0 from step 4 on
    assert torch.equal(samples.state, rollout.states.flatten(0, 1))
    assert not samples.state.requires_grad


@pytest.mark.parametrize("shape", [{"memory": None}, {"memory": "gru"}], ids=["none", "gru"])
@pytest.mark.parametrize("players", ["one", "agents", "seats"])
def test_vtrace_is_estimated_again_for_the_policy_as_it_is_now(players, shape, monkeypatch):
    env = choosing_world(obs="box", action="discrete", players=players)
    type(env).max_episode_steps = 4
    policy = make_policy(env, **shape)
    _, rollout = play(policy, env, num_envs=3, num_steps=8, horizon=4 if policy.state_size else None, rollouts=1)
    config = PPOConfig(
        num_minibatches=3, num_epochs=2, advantage="vtrace", gae_lambda=0.8, learning_rate=0.01, normalize_rewards=False
    )
    learner = Learner.for_rollout(rollout, policy, config, total_steps=100, seed=0)
    batch = learner.prepare(rollout)
    expected_first = batch.advantage.clone()
    reference = Learner.for_rollout(rollout, policy, replace(config, advantage="gae"), total_steps=100, seed=0)
    assert torch.equal(expected_first, reference.prepare(rollout).advantage)  # on-policy it is GAE
    learner.update(batch, 0)
    monkeypatch.setattr(learner, "num_minibatches", 1)
    learner._estimate_again(batch, batch.targets)
    with torch.no_grad():
        output = policy(batch.obs, batch.state, batch.begins)
        log_prob, _ = policy.distribution.log_prob_and_entropy(output.logits, batch.action, batch.mask)
    value, log_ratio = rollout.value.clone(), torch.zeros(8, rollout.log_prob.shape[1])
    for sample in (batch.place >= 0).nonzero().flatten().tolist():
        t, row = divmod(int(batch.place[sample]), rollout.log_prob.shape[1])
        value[t, row], log_ratio[t, row] = output.value[sample], log_prob[sample] - rollout.log_prob[t, row]
    with torch.no_grad():  # of what comes after the rollout, and of turns that give no sample
        value[-1] = policy(rollout.obs[-1], rollout.memories.of_movers(rollout.turn(-1))).value
        if not policy.state_size:
            value[:-1] = policy(rollout.obs[:-1].flatten(0, 1)).value.view(8, -1)
    assert not torch.allclose(value[-1], rollout.value[-1])
    ends = rollout.terminated, rollout.truncated, rollout.final_value
    settings = {"gamma": config.gamma, "gae_lambda": 0.8}
    if players == "seats":
        wanted, _, known = seat_vtrace(rollout.reward, value, rollout.seat, *ends, log_ratio, **settings)
        assert 3 < (~known).sum() < 20
    else:
        wanted, _ = vtrace(rollout.reward, value, *ends, log_ratio, **settings)
    place = batch.counted(batch.place)
    torch.testing.assert_close(batch.counted(batch.advantage), wanted.flatten()[place])
    assert not torch.allclose(batch.counted(batch.advantage), batch.counted(expected_first))


def test_minibatches_are_whole_sequences_and_an_epoch_sees_each_once(monkeypatch):
    env = choosing_world(obs="box", action="discrete", players="one")
    policy = make_policy(env)
    _, rollout = play(policy, env, num_envs=6, num_steps=4, horizon=2, rollouts=1)
    learner = Learner.for_rollout(rollout, policy, PPOConfig(num_minibatches=3, num_epochs=2), total_steps=1, seed=0)
    seen: list[Tensor] = []
    loss = learner.loss
    monkeypatch.setattr(learner, "loss", lambda batch, **rest: (seen.append(batch.place), loss(batch, **rest))[1])
    learner.update(learner.prepare(rollout), 0)
    assert [len(places) for places in seen] == [8] * 6
    for epoch in (seen[:3], seen[3:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(24))
    for places in seen:  # two steps of the same env side by side
        first, second = places.view(2, 4)
        assert torch.equal(first + 6, second)


class Latch(Core):
    """A core of a user's own: keeps the largest of each feature seen in the episode."""

    def __init__(self, num_inputs: int) -> None:
        super().__init__()
        self.num_features = self.state_size = num_inputs

    def forward(self, features: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs = []
        for t in range(len(features)):
            if begins is not None:
                state = state.masked_fill(begins[t].unsqueeze(1), 0.0)
            state = torch.maximum(state, features[t])
            outputs.append(state)
        return torch.stack(outputs), state


@pytest.mark.parametrize("shared_trunk", [False, True])
def test_a_core_of_ones_own_collects_learns_and_is_exact(shared_trunk):
    env = choosing_world(obs="dict", action="multi", players="agents", masked=True)
    config = PolicyConfig(hidden=(8,), shared_trunk=shared_trunk)
    spaces = env.observation_space, env.action_space
    network = default_network(*spaces, config, core=lambda num_inputs, _: Latch(num_inputs))
    policy = Policy(network, *spaces, config)
    assert policy.state_size == (8 if shared_trunk else 16)
    _, rollout = play(policy, env, num_envs=3, num_steps=6, horizon=3, rollouts=2)
    learner = Learner.for_rollout(rollout, policy, PPOConfig(num_minibatches=2), total_steps=100, seed=0)
    before = [weight.clone() for weight in policy.parameters()]
    learner.update(learner.prepare(rollout), 0)
    assert any(not torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


class Careless(Latch):
    """A core with one mistake."""

    def __init__(self, num_inputs: int, mistake: str) -> None:
        super().__init__(num_inputs)
        self.mistake = mistake
        if mistake == "no size":
            self.state_size = "8"

    def forward(self, features: Tensor, state: Tensor, begins: Tensor | None) -> Any:
        outputs, state = super().forward(features, state, None if self.mistake == "leaks" else begins)
        if self.mistake == "turned":
            return outputs.transpose(0, 1), state
        return (outputs, state.double()) if self.mistake == "double" else (outputs, state)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("no size", "the memory core Careless has state_size='8'"),
        ("turned", r"does not give for 2 steps of 3 rows .*: steps are laid out time-major"),
        ("leaks", r"does not give for 2 steps of 3 rows .*: where begins\[t, row\] is set"),
        ("double", r"returned a state float64 \[2, 8\] for 2 rows; it must be float32"),
    ],
)
def test_a_core_with_a_mistake_is_refused_before_training(mistake, message):
    env = choosing_world(obs="box", action="discrete", players="one")
    config, spaces = PolicyConfig(hidden=(8,), shared_trunk=True), (env.observation_space, env.action_space)

    def make() -> Policy:
        network = default_network(*spaces, config, core=lambda num_inputs, _: Careless(num_inputs, mistake))
        return Policy(network, *spaces, config)

    with pytest.raises(ConfigError, match=message):
        make()


def test_a_run_with_a_core_of_ones_own_asks_for_it_and_says_how_to_go_on(tmp_path, capsys):
    world, shape = "cartpole", PolicyConfig(hidden=(8,), shared_trunk=True)
    pool = scramjet.make(world, num_envs=1)
    spaces = pool.observation_space, pool.action_space
    network = default_network(*spaces, shape, core=lambda num_inputs, _: Latch(num_inputs))
    result = scramjet.train(run_config(world, policy=shape), runs_dir=tmp_path, network=network, display="plain")
    assert "scramjet.evaluate(" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match=r"a network of its own, .*Latch; load it from Python"):
        scramjet.evaluate(result.run_path)
    assert scramjet.evaluate(result.run_path, 3, network=network).episodes == 3


class Counting(torch.nn.Module):
    """A network of a user's own with memory: counts its steps, in one number."""

    state_size = 1

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(5, 3)

    def forward(self, obs: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        steps, counts = obs.unflatten(0, (-1, len(state))), []
        for t in range(len(steps)):
            if begins is not None:
                state = state.masked_fill(begins[t].unsqueeze(1), 0.0)
            state = state + 1
            counts.append(state)
        out = self.head(torch.cat([obs, torch.cat(counts)], dim=1))
        return out[:, :2], out[:, 2], state


def test_a_network_of_ones_own_may_remember_and_resumes(tmp_path):
    quiet = {"env": "cartpole", "num_envs": 4, "num_steps": 8, "num_threads": 1, "total_timesteps": 96}
    config = RunConfig(**quiet, eval=EvaluationConfig(every=0, final_episodes=0))
    torch.manual_seed(0)
    network = Counting()
    result = scramjet.train(config, runs_dir=tmp_path, network=network, display="quiet")
    state = result.policy.initial_state(2)
    result.policy.act(torch.zeros(2, 4), state)
    result.policy.act(torch.zeros(2, 4), state)
    assert state.tolist() == [[2.0], [2.0]]


# --- runs ------------------------------------------------------------------------------------------------------------


def run_config(world: str, **changes: Any) -> RunConfig:
    return RunConfig(
        env=world,
        num_envs=4,
        num_steps=8,
        num_threads=1,
        total_timesteps=4 * 8 * 6,
        eval=EvaluationConfig(every=2, episodes=3, final_episodes=3),
        checkpoint=CheckpointConfig(every=1, keep_last_n=None),
        **{"policy": PolicyConfig(hidden=(8,), memory="gru", memory_size=5)} | changes,
    )


@pytest.mark.parametrize("world", ["cartpole", "snake", "connect_four"])
@pytest.mark.parametrize("ppo", [PPOConfig(), PPOConfig(advantage="vtrace", bptt_horizon=4)], ids=["whole", "vtrace"])
def test_a_run_with_memory_resumed_ends_bit_for_bit_as_if_it_had_never_stopped(world, ppo, tmp_path):
    config = run_config(world, ppo=ppo)
    whole = scramjet.train(config, runs_dir=tmp_path, run_name="whole", display="quiet")
    scramjet.train(replace(config, total_timesteps=4 * 8 * 3), runs_dir=tmp_path, run_name="cut", display="quiet")
    resumed = scramjet.train(resume=tmp_path / "cut", total_timesteps=4 * 8 * 6, runs_dir=tmp_path, display="quiet")
    for name, tensor in whole.policy.state_dict().items():
        assert torch.equal(tensor, resumed.policy.state_dict()[name]), name
    metrics = [{key: value for key, value in result.metrics.items() if key != "time"} for result in (whole, resumed)]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize(("trained", "wanted"), [("gru", None), (None, "lstm"), ("lstm", "gru")])
def test_a_checkpoint_with_other_memory_is_refused_with_the_setting_to_change(trained, wanted, tmp_path):
    shape = PolicyConfig(hidden=(8,), memory=trained, memory_size=5)
    result = scramjet.train(run_config("cartpole", policy=shape), runs_dir=tmp_path, run_name="a", display="quiet")
    other = replace(run_config("cartpole", policy=replace(shape, memory=wanted)), total_timesteps=10_000)
    with pytest.raises(
        CheckpointError, match=f"policy.memory={trained or 'none'}, .*--policy.memory {trained or 'none'}"
    ):
        scramjet.train(other, fork=result.run_path, runs_dir=tmp_path, display="quiet")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ppo": PPOConfig(bptt_horizon=3)}, r"bptt_horizon=3 does not divide num_steps=8; try --bptt-horizon 2"),
        ({"ppo": PPOConfig(num_minibatches=3)}, r"does not split the batch of 4 sequences of 8 steps .*-minibatches 2"),
        ({"ppo": PPOConfig(minibatch_size=4)}, r"sequences of 8 steps; try --minibatch-size 8"),
    ],
)
def test_settings_that_do_not_fit_memory_are_refused_with_one_that_does(changes, message):
    with pytest.raises(ConfigError, match=message):
        run_config("cartpole", **changes)


def test_a_horizon_without_memory_is_refused(tmp_path):
    config = run_config("cartpole", policy=PolicyConfig(), ppo=PPOConfig(bptt_horizon=4))
    with pytest.raises(ConfigError, match=r"bptt_horizon=4 .*--policy.memory lstm, or --bptt-horizon none"):
        scramjet.train(config, runs_dir=tmp_path, display="quiet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("field", "value"), [("memory_size", 0), ("memory_layers", 0), ("memory", "elephant")])
def test_impossible_memories_are_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=f"policy.{field}"):
        PolicyConfig(**{field: value})


# --- use afterwards --------------------------------------------------------------------------------------------------


def test_act_brings_the_state_up_to_date_in_place_and_a_reset_row_plays_as_at_the_beginning():
    pool = scramjet.make("cartpole", num_envs=3)
    policy = make_policy(pool.env)
    out, state = pool.reset(0), policy.initial_state(3)
    obs = torch.from_numpy(out.obs.copy())
    fresh = policy.act(obs, state).clone()
    assert state.abs().sum() > 0
    first = state.clone()
    policy.act(obs, state)
    assert not torch.equal(state, first)
    state[torch.tensor([True, False, True])] = 0
    assert torch.equal(policy.act(obs, state)[[0, 2]], fresh[[0, 2]])
    assert torch.equal(state[[0, 2]], first[[0, 2]])


def test_acting_without_the_state_or_with_something_else_says_what_to_do():
    pool = scramjet.make("cartpole", num_envs=3)
    policy, obs = make_policy(pool.env), pool.reset(0).obs
    with pytest.raises(ConfigError, match=r"has memory: make state = policy.initial_state\(3\)"):
        policy.act(obs)
    for wrong in (torch.zeros(2, policy.state_size), np.ones((3, 2), np.bool_), "state"):
        with pytest.raises(ConfigError, match=r"this policy takes a tensor of float32 \[3, 12\]"):
            policy.act(obs, wrong)


@pytest.mark.parametrize("players", ["one", "agents", "seats"])
def test_a_player_remembers_its_own_episodes_alone(players):
    """Played in a pool of many or alone, an env sees the same actions: no state crosses envs or episodes."""
    env = choosing_world(obs="dict", action="discrete", players=players)
    policy = make_policy(env)
    actions = []
    for num_envs in (1, 4):
        pool = NativePool(env, num_envs, backend="interpreted")
        out, player, taken = pool.reset(3), Player(pool, policy), []
        for _ in range(20):
            action = player.act(out)
            taken.append(action[: pool.num_rows // num_envs].copy())
            out = pool.step(action)
            player.see(out)
        actions.append(np.stack(taken))
    assert np.array_equal(actions[0], actions[1])
