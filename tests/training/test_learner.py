"""A whole PPO update against a second implementation, written here from the papers' equations in float64.

The oracle shares nothing with scramjet but its inputs: weights, rollout, and the order of minibatches.
"""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from scramjet.algorithms.config import PPOConfig
from scramjet.engine.layout import PlayedBy
from scramjet.errors import TrainingError
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.learner import Learner, RolloutSize
from scramjet.training.rollout.recurrent_states import RecurrentStates
from scramjet.training.rollout.rollout import Rollout

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_STEPS, NUM_ENVS, NUM_INPUTS, NUM_ACTIONS = 16, 6, 3, 4
BATCH = NUM_STEPS * NUM_ENVS
SEED, TOTAL_STEPS = 7, 10 * BATCH
SPACES = Box(-5, 5, (NUM_INPUTS,), np.float32), Discrete(NUM_ACTIONS)


def make_policy(**options):
    torch.manual_seed(3)
    policy = Policy(default_network(*SPACES, PolicyConfig(hidden=(8, 8))), *SPACES, **options)
    with torch.no_grad():
        policy.network.actor_head.weight.mul_(50)  # far from uniform: ratios and entropies have something to say
    return policy


def make_rollout(policy, seed=0, masked=False):
    """Random data in which ratios, values and flags take every turn; old log-probs and values are off the policy's."""
    g = torch.Generator().manual_seed(seed)
    obs = torch.randn(NUM_STEPS + 1, NUM_ENVS, NUM_INPUTS, generator=g)
    mask = torch.rand(NUM_STEPS + 1, NUM_ENVS, NUM_ACTIONS, generator=g) < 0.6
    mask[..., 1] = True
    with torch.no_grad():
        logits, value, _ = policy(obs.flatten(0, 1))
        logits = logits.reshape(NUM_STEPS + 1, NUM_ENVS, NUM_ACTIONS)
        if masked:
            logits = torch.where(mask, logits, -torch.inf)
        log_probs = torch.log_softmax(logits, -1)[:-1]
        action = torch.multinomial(log_probs.exp().flatten(0, 1), 1, generator=g).reshape(NUM_STEPS, NUM_ENVS)
        log_prob = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    terminated = torch.rand(NUM_STEPS, NUM_ENVS, generator=g) < 0.1
    truncated = ~terminated & (torch.rand(NUM_STEPS, NUM_ENVS, generator=g) < 0.1)
    terminated[-1, 0], truncated[-1, 0], terminated[-1, 1], truncated[-1, 1] = True, False, False, True
    return Rollout(
        obs=obs, mask=mask if masked else None, action=action,
        log_prob=log_prob + 0.15 * torch.randn(NUM_STEPS, NUM_ENVS, generator=g),
        value=value.reshape(NUM_STEPS + 1, NUM_ENVS) + 0.3 * torch.randn(NUM_STEPS + 1, NUM_ENVS, generator=g),
        reward=torch.randn(NUM_STEPS, NUM_ENVS, generator=g) * 2, terminated=terminated, truncated=truncated,
        final_value=torch.where(truncated, torch.randn(NUM_STEPS, NUM_ENVS, generator=g), 0.0), alive=None, seat=None,
        recurrent=RecurrentStates(PlayedBy.ONE, NUM_ENVS, 1, 0), states=torch.zeros(1, NUM_ENVS, 0),
        noise=torch.zeros(NUM_STEPS, NUM_ENVS),
    )  # fmt: skip


def learner_of(policy, executor=None, seed=SEED, **changes):
    size = RolloutSize(NUM_ENVS, NUM_ENVS * NUM_STEPS)
    config = PPOConfig(**BASE | changes)
    return Learner(executor or TorchExecutor(policy), config, size, total_steps=TOTAL_STEPS, seed=seed)


