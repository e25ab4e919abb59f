"""PPO in one file, from scramjet's own pieces.

    python examples/ppo.py                                      300,000 steps of CartPole
    python examples/ppo.py --total-steps 50000 --seed 2         a shorter training

Read it from top to bottom to see what an update is, and change it where you want another algorithm. Its weights are
those of `scramjet train cartpole --no-fused --num-threads 1`, to the last bit; without these two flags the command does
the same with compiled kernels, and always with checkpoints, evaluations and metrics. docs/training-loop.md goes through
this file and says where each piece lives.
"""

from __future__ import annotations

import argparse
from collections import deque

import numpy as np
import torch
from torch import nn

import scramjet
from scramjet.algorithms.advantages import gae
from scramjet.algorithms.ppo import normalize, ppo_loss
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.seeds import training_episodes

# The settings of configs/cartpole.toml.
NUM_ENVS, NUM_STEPS = 128, 32  # a rollout is NUM_STEPS steps of NUM_ENVS envs
NUM_EPOCHS, NUM_MINIBATCHES = 4, 4  # passes over a rollout, and gradient steps of each pass
LEARNING_RATE, MAX_GRAD_NORM = 0.003, 0.5
GAMMA, GAE_LAMBDA = 0.98, 0.9
CLIP, ENTROPY_COEF, VALUE_COEF = 0.2, 0.01, 0.5


def train(total_steps: int, seed: int) -> Policy:
    """Train a policy on CartPole for at least `total_steps` env steps, and print the returns on the way."""
    torch.set_num_threads(1)  # a network this small is slower on more
    torch.manual_seed(seed)  # the first weights
    actions_generator = torch.Generator().manual_seed(seed)
    shuffle_generator = torch.Generator().manual_seed(seed ^ 0xA11CE)

    pool = scramjet.make("cartpole", num_envs=NUM_ENVS)
    spaces = pool.observation_space, pool.action_space
    policy = Policy(default_network(*spaces, PolicyConfig()), *spaces)  # an actor and a critic, two MLPs
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE, eps=1e-5, fused=True)

    # A rollout: the observation before each step and after the last, and what happened at each step.
    obs = torch.zeros(NUM_STEPS + 1, NUM_ENVS, *pool.observation_space.shape)
    final_obs = torch.zeros(NUM_STEPS, NUM_ENVS, *pool.observation_space.shape)  # where an episode ended, its last
    action = torch.zeros(NUM_STEPS, NUM_ENVS, dtype=torch.int64)
    log_prob, reward, final_value = torch.zeros(3, NUM_STEPS, NUM_ENVS)
    terminated, truncated = torch.zeros(2, NUM_STEPS, NUM_ENVS, dtype=torch.bool)

    step, last_returns = 0, deque(maxlen=100)
    obs[-1] = torch.from_numpy(pool.reset(training_episodes(seed)).obs)
    while step < total_steps:
        # Collect: the policy draws actions and the pool steps all envs, going on where the last rollout ended.
        obs[0] = obs[-1]
        noise = policy.distribution.noise(NUM_STEPS, NUM_ENVS, actions_generator)  # what actions are drawn with
        with torch.no_grad():
            for t in range(NUM_STEPS):
                logits = policy.logits(obs[t])
                policy.distribution.sample(logits, None, noise[t], action[t], log_prob[t])  # writes the last two
                out = pool.step(action[t].numpy())
                obs[t + 1] = torch.from_numpy(out.obs)  # of an env whose episode ended: the first of its next one
                final_obs[t] = torch.from_numpy(out.final_obs)
                reward[t] = torch.from_numpy(out.reward)
                terminated[t], truncated[t] = torch.from_numpy(out.terminated), torch.from_numpy(out.truncated)
            value = policy.value(obs.flatten(0, 1)).view(NUM_STEPS + 1, NUM_ENVS)
            final_value[truncated] = policy.value(final_obs[truncated])  # episodes that the time limit cut short

        # Advantages, and the returns that values should have had; then the steps of all envs side by side.
        advantage, returns = gae(reward, value, terminated, truncated, final_value, gamma=GAMMA, gae_lambda=GAE_LAMBDA)
        flat_obs, flat_action, flat_log_prob = obs[:-1].flatten(0, 1), action.flatten(), log_prob.flatten()
        flat_value, flat_advantage, flat_returns = value[:-1].flatten(), advantage.flatten(), returns.flatten()

        # Learn: epochs of gradient steps on random minibatches; the learning rate falls to 0 over the training.
        optimizer.param_groups[0]["lr"] = LEARNING_RATE - LEARNING_RATE * step / total_steps
        for _ in range(NUM_EPOCHS):
            order = torch.randperm(NUM_STEPS * NUM_ENVS, generator=shuffle_generator)
            for rows in order.tensor_split(NUM_MINIBATCHES):
                logits, new_value, _ = policy(flat_obs[rows])
                new_log_prob, entropy = policy.distribution.log_prob_and_entropy(logits, flat_action[rows], None)
                loss = ppo_loss(
                    new_log_prob,
                    entropy,
                    new_value,
                    old_log_prob=flat_log_prob[rows],
                    old_value=flat_value[rows],
                    advantage=normalize(flat_advantage[rows]),
                    returns=flat_returns[rows],
                    clip=CLIP,
                    value_clip=None,
                    entropy_coef=ENTROPY_COEF,
                    value_coef=VALUE_COEF,
                )
                optimizer.zero_grad()
                loss.total.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRAD_NORM)
                optimizer.step()

        step += NUM_STEPS * NUM_ENVS
        last_returns.extend(pool.episodes().returns)
        if last_returns:
            print(f"step {step:>9,}   mean return of the last {len(last_returns)} episodes {np.mean(last_returns):.1f}")
    return policy


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description="PPO in one file on CartPole")
    parser.add_argument("--total-steps", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    train(options.total_steps, options.seed)


if __name__ == "__main__":
    main()
