"""Networks and memory cores that a user writes himself or changes: what they remember, and losses that they add."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

import scramjet
from scramjet.algorithms.config import PPOConfig
from scramjet.errors import CheckpointError, ConfigError, TrainingError
from scramjet.executors.losses import OwnLosses, minibatch_loss
from scramjet.executors.samples import Samples
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Core, Policy, PolicyConfig, default_network
from scramjet.training import state
from scramjet.training.learner import Learner, loss_settings
from scramjet.training.session import Session
from tests.helpers.choosing import choosing_world
from tests.helpers.memory_training import play, run_config
from tests.helpers.run_files import lines_of

pytestmark = pytest.mark.usefixtures("one_thread")
TINY: dict[str, Any] = {
    "num_envs": 4, "num_steps": 8, "total_timesteps": 64, "num_epochs": 2, "num_minibatches": 2, "num_threads": 1,
    "eval": {"every": 0, "final_episodes": 0}, "display": "quiet",
}  # fmt: skip
LOSS = Callable[[Any, scramjet.LossBatch], Any]


class Plain(nn.Module):
    """CartPole's policy and value on one trunk, and a head that nobody asks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.actor, self.critic, self.extra = nn.Linear(8, 2), nn.Linear(8, 1), nn.Linear(8, 4)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(obs)
        return self.actor(features), self.critic(features).squeeze(-1)


def with_loss(loss: LOSS, base: type[nn.Module] = Plain) -> nn.Module:
    return type("Own", (base,), {"loss": loss})()


def reconstruction(self: Any, batch: scramjet.LossBatch) -> dict[str, Tensor]:
    return {"reconstruction": 0.5 * (self.extra(self.trunk(batch.obs)) - batch.obs).square().mean()}


def train(tmp_path: Path, network: nn.Module, **settings: Any) -> scramjet.TrainResult:
    return scramjet.train("cartpole", runs_dir=tmp_path, network=network, **{**TINY, **settings})


def minibatch(size: int = 6) -> Samples:
    generator = torch.Generator().manual_seed(3)
    log_prob, value, advantage, returns = torch.randn(4, size, generator=generator)
    obs = torch.randn(size, 4, generator=generator)
    action = torch.randint(2, (size,), generator=generator)
    given = {"obs": obs, "mask": None, "action": action, "log_prob": -log_prob.abs(), "value": value}
    return Samples(**given, advantage=advantage, returns=returns, place=torch.arange(size))


def gradients(network: nn.Module) -> dict[str, Tensor]:
    space = Box(-1, 1, (4,))
    policy = Policy(network, space, Discrete(2))
    loss = loss_settings(PPOConfig(num_minibatches=1), clip=0.2, entropy_coef=0.01)
    minibatch_loss(policy, minibatch(), loss, OwnLosses.of(network)).total.backward()
    return {name: torch.zeros(0) if p.grad is None else p.grad for name, p in network.named_parameters()}


def test_the_gradient_is_ppos_and_that_of_the_heads_error_by_hand():
    own, plain = with_loss(reconstruction), Plain()
    found, without = gradients(own), gradients(plain)
    obs, weight, bias = minibatch().obs, plain.extra.weight.detach(), plain.extra.bias.detach()
    features = plain.trunk(obs).detach()
    error = features @ weight.T + bias - obs  # of 0.5 * mean(error ** 2) over 6 * 4 numbers
    torch.testing.assert_close(found["extra.weight"], error.T @ features / error.numel())
    torch.testing.assert_close(found["extra.bias"], error.sum(0) / error.numel())
    into_trunk = (error @ weight) * (1 - features.square()) / error.numel()  # through tanh
    torch.testing.assert_close(found["trunk.0.weight"], without["trunk.0.weight"] + into_trunk.T @ obs)
    torch.testing.assert_close(found["actor.weight"], without["actor.weight"], rtol=0, atol=0)


