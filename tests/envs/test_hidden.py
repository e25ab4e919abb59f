"""Worlds whose records hold what players must not see say so, and saying so changes no rule."""

from __future__ import annotations

from scramjet.engine.worlds.rules import rules_fingerprint
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.registry import registrations

HIDDEN = {"door_key", "empty", "flickering_cartpole", "kuhn", "leduc", "masked_cartpole", "memory", "tmaze"}
"""Names of our worlds with hidden information."""


def test_these_of_our_worlds_have_hidden_information() -> None:
    own = {entry.name: entry.env_class()() for entry in registrations() if str(entry.target).startswith("scramjet.")}
    assert {name for name, env in own.items() if env.hidden} == HIDDEN


def test_a_world_has_the_same_rules_whether_or_not_it_says_that_they_hide_something() -> None:
    class Known(CartPole):
        """CartPole by another name."""

    class Secret(CartPole):
        """The same, with a secret."""

        hidden = True

    Secret.__name__ = Known.__name__
    assert rules_fingerprint(Known()) == rules_fingerprint(Secret())
    assert Secret().parameters == Known().parameters


def test_hidden_may_follow_from_a_parameter() -> None:
    class Sometimes(CartPole):
        """CartPole whose secrets can be switched off."""

        secrets: bool = True

        @property
        def hidden(self) -> bool:
            return self.secrets

    assert Sometimes().hidden
    assert not Sometimes(secrets=False).hidden


def test_the_fingerprint_sees_what_rules_depend_on() -> None:
    class Other(CartPole):
        """CartPole with another constant."""

        gravity = 1.0

    assert rules_fingerprint(Other()) != rules_fingerprint(CartPole())