class Oracle:
    """PPO for a separate tanh actor and critic, from Schulman et al. 2017 and Kingma & Ba 2015, in float64."""

    def __init__(self, policy, **numbers):
        self.weights = {
            name.removeprefix("network."): parameter.detach().double().clone()
            for name, parameter in policy.named_parameters()
        }
        self.first = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        self.second = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        self.steps_taken = 0
        self.order = torch.Generator().manual_seed(SEED ^ 0xA11CE)
        self.seen_obs = []
        self.seen_returns, self.running_return = [], np.zeros(NUM_ENVS)
        defaults = {
            "gamma": 0.9, "lambda_": 0.8, "epochs": 3, "minibatches": 4, "value_clip": None, "value_coef": 0.5,
            "max_norm": 0.5, "normalize": "minibatch", "target_kl": None, "eps": 1e-5, "rate": 0.01, "clip": 0.2,
            "entropy": 0.01, "scale_rewards": False, "normalize_obs": False,
        }  # fmt: skip
        for name, value in (defaults | numbers).items():
            setattr(self, name, value)

    def forward(self, weights, obs):
        if self.normalize_obs and self.seen_obs:
            seen = torch.cat(self.seen_obs)
            obs = ((obs - seen.mean(0)) / (seen.var(0, unbiased=False) + 1e-8).sqrt()).clamp(-10, 10)

        def through(trunk, head):
            x = obs
            for layer in (0, 2):
                x = torch.tanh(x @ weights[f"{trunk}.{layer}.weight"].T + weights[f"{trunk}.{layer}.bias"])
            return x @ weights[f"{head}.weight"].T + weights[f"{head}.bias"]

        return through("actor", "actor_head"), through("critic", "critic_head")[:, 0]

    def scaled(self, rollout):
        reward = rollout.reward.double().numpy().copy()
        if not self.scale_rewards:
            return reward
        for t in range(NUM_STEPS):
            self.running_return = self.gamma * self.running_return + reward[t]
            self.seen_returns += list(self.running_return)
            self.running_return *= ~(rollout.terminated[t] | rollout.truncated[t]).numpy()
        return np.clip(reward / np.sqrt(np.var(self.seen_returns) + 1e-8), -10, 10)

    def advantages(self, rollout):
        """GAE, env by env, backwards."""
        reward, value = self.scaled(rollout), rollout.value.double().numpy()
        advantage = np.zeros((NUM_STEPS, NUM_ENVS))
        for n in range(NUM_ENVS):
            running = 0.0
            for t in reversed(range(NUM_STEPS)):
                if rollout.terminated[t, n]:
                    future, running = 0.0, 0.0
                elif rollout.truncated[t, n]:
                    future, running = float(rollout.final_value[t, n]), 0.0
                else:
                    future = value[t + 1, n]
                running = reward[t, n] + self.gamma * future - value[t, n] + self.gamma * self.lambda_ * running
                advantage[t, n] = running
        return torch.tensor(advantage), torch.tensor(advantage + value[:-1])

    def update(self, rollout):
        advantage, returns = (x.reshape(BATCH) for x in self.advantages(rollout))
        if self.normalize == "batch":
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        data = {
            "obs": rollout.obs[:-1].reshape(BATCH, -1).double(),
            "mask": None if rollout.mask is None else rollout.mask[:-1].reshape(BATCH, -1),
            "action": rollout.action.reshape(BATCH), "old_log_prob": rollout.log_prob.reshape(BATCH).double(),
            "old_value": rollout.value[:-1].reshape(BATCH).double(), "advantage": advantage, "returns": returns,
        }  # fmt: skip
        history, epochs = [], 0
        for _ in range(self.epochs):
            order = torch.randperm(BATCH, generator=self.order)
            size = BATCH // self.minibatches
            parts = [order[i * size : (i + 1) * size] for i in range(self.minibatches)]
            rows = [self.step({k: None if v is None else v[part] for k, v in data.items()}) for part in parts]
            history += rows
            epochs += 1
            if self.target_kl is not None and np.mean([row["approx_kl"] for row in rows]) > self.target_kl:
                break
        self.seen_obs.append(data["obs"])
        metrics = {name: float(np.mean([row[name] for row in history])) for name in history[0]}
        residual = (returns - data["old_value"]).var(unbiased=False) / returns.var(unbiased=False)
        return metrics | {"epochs": epochs, "explained_variance": 1 - residual.item()}

    def step(self, b):
        weights = {name: weight.clone().requires_grad_() for name, weight in self.weights.items()}
        logits, value = self.forward(weights, b["obs"])
        legal = torch.ones_like(logits).bool() if b["mask"] is None else b["mask"]
        unnormalized = torch.exp(logits) * legal
        probabilities = unnormalized / unnormalized.sum(1, keepdim=True)
        chosen = probabilities[torch.arange(len(logits)), b["action"]]
        entropy = -torch.special.xlogy(probabilities, torch.where(legal, probabilities, 1.0)).sum(1).mean()
        advantage = b["advantage"]
        if self.normalize == "minibatch":
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = chosen / b["old_log_prob"].exp()
        clipped_ratio = torch.clip(ratio, 1 - self.clip, 1 + self.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped_ratio * advantage).mean()
        squared_error = (value - b["returns"]) ** 2
        if self.value_clip is not None:
            low, high = b["old_value"] - self.value_clip, b["old_value"] + self.value_clip
            near = torch.minimum(torch.maximum(value, low), high)
            squared_error = torch.maximum(squared_error, (near - b["returns"]) ** 2)
        value_loss = squared_error.mean() / 2
        total = policy_loss + self.value_coef * value_loss - self.entropy * entropy
        gradients = dict(zip(weights, torch.autograd.grad(total, list(weights.values())), strict=True))
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        shrink = 1.0 if self.max_norm is None else min(1.0, self.max_norm / norm)
        self.adam({name: g * shrink for name, g in gradients.items()})
        log_ratio = ratio.detach().log()
        return {
            "policy_loss": policy_loss.item(), "value_loss": value_loss.item(), "entropy": entropy.item(),
            "approx_kl": ((ratio.detach() - 1) - log_ratio).mean().item(), "approx_kl_k1": -log_ratio.mean().item(),
            "clip_fraction": ((ratio < 1 - self.clip) | (ratio > 1 + self.clip)).double().mean().item(),
            "grad_norm": norm,
        }  # fmt: skip

    def adam(self, gradients):
        """Kingma & Ba 2015, algorithm 1."""
        self.steps_taken += 1
        for name, g in gradients.items():
            self.first[name] = 0.9 * self.first[name] + 0.1 * g
            self.second[name] = 0.999 * self.second[name] + 0.001 * g**2
            unbiased_first = self.first[name] / (1 - 0.9**self.steps_taken)
            unbiased_second = self.second[name] / (1 - 0.999**self.steps_taken)
            self.weights[name] = self.weights[name] - self.rate * unbiased_first / (unbiased_second.sqrt() + self.eps)


