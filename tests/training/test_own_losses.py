"""Losses of a network's own: added to PPO's with autograd's gradients, logged by name, and zero changes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

import scramjet
from scramjet.accelerate.losses import minibatch_loss
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.algorithms.ppo import PPOConfig
from scramjet.errors import ConfigError, TrainingError
from scramjet.policies.networks import default_network
from scramjet.policies.policy import Policy
from scramjet.runtime.metrics_log import read_metrics
from scramjet.training.batches.samples import Samples
from scramjet.training.learner import Learner, RolloutSize, loss_settings
from scramjet.training.persistence import state

pytestmark = pytest.mark.usefixtures("one_thread")
TINY: dict[str, Any] = {
    "num_envs": 4,
    "num_steps": 8,
    "total_timesteps": 64,
    "num_epochs": 2,
    "num_minibatches": 2,
    "eval": {"every": 0, "final_episodes": 0},
    "display": "quiet",
    "num_threads": 1,
}
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
    numbers = [torch.randn(size, generator=generator) for _ in range(4)]
    return Samples(
        obs=torch.randn(size, 4, generator=generator),
        mask=None,
        action=torch.randint(2, (size,), generator=generator),
        log_prob=-numbers[0].abs(),
        value=numbers[1],
        advantage=numbers[2],
        returns=numbers[3],
        place=torch.arange(size),
    )


def gradients(network: nn.Module) -> dict[str, Tensor]:
    space = Box(-1, 1, (4,))
    policy = Policy(network, space, Discrete(2))
    learner = Learner(TorchExecutor(policy), PPOConfig(num_minibatches=1), RolloutSize(1, 6), total_steps=6, seed=1)
    minibatch_loss(policy, minibatch(), loss_settings(learner.config, clip=0.2, entropy_coef=0.01)).total.backward()
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


@pytest.mark.parametrize(
    "zero",
    [lambda self, batch: {"none": torch.zeros(())}, lambda self, batch: {"none": 0.0 * batch.value.sum()}],
    ids=["constant", "with a gradient"],
)
def test_a_loss_of_zero_changes_no_bit_of_a_run(tmp_path: Path, zero: LOSS):
    without, own = train(tmp_path, Plain()), train(tmp_path, with_loss(zero))
    for mine, other in zip(own.policy.parameters(), without.policy.parameters(), strict=True):
        assert torch.equal(mine, other)
    lines = [read_metrics(run.run_path / "metrics.jsonl") for run in (own, without)]
    for mine, other in zip(*lines, strict=True):
        assert mine.pop("loss/none") == 0.0
        assert {**mine, "time": None} == {**other, "time": None}


def test_losses_are_logged_by_name_and_learned_and_the_header_says_how(tmp_path: Path, capsys):
    result = train(tmp_path, with_loss(reconstruction), total_timesteps=640, learning_rate=1e-2, display="plain")
    losses = [line["loss/reconstruction"] for line in read_metrics(result.run_path / "metrics.jsonl")]
    assert sum(losses[-3:]) / 3 < 0.8 * losses[0]
    assert "adds the losses of Own, so learns by torch's operators" in capsys.readouterr().out


def test_a_default_network_with_a_loss_of_its_own_is_not_learned_by_the_kernels(tmp_path: Path):
    config = scramjet.PolicyConfig(hidden=(8,))
    world = scramjet.make("cartpole", num_envs=1).env
    network = default_network(world.observation_space, world.action_space, config)
    network.loss = lambda batch: {"size": batch.logits.square().mean()}  # type: ignore[assignment]
    result = train(tmp_path, network, policy=config)
    assert result.metrics["loss/size"] >= 0


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

    train(tmp_path, with_loss(loss, Remembering))
    batch = seen[-1]
    assert batch.state is not None
    assert batch.begins is not None
    assert (tuple(batch.state.shape), tuple(batch.begins.shape), len(batch.obs)) == ((2, 4), (8, 2), 16)


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


@pytest.mark.parametrize(
    "make",
    [Plain, Frozen, Dropping, lambda: with_loss(reconstruction, Frozen), lambda: with_loss(noisy)],
    ids=["unused head", "frozen", "dropout", "frozen with a loss", "noise in the loss"],
)
def test_a_stopped_run_of_an_own_network_goes_on_bit_for_bit_and_can_be_forked(
    tmp_path: Path, make: Callable[[], nn.Module]
):
    whole = train(tmp_path, make(), total_timesteps=128)
    half = train(tmp_path, make(), total_timesteps=128, callbacks=[StopAfterTwo()])
    torch.rand(3)  # what others draw meanwhile is nothing to the run
    resumed = scramjet.train(resume=half.run_path, network=make(), display="quiet")
    assert (half.step, resumed.step) == (64, 128)
    for mine, other in zip(resumed.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.equal(mine, other)
    fork = scramjet.train(fork=half.run_path, network=make(), runs_dir=tmp_path, total_timesteps=160, display="quiet")
    assert fork.step == 160


def test_a_checkpoint_from_before_torchs_own_generator_was_saved_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as before:
        before.setattr(state, "_torch_generators", lambda device: {})
        old = train(tmp_path, Dropping())
    assert scramjet.train(resume=old.run_path, network=Dropping(), total_timesteps=96, display="quiet").step == 96


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (torch.zeros(()), "returns a dict of scalar tensors by name"),
        ({}, "returns a dict of scalar tensors"),
        ({"a": torch.zeros(2)}, r"'a' as a tensor \[2\] of torch.float32; each loss is one number"),
        ({"a": 0.5}, "'a' as 0.5; each loss is one number"),
        ({"a": torch.tensor(1)}, "of torch.int64"),
        ({"\x1b[2J": torch.zeros(())}, "printable characters"),
        ({3: torch.zeros(())}, "named one 3"),
    ],
)
def test_what_is_no_dict_of_scalars_is_told_with_the_network(returned: Any, message: str):
    with pytest.raises(ConfigError, match=message) as raised:
        gradients(with_loss(lambda self, batch: returned))
    assert "the loss of the network Own" in str(raised.value)


def test_an_error_in_it_names_that_changing_and_divergent_losses_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="the loss of the network Own failed: ZeroDivisionError"):
        gradients(with_loss(lambda self, batch: 1 / 0))
    names = iter("abcdefgh")
    with pytest.raises(ConfigError, match="returned b, and before that a"):
        train(tmp_path, with_loss(lambda self, batch: {next(names): torch.zeros(())}))
    with pytest.raises(TrainingError, match="'a' as nan"):
        train(tmp_path, with_loss(lambda self, batch: {"a": torch.tensor(torch.nan)}))


def spoils(batch: scramjet.LossBatch) -> None:
    batch.obs.zero_()


def goes_back(batch: scramjet.LossBatch) -> None:
    batch.value.mean().backward()


def turns_gradients_off(batch: scramjet.LossBatch) -> None:
    torch.set_grad_enabled(False)


@pytest.mark.parametrize("does", [spoils, goes_back, turns_gradients_off])
def test_a_loss_that_breaks_the_gradient_is_one_message_and_gradients_stay_on(
    tmp_path: Path, does: Callable[[scramjet.LossBatch], None]
):
    def loss(self: Plain, batch: scramjet.LossBatch) -> dict[str, Tensor]:
        does(batch)
        return {"size": torch.zeros(())}

    with pytest.raises(ConfigError, match=r"the loss of the network Own .*it may not change the batch"):
        train(tmp_path, with_loss(loss))
    assert torch.is_grad_enabled()