def test_a_loss_of_zero_changes_no_bit_of_a_run(tmp_path: Path):
    zeros: list[LOSS] = [
        lambda self, batch: {"none": torch.zeros(())},
        lambda self, batch: {"none": 0.0 * batch.value.sum()},
    ]
    without, *others = (train(tmp_path, network) for network in (Plain(), *map(with_loss, zeros)))
    for own in others:
        for mine, other in zip(own.policy.parameters(), without.policy.parameters(), strict=True):
            assert torch.equal(mine, other)
        for mine, other in zip(lines_of(own.run_path), lines_of(without.run_path), strict=True):
            assert mine.pop("loss/none") == 0.0
            assert {**mine, "time": None} == {**other, "time": None}


def test_losses_are_logged_by_name_and_learned_and_the_header_says_how(tmp_path: Path, capsys):
    result = train(tmp_path, with_loss(reconstruction), total_timesteps=640, learning_rate=1e-2, display="plain")
    losses = [line["loss/reconstruction"] for line in lines_of(result.run_path)]
    assert sum(losses[-3:]) / 3 < 0.8 * losses[0]
    assert "adds the losses of Own, so learns by torch's operators" in capsys.readouterr().out


def test_a_default_network_with_a_loss_of_its_own_is_not_learned_by_the_kernels(tmp_path: Path):
    config = scramjet.PolicyConfig(hidden=(8,))
    network = default_network(Box(-1, 1, (4,)), Discrete(2), config)
    network.loss = lambda batch: {"size": batch.logits.square().mean()}  # type: ignore[assignment]
    assert train(tmp_path, network, policy=config).metrics["loss/size"] >= 0


class Remembering(nn.Module):
    """A fading mean of observations before the heads."""

    state_size = 4

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, obs: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        steps = []
        for t, each in enumerate(obs.unflatten(0, (-1, len(state)))):
            if begins is not None:
                state = state.masked_fill(begins[t].unsqueeze(1), 0.0)
            state = 0.5 * state + 0.5 * each
            steps.append(state)
        features = torch.cat(steps)
        return self.actor(features), self.critic(features).squeeze(-1), state


def test_with_memory_it_sees_whole_sequences_and_the_states_before_them(tmp_path: Path):
    seen: list[scramjet.LossBatch] = []

    def loss(self: Remembering, batch: scramjet.LossBatch) -> dict[str, Tensor]:
        seen.append(batch)
        assert batch.state is not None
        logits, value, _ = self(batch.obs, batch.state, batch.begins)
        assert torch.equal(logits, batch.logits)
        assert torch.equal(value, batch.value)
        return {"size": value.square().mean()}

    policy = train(tmp_path, with_loss(loss, Remembering)).policy
    batch: Any = seen[-1]
    assert (tuple(batch.state.shape), tuple(batch.begins.shape), len(batch.obs)) == ((2, 4), (8, 2), 16)
    state = policy.initial_state(2)
    for _ in range(2):
        policy.act(torch.ones(2, 4), state)
    assert state.tolist() == [[0.75] * 4] * 2


def test_what_the_batch_says_of_the_policy_now_is_the_policy_now(tmp_path: Path):
    def loss(self: Plain, batch: scramjet.LossBatch) -> dict[str, Tensor]:
        log_prob = torch.distributions.Categorical(logits=self(batch.obs)[0]).log_prob(batch.action)
        torch.testing.assert_close(batch.log_prob, log_prob)
        assert {len(batch.returns), len(batch.advantage), len(batch.old_log_prob), len(batch.old_value)} == {16}
        assert (batch.mask, batch.state, batch.begins, batch.counts) == (None,) * 4
        return {"none": torch.zeros(())}

    train(tmp_path, with_loss(loss))


class Frozen(Plain):
    """Only its heads learn, and one of them is never asked."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk.requires_grad_(False)


class Dropping(Plain):
    """Draws from torch's own generator whenever it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh())


def noisy(self: Plain, batch: scramjet.LossBatch) -> dict[str, Tensor]:
    return {"noise": (torch.rand_like(batch.value) * batch.value).mean()}


class StopAfterTwo:
    def on_update(self, record: dict[str, Any], session: scramjet.Session) -> None:
        if record["update"] == 2:
            session.stop("half")


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "unused head": Plain, "frozen": Frozen, "dropout": Dropping,
    "frozen with a loss": lambda: with_loss(reconstruction, Frozen), "noise in the loss": lambda: with_loss(noisy),
}  # fmt: skip


