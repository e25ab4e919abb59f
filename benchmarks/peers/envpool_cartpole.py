"""EnvPool's CartPole with a PPO loop in plain torch, in the manner of CleanRL's ppo.py.

The loop is ours, because EnvPool has none: separate 64x64 tanh networks, orthogonal weights, shuffled minibatches of
all samples, advantages normalized in each, Adam, gradients clipped to a norm of 0.5. As in CleanRL a truncated episode
counts as terminated, and the step on which EnvPool resets an env, its action ignored, is trained on like any other.
To solve CartPole the loop has the settings that RL Baselines3 Zoo tuned for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import envpool
import numpy as np
import torch
from measuring import (
    EPOCHS,
    GAE_ENVS,
    GAE_LAMBDA,
    GAE_STEPS,
    GAMMA,
    HIDDEN,
    MINIBATCHES,
    NUM_STEPS,
    Answer,
    RecentReturns,
    Task,
    main,
    median_rate,
    solved,
    unsolved,
)
from torch import Tensor, nn

CLIP, VALUE_COEF, MAX_NORM = 0.2, 0.5, 0.5


@dataclass(frozen=True)
class Settings:
    """What differs between the timed work, the defaults here, and solving CartPole."""

    num_envs: int
    num_steps: int = NUM_STEPS
    epochs: int = EPOCHS
    minibatches: int = MINIBATCHES
    learning_rate: float = 2.5e-4
    entropy_coef: float = 0.01
    gamma: float = GAMMA
    gae_lambda: float = GAE_LAMBDA


ZOO_STEPS = 100_000
ZOO = Settings(8, 32, 20, 1, 0.001, 0.0, 0.98, 0.8)


def make_envs(num_envs: int, seed: int) -> envpool.python.protocol.EnvPool:
    """CartPole-v1 on as many threads as there are cores."""
    threads = len(os.sched_getaffinity(0))
    return envpool.make_gymnasium("CartPole-v1", num_envs=num_envs, seed=seed, num_threads=min(num_envs, threads))


def network(outputs: int, gain: float) -> nn.Sequential:
    """Two tanh layers and a linear one."""
    sizes, gains = (4, HIDDEN, HIDDEN, outputs), (2**0.5, 2**0.5, gain)
    layers: list[nn.Module] = []
    for inputs, width, layer_gain in zip(sizes, sizes[1:], gains, strict=False):
        linear = nn.Linear(inputs, width)
        nn.init.orthogonal_(linear.weight, layer_gain)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def log_prob_of(logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log probability of each action [B] and the entropy [B] of each distribution."""
    log_probs = logits.log_softmax(-1)
    chosen = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    return chosen, -(log_probs.exp() * log_probs).sum(-1)


def advantages_of(reward: Tensor, value: Tensor, done: Tensor, *, gamma: float, gae_lambda: float) -> Tensor:
    """GAE as CleanRL writes it: reward, done [T, N], value [T + 1, N]; returns [T, N]."""
    advantage = torch.zeros_like(reward)
    following = torch.zeros(reward.shape[1])
    for t in reversed(range(len(reward))):
        goes_on = 1.0 - done[t]
        error = reward[t] + gamma * value[t + 1] * goes_on - value[t]
        following = error + gamma * gae_lambda * goes_on * following
        advantage[t] = following
    return advantage