BASE = {
    "learning_rate": 0.01, "gamma": 0.9, "gae_lambda": 0.8, "num_epochs": 3, "num_minibatches": 4,
    "clip_epsilon": 0.2, "entropy_coef": 0.01, "value_coef": 0.5, "max_grad_norm": 0.5,
    "normalize_observations": False, "normalize_rewards": False,
}  # fmt: skip

CASES = {
    "defaults": ({}, {}),
    "value clipping": ({"value_clip": 0.2}, {"value_clip": 0.2}),
    "batch normalization of advantages": ({"normalize_advantages": "batch"}, {"normalize": "batch"}),
    "no normalization of advantages": ({"normalize_advantages": "off"}, {"normalize": "none"}),
    "no gradient bound": ({"max_grad_norm": None}, {"max_norm": None}),
    "large entropy and value weights": (
        {"entropy_coef": 0.3, "value_coef": 2.0, "clip_epsilon": 0.05},
        {"entropy": 0.3, "value_coef": 2.0, "clip": 0.05},
    ),
    "extremes of discount and lambda": ({"gamma": 1.0, "gae_lambda": 0.0}, {"gamma": 1.0, "lambda_": 0.0}),
    "minibatch size": ({"minibatch_size": 12}, {"minibatches": 8}),
    "minibatches of one sample": (
        {"num_minibatches": BATCH, "normalize_advantages": "batch"},
        {"minibatches": BATCH, "normalize": "batch"},
    ),
    "one minibatch": ({"num_minibatches": 1, "num_epochs": 1}, {"minibatches": 1, "epochs": 1}),
    "adam epsilon": ({"adam_eps": 1e-2}, {"eps": 1e-2}),
    "early stop on kl": ({"target_kl": 0.02, "num_epochs": 8}, {"target_kl": 0.02, "epochs": 8}),
    "reward scaling": ({"normalize_rewards": True}, {"scale_rewards": True}),
    "observation normalization": ({"normalize_observations": True}, {"normalize_obs": True}),
}


