"""The policy's part in a rollout: draws the actions of each step and computes values."""

from __future__ import annotations

from torch import Tensor

from scramjet.compile.addresses import StepCalls
from scramjet.engine.trees import map_leaves
from scramjet.executors.executor import ActStep, Executor
from scramjet.policies.policy import Policy
from scramjet.training.rollout.others import BoundOthers
from scramjet.training.rollout.rollout import Rollout


def act_step(policy: Policy, rollout: Rollout, t: int, env_action: Tensor | None = None) -> ActStep:
    """The buffers of step t of a rollout; `env_action`: where its actions are also written as envs receive them."""
    return ActStep(
        obs=rollout.obs_at(t),
        mask=None if rollout.mask is None else rollout.mask[t],
        noise=rollout.noise[t],
        action=rollout.action[t],
        log_prob=rollout.log_prob[t],
        value=None if policy.splits else rollout.value[t],
        state=rollout.recurrent.movers if rollout.recurrent.is_used else None,
        env_action=env_action,
    )


class Acting:
    """Draws the actions of a rollout step by step, and keeps recurrent states where training needs them."""

    def __init__(self, executor: Executor, rollout: Rollout, others: BoundOthers | None = None) -> None:
        """`others` choose some of the actions, in the same buffers."""
        policy = executor.policy
        self._others = others
        self._rollout, self._recurrent, self._horizon = rollout, rollout.recurrent, rollout.horizon
        self._has_memory = rollout.recurrent.is_used
        self._env_action, self._stored = policy.distribution.env_action, list(rollout.action)
        given = self._env_action(rollout.action[0])
        self._is_given_as_stored = given.data_ptr() == rollout.action.data_ptr()
        is_written = executor.writes_env_actions and others is None and not self._is_given_as_stored
        self._given = given if is_written else None  # written over in each step
        self._executor = executor
        self._steps = [act_step(policy, rollout, t, self._given) for t in range(rollout.num_steps)]
        self._draw = executor.actions(self._steps)

    def calls(self) -> StepCalls | None:
        """What compiled code calls to draw the actions of each step, where that is all there is to `act`, else None."""
        if self._has_memory or self._others is not None or not self._is_given_as_stored:
            return None
        return self._executor.compiled_actions(self._steps)

    def act(self, t: int, at: Tensor | None = None) -> Tensor:
        """Draw the actions of step t; returns them as envs receive them, [R, ...].

        `at` [1]: the number of the step within the rollout, if these are buffers of one step.
        """
        if self._has_memory:
            self._act_with_memory(t)
        else:
            self._draw[t]()
        if self._others is not None:
            self._others.act(t, at)
        if self._given is not None:
            return self._given
        return self._stored[t] if self._is_given_as_stored else self._env_action(self._stored[t])

    def _act_with_memory(self, t: int) -> None:
        rollout, turn = self._rollout, self._rollout.turn(t)
        if t % self._horizon == 0:
            rollout.states[t // self._horizon] = self._recurrent.states
        self._recurrent.fetch_movers(turn)
        self._draw[t]()
        self._recurrent.keep_movers(turn)


def value_rollout(executor: Executor, rollout: Rollout) -> None:
    """Compute the values that acting did not: all of them if the policy computes values separately
    (`Policy.splits`), else only those after the last step."""
    if executor.policy.splits:
        flat_obs = map_leaves(lambda leaf: leaf.flatten(0, 1), rollout.obs)
        executor.values(flat_obs, None, rollout.value.flatten())
    else:
        state = rollout.recurrent.of_movers(rollout.turn(-1))
        executor.values(rollout.obs_at(-1), state, rollout.value[-1])
