"""An algorithm of one's own: A2C (Mnih et al. 2016), in a record and a learner. `python examples/a2c.py` trains it.

The record says what the algorithm is called and what it needs; flags, checks, presets and messages follow from it. Its
`build` makes what plays rollouts and what learns from them. All else is the same as for every algorithm: worlds,
networks, memory, masks, evaluations, checkpoints, exact resumes. A package makes it known by an entry point,

    [project.entry-points."scramjet.algorithms"]
    a2c = "my_package.a2c:A2C"
"""

import math

import torch

import scramjet
from scramjet.algorithms.ppo import normalize
from scramjet.engine.trees import map_leaves
from scramjet.training.batches.batch import Batch, prepare_batch
from scramjet.training.learning import Learning, check_finite
from scramjet.training.making import make_player
from scramjet.training.rollout.rollout import Rollout


class A2CLearner(Learning[Batch]):
    """Takes one gradient step on each rollout: the policy gradient with GAE, a value loss and an entropy bonus."""

    def prepare(self, rollout: Rollout) -> Batch:
        """Estimate the advantages and returns of a rollout, and lay out its samples."""
        return prepare_batch(rollout, self.learned_reward(rollout), self.config, scale=self.value_scale)

    def update(self, batch: Batch, step: int) -> dict[str, float | None]:
        """Take the gradient step of one update, made after `step` env steps. Returns the metrics by name."""
        samples, config = batch.samples, self.config
        learning_rate = self.follow_learning_rate(step)
        output = self.policy(samples.obs, samples.state, samples.begins)
        log_prob, entropy = self.policy.distribution.log_prob_and_entropy(output.logits, samples.action, samples.mask)
        advantage = normalize(samples.advantage, samples.counts)
        policy_loss = -(samples.counted(log_prob) * samples.counted(advantage)).mean()
        value_loss = 0.5 * samples.counted((output.value - samples.returns).square()).mean()
        mean_entropy = samples.counted(entropy).mean()
        self.optimizer.zero_grad()
        (policy_loss + config.value_coef * value_loss - float(config.entropy_coef) * mean_entropy).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), config.max_grad_norm or torch.inf)
        self.optimizer.step()
        if self.policy.normalizer is not None:
            self.policy.normalizer.update(map_leaves(samples.counted, samples.obs))
        numbers = torch.stack([policy_loss, value_loss, mean_entropy, norm, batch.explained_variance]).tolist()
        metrics = dict(zip(("policy_loss", "value_loss", "entropy", "grad_norm"), numbers, strict=False))
        check_finite(metrics)
        explained = None if math.isnan(numbers[-1]) else numbers[-1]  # where all returns are alike
        return metrics | {"explained_variance": explained, "learning_rate": learning_rate, "epochs": 1}


def build(materials: scramjet.Materials):
    """The player of rollouts, as PPO has it, and the learner."""
    player, config = make_player(materials), materials.config
    num_rewards = player.rollout.reward[0].numel()
    return player, A2CLearner(player.executor, config.ppo, num_rewards, total_steps=config.total_timesteps)


A2C = scramjet.Algorithm(
    name="a2c",
    summary="one step of the plain policy gradient on each rollout",
    build=build,
    uses=("entropy_coef",),
    sizes=scramjet.Sizes(num_envs=64, num_steps=16, minibatch_size=1024),
    num_epochs=1,
)

if __name__ == "__main__":
    scramjet.register_algorithm(A2C)
    scramjet.train("cartpole", algorithm="a2c", learning_rate=3e-3, total_timesteps=500_000)
