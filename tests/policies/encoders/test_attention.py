"""The network over entities: against its formulas, networks without padding, and perturbed padding."""

import math
import re
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from scramjet.errors import ConfigError
from scramjet.policies import Policy, PolicyConfig, default_network, make_distribution
from scramjet.policies.encoders.attention import Attention, make_entity_network
from scramjet.policies.encoders.entities import EntitySpec, EntityStream, Packed, Padded, find_entities
from scramjet.policies.networks import count_parameters
from tests.helpers.cuda_graphs import replayed
from tests.helpers.observed import batch_of

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS, COLUMNS = 6, 4
CONFIG = PolicyConfig(encoder="entity_attention", attention_width=8, attention_heads=2, hidden=(16,))
SHARED, LSTM = replace(CONFIG, shared_trunk=True), replace(CONFIG, memory="lstm", memory_size=8)
BOTH = pytest.mark.parametrize("config", [CONFIG, SHARED], ids=["separate", "shared"])


def space_of(rows=ROWS, columns=COLUMNS):
    return Dict(
        {
            "ems": Box(0, 1, (rows, 6), np.float32),
            "ems_mask": MultiBinary(rows),
            "items": Box(0, 1, (columns, 3), np.float32),
            "items_mask": MultiBinary(columns),
            "items_placed": MultiBinary(columns),
        }
    )


def network_of(config, rows=ROWS, columns=COLUMNS, seed=0):
    """A network whose logits differ: the small first gain is taken back."""
    torch.manual_seed(seed)
    network = default_network(space_of(rows, columns), Discrete(rows * columns), config)
    with torch.no_grad():
        network.actor_head.columns.weight *= 100
        for parameter in network.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    return network


def batch(num=12, seed=0):
    """Observations of all degrees of fullness; the first without any entity, the next ones without one kind."""
    generator = torch.Generator().manual_seed(seed)
    obs = {
        "ems": torch.rand(num, ROWS, 6, generator=generator),
        "ems_mask": (torch.rand(num, ROWS, generator=generator) < 0.6).to(torch.int8),
        "items": torch.rand(num, COLUMNS, 3, generator=generator),
        "items_mask": (torch.rand(num, COLUMNS, generator=generator) < 0.8).to(torch.int8),
        "items_placed": (torch.rand(num, COLUMNS, generator=generator) < 0.3).to(torch.int8),
    }
    obs["ems_mask"][:2], obs["ems_mask"][2] = 0, 1
    obs["items_mask"][0], obs["items_mask"][1], obs["items_mask"][2] = 0, 1, 0
    obs["items_mask"][3:, 1], obs["items_placed"][3:, 1], obs["ems_mask"][3:, 2] = 1, 0, 1
    obs["items_placed"][1] = 0
    return obs


def valid_of(obs):
    return obs["ems_mask"] != 0, (obs["items_mask"] != 0) & (obs["items_placed"] == 0)


def test_attention_is_softmax_of_scaled_dot_products_over_the_valid_entities():
    attention, obs = Attention(8, 2), batch()
    for layer in (attention.query, attention.key_value, attention.output):
        torch.nn.init.normal_(layer.bias)
    own, other = Packed(obs, EntityStream("ems", "ems_mask")), Packed(obs, EntityStream("items", "items_mask"))
    rows, columns = torch.randn(len(own.owner), 8), torch.randn(len(other.owner), 8)
    seen = attention(rows, own, columns, other)
    for i in range(len(rows)):
        visible = columns[other.owner == own.owner[i]]
        parts = []
        for head in range(2):
            half = slice(4 * head, 4 * head + 4)
            query = attention.query(rows[i])[half]
            key, value = attention.key_value(visible)[:, half], attention.key_value(visible)[:, 8:][:, half]
            parts.append(torch.softmax(key @ query / math.sqrt(4), 0) @ value)
        expected = attention.output(torch.cat(parts) if len(visible) else torch.zeros(8))
        torch.testing.assert_close(seen[i], expected, rtol=1e-4, atol=1e-5)


