"""Remarks on a world's spaces for the header of a run."""

from __future__ import annotations

from scramjet.adapters.env_spaces import their_spaces
from scramjet.adapters.spaces import texts_left_out
from scramjet.engine.pool import Pool
from scramjet.policies.action_bounds import bounds_note
from scramjet.policies.config import PolicyConfig


def world_note(pool: Pool, config: PolicyConfig) -> str:
    """A remark on text that the policy does not see and action bounds that it hardly reaches; empty if none."""
    left_out = texts_left_out(their_spaces(pool)[0])
    of_text = f"{', '.join(left_out)}: text, which the policy does not see" if left_out else ""
    return "; ".join(note for note in (of_text, bounds_note(pool.action_space, config)) if note)