CORE = ("frozen with a loss", "noise in the loss")


@pytest.mark.parametrize("name", [n if n in CORE else pytest.param(n, marks=pytest.mark.rest) for n in NETWORKS])
def test_a_stopped_run_of_an_own_network_goes_on_bit_for_bit_and_can_be_forked(tmp_path: Path, name: str):
    make = NETWORKS[name]
    whole = train(tmp_path, make(), total_timesteps=128)
    half = train(tmp_path, make(), total_timesteps=128, callbacks=[StopAfterTwo()])
    torch.rand(3)  # what others draw meanwhile is nothing to the run
    resumed = scramjet.train(resume=half.run_path, network=make(), display="quiet")
    assert (half.step, resumed.step) == (64, 128)
    for mine, other in zip(resumed.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.equal(mine, other)
    fork = scramjet.train(fork=half.run_path, network=make(), runs_dir=tmp_path, total_timesteps=160, display="quiet")
    assert fork.step == 160


def test_a_checkpoint_from_before_torchs_own_generator_was_saved_goes_on(tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(state, "_torch_generators", lambda device: {})
        old = train(tmp_path, Dropping())
    assert scramjet.train(resume=old.run_path, network=Dropping(), total_timesteps=96, display="quiet").step == 96


def test_what_is_no_dict_of_scalars_or_fails_or_changes_or_diverges_is_told_with_the_network(tmp_path: Path):
    returned: list[tuple[Any, str]] = [
        (torch.zeros(()), "returns a dict of scalar tensors by name"),
        ({}, "returns a dict of scalar tensors"),
        ({"a": torch.zeros(2)}, r"'a' as a tensor \[2\] of torch.float32; each loss is one number"),
        ({"a": 0.5}, "'a' as 0.5; each loss is one number"),
        ({"a": torch.tensor(1)}, "of torch.int64"),
        ({"\x1b[2J": torch.zeros(())}, "printable characters"),
        ({3: torch.zeros(())}, "named one 3"),
    ]
    for value, message in returned:
        with pytest.raises(ConfigError, match=rf"the loss of the network Own.*{message}"):
            gradients(with_loss(lambda self, batch, value=value: value))
    with pytest.raises(ConfigError, match="the loss of the network Own failed: ZeroDivisionError"):
        gradients(with_loss(lambda self, batch: 1 / 0))
    names = iter("abcdefgh")
    with pytest.raises(ConfigError, match="returned b, and before that a"):
        train(tmp_path, with_loss(lambda self, batch: {next(names): torch.zeros(())}))
    with pytest.raises(TrainingError, match="'a' as nan"):
        train(tmp_path, with_loss(lambda self, batch: {"a": torch.tensor(torch.nan)}))


def test_a_loss_that_breaks_the_gradient_is_one_message_and_gradients_stay_on(tmp_path: Path):
    for does in (
        lambda batch: batch.obs.zero_(),
        lambda batch: batch.value.mean().backward(),
        lambda batch: torch.set_grad_enabled(False),
    ):

        def loss(self: Plain, batch: scramjet.LossBatch, does: Any = does) -> dict[str, Tensor]:
            does(batch)
            return {"size": torch.zeros(())}

        with pytest.raises(ConfigError, match=r"the loss of the network Own .*it may not change the batch"):
            train(tmp_path, with_loss(loss))
        assert torch.is_grad_enabled()


# --- cores of one's own, and settings that do not fit memory


class Latch(Core):
    """A core of a user's own, with or without a mistake: keeps the largest of each feature seen in the episode."""

    def __init__(self, num_inputs: int, mistake: str = "") -> None:
        super().__init__()
        self.num_features, self.mistake = num_inputs, mistake
        self.state_size: Any = "8" if mistake == "no size" else num_inputs

    def forward(self, features: Tensor, state: Tensor, begins: Tensor | None) -> Any:
        outputs = []
        for t in range(len(features)):
            if begins is not None and self.mistake != "leaks":
                state = state.masked_fill(begins[t].unsqueeze(1), 0.0)
            state = torch.maximum(state, features[t])
            outputs.append(state)
        stacked = torch.stack(outputs)
        if self.mistake == "turned":
            return stacked.transpose(0, 1), state
        return stacked, state.double() if self.mistake == "double" else state


def latched(env: Any, config: PolicyConfig, mistake: str = "") -> Policy:
    spaces = env.observation_space, env.action_space
    network = default_network(*spaces, config, core=lambda num_inputs, _: Latch(num_inputs, mistake))
    return Policy(network, *spaces, config)


def test_a_core_of_ones_own_collects_learns_and_is_exact():
    env = choosing_world(obs="dict", action="multi", players="agents", masked=True)
    for shared_trunk, state_size in ((False, 16), (True, 8)):
        policy = latched(env, PolicyConfig(hidden=(8,), shared_trunk=shared_trunk))
        assert policy.state_size == state_size
        _, rollout = play(policy, env, num_envs=3, num_steps=6, horizon=3, rollouts=2)
        config = PPOConfig(num_minibatches=2)
        learner = Learner.for_rollout(rollout, TorchExecutor(policy), config, total_steps=100, seed=0)
        before = [weight.clone() for weight in policy.parameters()]
        learner.update(learner.prepare(rollout), 0)
        assert any(not torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


def test_a_core_with_a_mistake_is_refused_before_training():
    env = choosing_world(obs="box", action="discrete", players="one")
    for mistake, message in {
        "no size": "the memory core Latch has state_size='8'",
        "turned": r"does not give for 2 steps of 3 rows .*: steps are laid out time-major",
        "leaks": r"does not give for 2 steps of 3 rows .*: where begins\[t, row\] is set",
        "double": r"returned a state float64 \[2, 8\] for 2 rows; it must be float32",
    }.items():
        with pytest.raises(ConfigError, match=message):
            latched(env, PolicyConfig(hidden=(8,), shared_trunk=True), mistake)


def test_a_run_with_a_core_of_ones_own_asks_for_it_and_says_how_to_go_on(tmp_path, capsys):
    shape = PolicyConfig(hidden=(8,), shared_trunk=True)
    network = latched(scramjet.make("cartpole", num_envs=1), shape).network
    config = run_config("cartpole", policy=shape)
    result = scramjet.train(config, runs_dir=tmp_path, network=network, display="plain")
    assert "scramjet.evaluate(" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match=r"a network of its own, .*Latch; load it from Python"):
        scramjet.evaluate(result.run_path)
    assert scramjet.evaluate(result.run_path, 3, network=network).episodes == 3


def test_a_checkpoint_with_other_memory_is_refused_with_the_setting_to_change(tmp_path):
    for trained, others in ((None, ["lstm"]), ("gru", [None, "lstm"])):
        shape = PolicyConfig(hidden=(8,), memory=trained, memory_size=5)
        run = scramjet.train(run_config("cartpole", policy=shape), runs_dir=tmp_path, display="quiet").run_path
        for wanted in others:
            other = replace(run_config("cartpole", policy=replace(shape, memory=wanted)), total_timesteps=10_000)
            name = trained or "none"
            with pytest.raises(CheckpointError, match=f"policy.memory={name}, .*--policy.memory {name}"):
                scramjet.train(other, fork=run, runs_dir=tmp_path, display="quiet")


def test_settings_that_do_not_fit_memory_are_refused_with_one_that_does(tmp_path):
    for changes, message in [
        ({"bptt_horizon": 3}, r"bptt_horizon=3 does not divide num_steps=8; try --bptt-horizon 2"),
        ({"num_minibatches": 3}, r"does not split the batch of 4 sequences of 8 steps .*-minibatches 2"),
        ({"minibatch_size": 4}, r"sequences of 8 steps; try --minibatch-size 8"),
    ]:
        with pytest.raises(ConfigError, match=message):
            run_config("cartpole", ppo=PPOConfig(**changes))
    for field, value in [("memory_size", 0), ("memory_layers", 0), ("memory", "elephant")]:
        with pytest.raises(ConfigError, match=f"policy.{field}"):
            PolicyConfig(**{field: value})
    without = run_config("cartpole", policy=PolicyConfig(), ppo=PPOConfig(bptt_horizon=4))
    with pytest.raises(ConfigError, match=r"bptt_horizon=4 .*--policy.memory lstm, or --bptt-horizon none"):
        scramjet.train(without, runs_dir=tmp_path, display="quiet")
    assert not list(tmp_path.iterdir())


# --- what a callback changes in a policy or its optimizer holds at once, also on the fast path -----------------------


SETTINGS: dict[str, Any] = {
    "env": "cartpole", "seed": 1, "num_steps": 32, "num_epochs": 2, "num_minibatches": 2,
    "policy": {"hidden": (16, 16)}, "eval": {"episodes": 2}, "display": "quiet", "num_threads": 1,
}  # fmt: skip


def weights_after(folder: Path, change: Callable[[Session], None] | None, **settings: Any) -> torch.Tensor:
    """All weights in a row after three updates, with a change made after the first."""

    class Changing(scramjet.Callback):
        seen = 0

        def on_update(self, record: dict[str, Any], session: Session) -> None:
            self.seen += 1
            if change is not None and self.seen == 1:
                change(session)

    result = scramjet.train(**SETTINGS, runs_dir=str(folder), callbacks=[Changing()], **settings)
    return torch.cat([weight.detach().flatten() for weight in result.policy.network.parameters()])


def hook(session: Session) -> None:
    session.policy.network.actor.register_forward_hook(lambda module, given, out: 2 * out)


def swap_activation(session: Session) -> None:
    session.policy.network.actor[1] = nn.ReLU()


def replace_logits(session: Session) -> None:
    network = session.policy.network
    usual = network.logits
    network.logits = lambda obs: 0.5 * usual(obs)


def decay(session: Session) -> None:
    session.learner.optimizer.param_groups[0]["weight_decay"] = 1.0


@pytest.mark.parametrize("num_envs", [8, 24], ids=["steps in one compiled function", "step by step"])
def test_a_changed_policy_acts_and_learns_as_by_plain_torch(tmp_path: Path, num_envs: int) -> None:
    settings = {"num_envs": num_envs, "total_timesteps": 3 * num_envs * 32}
    untouched = weights_after(tmp_path / "untouched", None, **settings)
    for change in (hook, swap_activation, replace_logits, decay):
        fast = weights_after(tmp_path / f"fast {change.__name__}", change, **settings)
        plain = weights_after(tmp_path / f"plain {change.__name__}", change, fused=False, **settings)
        learned = float((plain - untouched).norm())
        assert learned > 1e-3, change
        assert float((fast - plain).norm()) < 1e-2 * learned, change


def test_it_is_said_that_opponents_and_actors_keep_the_network_as_it_was(tmp_path: Path, capsys: Any) -> None:
    games = {"env": "tic_tac_toe", "total_timesteps": 192, "num_envs": 4, "num_steps": 16, "minibatch_size": 16}
    games |= {"policy": {"hidden": (8,)}, "eval": {"every": 0, "final_episodes": 0}, "display": "plain"}
    for name, settings, who in (
        ("alone", {}, None),
        ("opponents", {"self_play": {"pool_fraction": 0.5}}, "opponents"),
        ("actors", {"mode": "async", "num_actors": 1}, "actors"),
    ):
        for change in (None, hook):
            told = TellingOf(change)
            scramjet.train(
                **games, **settings, runs_dir=tmp_path, run_name=f"{name}-{change is None}", callbacks=[told]
            )
            output = capsys.readouterr()
            warnings = (output.out + output.err).count("changed the network")
            assert warnings == int(who is not None and change is not None), (name, change)


class TellingOf(scramjet.Callback):
    """Makes a change after each update."""

    def __init__(self, change: Callable[[Session], None] | None) -> None:
        self.change = change

    def on_update(self, record: dict[str, Any], session: Session) -> None:
        if self.change is not None:
            self.change(session)