def assert_same_update(policy, learner, oracle, rollouts, step=0, case=""):
    for rollout in rollouts:
        metrics = learner.update(learner.prepare(rollout), step)
        expected = oracle.update(rollout)
        for name, value in expected.items():
            assert metrics[name] == pytest.approx(value, rel=2e-4, abs=2e-5), (case, name)
        for name, weight in oracle.weights.items():
            ours = policy.get_parameter(f"network.{name}").detach().double()
            np.testing.assert_allclose(ours, weight, rtol=0, atol=2e-5, err_msg=f"{case}: {name}")
    return metrics


@pytest.mark.parametrize("first_is_masked", [False, pytest.param(True, marks=pytest.mark.rest)])
def test_two_updates_give_the_losses_and_the_weights_of_the_papers_equations(first_is_masked):
    for number, (case, (ours, theirs)) in enumerate(CASES.items()):
        masked = first_is_masked == (number % 2 == 0)
        policy = make_policy(normalize_observations=ours.get("normalize_observations", False))
        learner = learner_of(policy, **ours)
        before = [parameter.detach().clone() for parameter in policy.parameters()]
        rollouts = [make_rollout(policy, seed, masked) for seed in (1, 2)]
        metrics = assert_same_update(policy, learner, Oracle(policy, **theirs), rollouts, case=case)
        moved = max((a - b).abs().max().item() for a, b in zip(before, policy.parameters(), strict=True))
        assert moved > 0.01, case  # else equal weights would prove nothing
        assert metrics["epochs"] < 8, case  # where it stops early
        if learner.config.num_minibatches > 1:
            assert 0.02 < metrics["clip_fraction"] < 0.98, case


def test_scheduled_numbers_are_those_of_the_env_steps_taken():
    schedules = {"learning_rate": "0.02@0,0.01@end", "clip_epsilon": "0.3@0,0.1@end", "entropy_coef": "0.1@0%,0@100%"}
    for share in (0.0, 0.5, 1.0):
        policy = make_policy()
        now = {"rate": 0.02 - 0.01 * share, "clip": 0.3 - 0.2 * share, "entropy": 0.1 - 0.1 * share}
        learner, oracle = learner_of(policy, **schedules), Oracle(policy, **now)
        metrics = assert_same_update(policy, learner, oracle, [make_rollout(policy)], int(share * TOTAL_STEPS))
        told = [metrics[name] for name in ("learning_rate", "clip_epsilon", "entropy_coef")]
        assert told == pytest.approx([*now.values()], abs=1e-12)


def weights_of(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])


def test_the_weights_follow_from_the_seed_bit_for_bit_and_with_learning_rate_0_nothing_moves():
    def weights_after(**given):
        policy = make_policy()
        learner = learner_of(policy, **given)
        learner.update(learner.prepare(make_rollout(policy)), 0)
        return weights_of(policy)

    assert torch.equal(weights_after(seed=1), weights_after(seed=1))
    assert not torch.equal(weights_after(seed=1), weights_after(seed=2))
    assert torch.equal(weights_after(learning_rate=0), weights_of(make_policy()))


def test_numbers_that_are_none_stop_training_with_advice():
    policy = make_policy()
    rollout = make_rollout(policy)
    rollout.reward[3, 2] = torch.inf
    learner = learner_of(policy)
    with pytest.raises(TrainingError, match=r"diverged.*--learning-rate"):
        learner.update(learner.prepare(rollout), 0)
