"""Networks in JavaScript, compared with torch on positions of random games."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from scramjet.errors import ConfigError
from scramjet.policies.compressed_values import MAX_SYMLOG
from scramjet.policies.config import PolicyConfig
from scramjet.policies.policy import Policy
from scramjet.training.components import make_policy
from scramjet.training.config.run_config import RunConfig
from scramjet.web.export_page.network import describe_policy
from scramjet.web.export_page.recorded_game import recorded_game
from tests.helpers import HELPERS
from tests.helpers.javascript import javascript, world_source

ANSWERS = """
(({ world, rules }, network, recorded) => {
  const game = new Game(world, rules);
  const fresh = () => $.range(world.numPlayers).map(() => network.initialState);
  game.begin(recorded.key);
  let states = fresh();
  const answers = [];
  for (const step of recorded.steps) {
    for (const { player } of step.players) {
      const { logits, value, state } = network.forward(game.observation(player), states[player]);
      states[player] = state;
      answers.push([...logits, value]);
    }
    game.step(step.actions);
    if (game.isOver) [states] = [fresh(), game.beginNext()];
  }
  return JSON.stringify([answers, gameDifference(new Game(world, rules), network, recorded)]);
})
"""
PRIVILEGED = HELPERS / "worlds" / "privileged.py"
NETWORKS: list[tuple[str, bool, dict[str, Any]]] = [
    (
        "tic_tac_toe",
        False,
        {"encoder": "grid_cnn", "grid_channels": (8,), "grid_readout": "pool", "symmetry": "average"},
    ),
    ("pendulum", True, {"state_dependent_std": True}),
    ("kuhn", False, {"memory": "mingru", "memory_size": 8}),
    (f"{PRIVILEGED}:Cards", True, {"memory": "gru", "memory_size": 8}),
    ("cartpole", True, {"value_bins": 21}),
]
MORE_NETWORKS: list[tuple[str, bool, dict[str, Any]]] = [
    ("tic_tac_toe", False, {"encoder": "mlp", "hidden": (32, 16)}),
    ("cartpole", True, {"activation": "relu", "shared_trunk": True}),
    ("pendulum", False, {}),
    ("connect_four", False, {"encoder": "grid_cnn", "grid_channels": (8,), "grid_blocks": 2, "symmetry": "canonical"}),
    ("maze", True, {"encoder": "grid_cnn", "grid_channels": (4, 4)}),
    ("door_key", False, {"encoder": "grid_cnn", "grid_channels": (4,), "hidden": (16,)}),
    ("maze", False, {"encoder": "value_propagation", "ignore": ("step_count",), "grid_channels": (8,)}),
    ("maze", False, {"embedding_size": 5}),
    ("snake", False, {"encoder": "impala_cnn", "hidden": (16,), "shared_trunk": True}),
    ("binpack", True, {"hidden": (16,)}),
    ("memory", False, {"memory": "lstm", "memory_size": 8, "memory_layers": 2}),
    ("tmaze", False, {"memory": "gru", "memory_size": 8, "shared_trunk": True}),
    (f"{PRIVILEGED}:Nim", True, {}),
    ("tmaze", False, {"value_bins": 8, "memory": "gru", "memory_size": 8, "shared_trunk": True}),
]


def trained_policy(world: str, is_normalized: bool, settings: dict[str, Any]) -> tuple[Policy, RunConfig]:
    """A policy with weights and statistics away from where they begin, as training leaves them."""
    config = RunConfig(env=world, policy=PolicyConfig(**settings))
    config = replace(config, ppo=replace(config.ppo, normalize_observations=is_normalized))
    policy, generator = make_policy(config).eval(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        for name, buffer in policy.named_buffers():
            if name.endswith(("moments.mean", "moments.variance")):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return policy, config


def answers(policy: Policy, config: RunConfig, recorded: dict[str, Any]) -> Any:
    described, weights = describe_policy(policy)
    numbers = np.frombuffer(weights, "<f4").astype(float).tolist()
    network = f"new Network({json.dumps(described)}, new Float32Array({json.dumps(numbers)}))"
    world: Any = config.make_env()
    return json.loads(javascript().eval(f"{ANSWERS}({world_source(world)}, {network}, {json.dumps(recorded)})"))


def assert_same_answers(world: str, is_normalized: bool, settings: dict[str, Any]) -> None:
    policy, config = trained_policy(world, is_normalized, settings)
    recorded = recorded_game(config.make_env(), policy, num_steps=6 if world == "snake" else 20)  # type: ignore[arg-type]
    found, difference = answers(policy, config, recorded)
    wanted = [[*seen["logits"], seen["value"]] for step in recorded["steps"] for seen in step["players"]]
    assert len(wanted) >= 6
    np.testing.assert_allclose(found, wanted, atol=1e-4, rtol=1e-4, err_msg=f"{world} {settings}")
    assert difference is None


def test_a_network_answers_as_in_torch() -> None:
    for case in NETWORKS:
        assert_same_answers(*case)


@pytest.mark.rest
@pytest.mark.parametrize(("world", "is_normalized", "settings"), MORE_NETWORKS, ids=lambda value: str(value))
def test_networks_of_every_kind_answer_as_in_torch(world: str, is_normalized: bool, settings: dict[str, Any]) -> None:
    assert_same_answers(world, is_normalized, settings)


def test_values_on_the_symlog_scale_are_shown_as_returns() -> None:
    for symmetry, factor in (("none", 500.0), ("average", 5.0)):
        policy, config = trained_policy("tic_tac_toe", False, {"hidden": (8,), "encoder": "mlp", "symmetry": symmetry})
        network: Any = policy.network if symmetry == "none" else policy.network.network
        with torch.no_grad():
            network.critic_head.weight.mul_(factor)
        policy.values_are_symlog = True
        recorded = recorded_game(config.make_env(), policy, num_steps=20)  # type: ignore[arg-type]
        found, difference = answers(policy, config, recorded)
        wanted = [seen["value"] for step in recorded["steps"] for seen in step["players"]]
        assert difference is None
        np.testing.assert_allclose([one[-1] for one in found], wanted, rtol=1e-3, atol=1e-4, err_msg=symmetry)
        largest = max(map(abs, wanted))
        assert largest == pytest.approx(np.expm1(MAX_SYMLOG)) if factor == 500.0 else 2 < largest < 1e9


def test_the_check_of_a_recorded_game_tells_what_differs() -> None:
    policy, config = trained_policy("tic_tac_toe", False, {"hidden": (8,), "encoder": "mlp"})
    whole = recorded_game(config.make_env(), policy, num_steps=12)  # type: ignore[arg-type]
    for damage in ("rewards", "record", "logits", "obs"):
        recorded = copy.deepcopy(whole)
        step = recorded["steps"][9]
        place = step["players"][0] if damage in ("logits", "obs") else step
        place[damage] = [one + 1 for one in place[damage]] if isinstance(place[damage], list) else place[damage] + 1
        assert "step 9" in answers(policy, config, recorded)[1], damage


def test_networks_that_the_page_cannot_run_are_refused_by_name() -> None:
    attention, _ = trained_policy("binpack", False, {"encoder": "entity_attention"})
    gelu, _ = trained_policy("cartpole", False, {})
    gelu.network.actor.append(nn.GELU())  # type: ignore[union-attr, operator]
    endless, _ = trained_policy("cartpole", False, {})
    next(endless.parameters()).data.fill_(float("nan"))
    for policy, problem in (
        (attention, r"cannot take a network with .*Entity"),
        (gelu, "cannot take a network with GELU"),
        (endless, "no finite numbers"),
    ):
        with pytest.raises(ConfigError, match=problem):
            describe_policy(policy)


def test_a_drawn_choice_follows_the_probabilities_and_never_an_illegal_one() -> None:
    drawn = javascript().eval(
        "(() => { let k = 0; const random = () => ((k++ * 0.618034) % 1); const counts = [0, 0, 0];"
        " const mask = $.np.array([true, false, true], 'bool');"
        " for (let i = 0; i < 2000; i++) counts[policyAction({ kind: 'choice' }, [1, 9, 0], mask, 1, random)] += 1;"
        " return JSON.stringify([counts, policyAction({ kind: 'choice' }, [1, 9, 2], mask, 0, random)]); })()"
    )
    (first, illegal, last), likeliest = json.loads(drawn)
    assert illegal == 0
    assert likeliest == 2
    assert first / (first + last) == pytest.approx(1 / (1 + np.exp(-1)), abs=0.02)


def test_a_continuous_action_lies_in_the_bounds_as_in_torch() -> None:
    for bounded in ("scale", "clip", "tanh"):
        policy, _ = trained_policy("pendulum", False, {"bounded_actions": bounded})
        distribution = describe_policy(policy)[0]["distribution"]
        for mean in (-3.0, -0.4, 0.3, 5.0):
            logits = torch.tensor([[mean, 0.0]])
            wanted = policy.distribution.env_action(policy.distribution.mode(logits, None)).item()
            found = javascript().eval(f"policyAction({json.dumps(distribution)}, [{mean}, 0], null, 0, Math.random)[0]")
            assert found == pytest.approx(wanted, rel=1e-6)