class Learner:
    """The whole of PPO, in the order in which it happens."""

    def __init__(self, settings: Settings, seed: int) -> None:
        torch.manual_seed(seed)
        steps, envs = settings.num_steps, settings.num_envs
        self.settings = settings
        self.envs = make_envs(envs, seed)
        self.actor, self.critic = network(2, 0.01), network(1, 1.0)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.learning_rate, eps=1e-5)
        self.obs = torch.zeros(steps + 1, envs, 4)
        self.action = torch.zeros(steps, envs, dtype=torch.int64)
        self.log_prob, self.reward, self.done = (torch.zeros(steps, envs) for _ in range(3))
        self.value = torch.zeros(steps + 1, envs)
        self.obs[-1] = torch.from_numpy(self.envs.reset()[0])
        self.running_return = np.zeros(envs)
        self.recent = RecentReturns()

    def update(self) -> None:
        """One rollout and the gradient steps on it."""
        self.collect()
        self.learn()

    @torch.no_grad()
    def collect(self) -> None:
        """Fill the buffers with a rollout."""
        self.obs[0] = self.obs[-1]
        for t in range(self.settings.num_steps):
            logits, self.value[t] = self.actor(self.obs[t]), self.critic(self.obs[t]).squeeze(-1)
            self.action[t] = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
            self.log_prob[t] = log_prob_of(logits, self.action[t])[0]
            obs, reward, terminated, truncated, _ = self.envs.step(self.action[t].numpy())
            done = terminated | truncated
            self.obs[t + 1] = torch.from_numpy(obs)
            self.reward[t] = torch.from_numpy(reward)
            self.done[t] = torch.from_numpy(done)
            self.running_return += reward
            self.recent.add(self.running_return[done])
            self.running_return[done] = 0.0
        self.value[-1] = self.critic(self.obs[-1]).squeeze(-1)

    def learn(self) -> None:
        """All epochs over the rollout."""
        settings = self.settings
        advantage = advantages_of(
            self.reward, self.value, self.done, gamma=settings.gamma, gae_lambda=settings.gae_lambda
        )
        returns = (advantage + self.value[:-1]).flatten()
        advantage, obs = advantage.flatten(), self.obs[:-1].flatten(0, 1)
        action, log_prob = self.action.flatten(), self.log_prob.flatten()
        for _ in range(settings.epochs):
            for chosen in torch.randperm(len(returns)).chunk(settings.minibatches):
                loss = self.loss(obs[chosen], action[chosen], log_prob[chosen], advantage[chosen], returns[chosen])
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, MAX_NORM)
                self.optimizer.step()

    def loss(self, obs: Tensor, action: Tensor, old_log_prob: Tensor, advantage: Tensor, returns: Tensor) -> Tensor:
        """PPO's clipped loss (Schulman et al. 2017, eq. 9); obs [B, 4], all else [B]."""
        log_prob, entropy = log_prob_of(self.actor(obs), action)
        ratio = (log_prob - old_log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        value_loss = 0.5 * (self.critic(obs).squeeze(-1) - returns).square().mean()
        return -surrogate + VALUE_COEF * value_loss - self.settings.entropy_coef * entropy.mean()


def env_steps(task: Task) -> Answer:
    """EnvPool's synchronous mode: all envs on every step."""
    envs = make_envs(task.num_envs, task.seed)
    envs.reset()
    actions = np.random.default_rng(task.seed).integers(0, 2, (16, task.num_envs))

    def sweep() -> None:
        for row in actions:
            envs.step(row)

    rate = median_rate(sweep, actions.size, task.seconds)
    return {"steps_per_second": rate, "settings": "synchronous, a thread a core"}


def training(task: Task) -> Answer:
    """The loop above with the common settings."""
    learner = Learner(Settings(task.num_envs), task.seed)
    rate = median_rate(learner.update, task.num_envs * NUM_STEPS, task.seconds)
    return {"steps_per_second": rate, "settings": "our PPO loop in torch, CleanRL-like"}


def solve(task: Task) -> Answer:
    """The loop above with the zoo's settings, its learning rate falling to 0."""
    learner, step, words = Learner(ZOO, task.seed), 0, "our loop, settings of RL Baselines3 Zoo"
    while step < ZOO_STEPS:
        learner.optimizer.param_groups[0]["lr"] = ZOO.learning_rate * (1 - step / ZOO_STEPS)
        learner.update()
        step += ZOO.num_envs * ZOO.num_steps
        if learner.recent.are_solved:
            return solved(step, words)
    return unsolved(step, words)


def gae(task: Task) -> Answer:
    """CleanRL's loop over steps in torch."""
    torch.manual_seed(task.seed)
    shape = (GAE_STEPS, GAE_ENVS)
    reward, value, done = torch.rand(shape), torch.rand(GAE_STEPS + 1, GAE_ENVS), (torch.rand(shape) < 0.02).float()

    def once() -> None:
        advantages_of(reward, value, done, gamma=GAMMA, gae_lambda=GAE_LAMBDA) + value[:-1]

    return {"steps_per_second": median_rate(once, reward.numel(), task.seconds), "settings": "CleanRL's loop, torch"}


if __name__ == "__main__":
    works = {"env": env_steps, "training": training, "solve": solve, "gae": gae}
    main(__doc__, works, ["envpool", "torch", "numpy"])