@BOTH
def test_an_observation_gives_what_a_network_without_room_for_padding_gives_for_its_entities_alone(config):
    network, obs = network_of(config), batch()
    output = network(obs)
    is_row, is_column = valid_of(obs)
    for i in range(3, 12):
        rows, columns = is_row[i].nonzero().squeeze(1), is_column[i].nonzero().squeeze(1)
        small = network_of(config, len(rows), len(columns))
        small.load_state_dict(network.state_dict())
        part = {name: entry[i : i + 1, rows if name.startswith("ems") else columns] for name, entry in obs.items()}
        alone = small(part)
        table = output.logits[i].reshape(ROWS, COLUMNS)
        torch.testing.assert_close(table[rows][:, columns].flatten(), alone.logits[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(output.value[i], alone.value[0], rtol=1e-4, atol=1e-5)


def outputs_and_gradients(network, obs):
    output = network(obs)
    weights = torch.linspace(-1, 1, output.logits.shape[1], device=output.logits.device)
    loss = (torch.softmax(output.logits, 1) * weights).sum() + output.value.square().sum()
    return output.logits, output.value, *torch.autograd.grad(loss, list(network.parameters()), materialize_grads=True)


@pytest.mark.parametrize("config", [CONFIG, SHARED, LSTM], ids=["separate", "shared", "lstm"])
def test_an_entity_that_is_not_valid_never_changes_an_output_or_a_gradient_and_all_are_finite_without_any(
    config, monkeypatch
):
    network, obs = network_of(config), batch()
    is_row, is_column = valid_of(obs)
    changed = dict(obs)
    changed["ems"] = torch.where(is_row.unsqueeze(-1), obs["ems"], torch.tensor(torch.nan))
    changed["items"] = torch.where(is_column.unsqueeze(-1), obs["items"], torch.tensor(1e9))
    moved = dict(obs, ems=torch.where(is_row.unsqueeze(-1), obs["ems"] + 0.5, obs["ems"]))
    empty = obs | {name: torch.zeros_like(obs[name]) for name in ("ems_mask", "items_mask")}
    packed = outputs_and_gradients(network, obs)
    for stream in (Packed, Padded):
        monkeypatch.setattr("scramjet.policies.encoders.attention.make_stream", stream)
        before = outputs_and_gradients(network, obs)
        for one, other, right in zip(before, outputs_and_gradients(network, changed), packed, strict=True):
            assert torch.equal(one, other)
            assert torch.isfinite(one).all()
            torch.testing.assert_close(one, right, rtol=1e-5, atol=1e-5)
        assert all(torch.isfinite(each).all() for each in outputs_and_gradients(network, empty))
        assert not torch.equal(network(moved).value[2:], before[1][2:])
        valid = (is_row.unsqueeze(2) & is_column.unsqueeze(1)).flatten(1)
        assert torch.equal(torch.softmax(before[0], 1)[3:] > 0, valid[3:]), "which pairs have a probability"


def on_gpu(obs):
    return {name: entry.cuda() for name, entry in obs.items()}


@pytest.mark.gpu
@BOTH
def test_the_gpu_gives_what_the_cpu_gives_and_a_cuda_graph_recorded_with_some_observations_serves_others(config):
    network, obs = network_of(config), batch()
    on_cpu = outputs_and_gradients(network, obs)
    network, obs = network.cuda(), on_gpu(obs)
    for one, other in zip(on_cpu, outputs_and_gradients(network, obs), strict=True):
        torch.testing.assert_close(one, other.cpu(), rtol=1e-4, atol=1e-5)
    others = on_gpu(batch(seed=1))
    replay = replayed(lambda: outputs_and_gradients(network, obs), obs.values(), [others[name] for name in obs])
    for one, other in zip(replay, outputs_and_gradients(network, others), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_reordering_entities_reorders_the_logits_space_by_space_and_leaves_the_value():
    network, obs = network_of(SHARED), batch()
    rows, columns = torch.randperm(ROWS), torch.randperm(COLUMNS)
    changed = {name: entry[:, rows] if name.startswith("ems") else entry[:, columns] for name, entry in obs.items()}
    before, after = network(obs), network(changed)
    table = before.logits.reshape(-1, ROWS, COLUMNS)[:, rows][:, :, columns]
    torch.testing.assert_close(after.logits, table.flatten(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after.value, before.value, rtol=1e-4, atol=1e-5)
    assert before.logits[3:].std() > 0.1


def test_the_gradient_reaches_every_parameter_and_the_first_policy_hardly_prefers_any_pair():
    logits = default_network(space_of(), Discrete(ROWS * COLUMNS), SHARED)(batch()).logits[3:]
    assert logits[logits > -1e3].abs().max() < 0.05
    for config in (CONFIG, SHARED):
        network = network_of(config)
        output = network(batch())
        logits = torch.log_softmax(output.logits[3:], 1)
        ((logits.exp() * torch.randn_like(logits)).sum() + output.value.square().sum()).backward()
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def test_width_blocks_and_heads_come_from_the_config():
    def parameters(**changes):
        config = PolicyConfig(encoder="entity_attention", shared_trunk=True, **changes)
        return count_parameters(default_network(space_of(), Discrete(ROWS * COLUMNS), config))

    one, two, three = (parameters(attention_blocks=blocks) for blocks in (1, 2, 3))
    assert three - two == two - one > 0
    assert parameters(attention_width=128) > 3 * two
    network = default_network(space_of(), Discrete(24), PolicyConfig(encoder="entity_attention", attention_heads=8))
    assert network.actor.row_blocks[0].self_attention.heads == 8
    assert len(network.actor.row_blocks) == 2
    assert parameters(hidden=(64, 64, 64)) - two == 64 * 64 + 64


def test_a_policy_acts_and_values_with_it_and_only_separate_torsos_split():
    space, actions = space_of(), Discrete(ROWS * COLUMNS)
    for config in (CONFIG, SHARED):
        policy = Policy(network_of(config), space, actions, config, normalize_observations=True)
        obs = batch()
        assert policy.splits is not config.shared_trunk
        torch.testing.assert_close(policy.value(obs), policy(obs).value)
        mask = torch.zeros(12, ROWS * COLUMNS, dtype=torch.bool)
        mask[:, 7] = True
        assert policy.act(obs, mask=mask).tolist() == [7] * 12


def test_entities_are_tables_with_a_mask_whatever_a_world_calls_them():
    entries = {
        "workers": Box(0, 1, (3, 2), np.float32),
        "workers_mask": MultiBinary(3),
        "jobs": Box(0, 1, (5, 4), np.float32),
        "jobs_mask": MultiBinary(5),
        "jobs_done": MultiBinary(5),
        "jobs_cost": Box(0, 1, (2,), np.float32),  # of another length: no flags of the jobs
        "board": Box(0, 1, (8, 8), np.float32),  # without a mask: no entities
        "clock": Discrete(9),
    }
    jobs, workers = EntityStream("jobs", "jobs_mask", "jobs_done"), EntityStream("workers", "workers_mask")
    assert find_entities(Dict(entries)) == EntitySpec(rows=jobs, columns=workers)
    assert find_entities(Dict(OrderedDict(reversed(entries.items())))) == EntitySpec(rows=jobs, columns=workers)
    # names outside the rule are given as a spec
    spec = EntitySpec(EntityStream("seats", "seat_free"), EntityStream("guests", "guest_here"))
    tables = {"seats": Box(0, 1, (3, 2), np.float32), "guests": Box(0, 1, (5, 4), np.float32)}
    space = Dict({**tables, "seat_free": MultiBinary(3), "guest_here": MultiBinary(5)})
    network = make_entity_network(space, make_distribution(Discrete(15), CONFIG), CONFIG, spec)
    assert network(batch_of(space, 2)).logits.shape == (2, 15)


def test_a_world_without_the_entities_is_refused_by_what_is_missing():
    entries = dict(space_of().spaces)
    unmasked = {name: entry for name, entry in entries.items() if name != "items_mask"}
    for space, choices, message in (
        (space_of(), 23, "a pair of 6 ems and 4 items, so the action space must be Discrete(24)"),
        (Box(0, 1, (3,)), 24, "needs two kinds of entities"),
        (Dict(unmasked), 24, "with its NAME_mask (MultiBinary [count]); found: ems."),
        (Dict(entries | {"ems_mask": MultiBinary(5)}), 24, "found: items."),
        (
            Dict(entries | {"items_lost": MultiBinary(4)}),
            24,
            "which of 'items' can be chosen no more, and the observation space has 'items_lost' and 'items_placed'",
        ),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            default_network(space, Discrete(choices), CONFIG)
