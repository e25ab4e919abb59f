"""Worlds whose critic may see more than their policy: what pools show of them, and the policy's part of it.

A world with `observe_critic` is shown as a Dict of two entries: what its policy sees, and what its critic sees beside
that. The entries' names begin with `_`, as no entry of a world's own does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from scramjet.envs.api import Dict

POLICY, CRITIC = "_policy", "_critic"
"""Names of the two entries."""


def shown_space(env: Any) -> Any:
    """The space of what a pool shows of this world."""
    critic = getattr(env, "critic_space", None)
    return env.observation_space if critic is None else Dict([(POLICY, env.observation_space), (CRITIC, critic)])


def is_privileged(space: Any) -> bool:
    """Whether observations of this space have a part that only the critic sees."""
    return isinstance(space, Dict) and set(space.spaces) == {POLICY, CRITIC}


def policy_space(space: Any) -> Any:
    """The part of a shown space that the policy sees: all of it where the critic sees nothing else."""
    return space.spaces[POLICY] if is_privileged(space) else space


def policy_part(obs: Any) -> Any:
    """The part of observations, as pools give them, that the policy sees."""
    return obs[POLICY] if isinstance(obs, dict) and CRITIC in obs else obs


class Observer(NamedTuple):
    """One of the functions with which a world is observed."""

    rule: str
    """Its name, such as `observe`."""
    attribute: str
    """The name of its space, such as `observation_space`."""
    space: Any
    entry: str | None
    """Which entry of what a pool shows it writes; None: all of it."""

    def part(self, obs: Any) -> Any:
        """What it wrote of observations as pools give them."""
        return obs if self.entry is None else obs[self.entry]


def observers(env: Any) -> list[Observer]:
    """The functions with which a world is observed: `observe`, and `observe_critic` where it has one."""
    if env.critic_space is None:
        return [Observer("observe", "observation_space", env.observation_space, None)]
    return [
        Observer("observe", "observation_space", env.observation_space, POLICY),
        Observer("observe_critic", "critic_space", env.critic_space, CRITIC),
    ]


def own_name(name: str) -> str:
    """The name of an observation's part, obs._critic.x within the engine, as the author of the world knows it."""
    return name.replace(f"obs.{POLICY}", "obs").replace(f"obs.{CRITIC}", "obs of observe_critic")


def observe_both(
    observe: Callable[..., Any], observe_critic: Callable[..., Any], *, for_players: bool
) -> Callable[..., Any]:
    """One function that writes both parts, with the arguments of the two that it calls."""
    if for_players:

        def observe_of_player(parameters: Any, s: Any, obs: Any, player: Any) -> None:
            observe(parameters, s, obs.policy, player)
            observe_critic(parameters, s, obs.critic, player)

        return observe_of_player

    def observe_alone(parameters: Any, s: Any, obs: Any) -> None:
        observe(parameters, s, obs.policy)
        observe_critic(parameters, s, obs.critic)

    return observe_alone
