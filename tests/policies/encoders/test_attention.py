"""The network over entities: against its formulas, networks without padding, and perturbed padding."""

import math
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

import scramjet
from scramjet.engine.random_play import random_actions
from scramjet.errors import ConfigError
from scramjet.policies import Policy, PolicyConfig, default_network, make_distribution
from scramjet.policies.encoders.attention import Attention, EntitySpec, EntityStream, make_entity_network
from scramjet.policies.encoders.entity_streams import Packed, Padded
from scramjet.policies.networks import count_parameters

pytestmark = pytest.mark.usefixtures("one_thread")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA finds no GPU")

ROWS, COLUMNS = 6, 4
CONFIG = PolicyConfig(encoder="entity_attention", attention_width=8, attention_heads=2, hidden=(16,))
SHARED = PolicyConfig(encoder="entity_attention", attention_width=8, attention_heads=2, hidden=(16,), shared_trunk=True)
LSTM = PolicyConfig(
    encoder="entity_attention", attention_width=8, attention_heads=2, hidden=(16,), memory="lstm", memory_size=8
)
STREAMS = pytest.mark.parametrize("stream", [Packed, Padded])


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
    torch.manual_seed(0)
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


@pytest.mark.parametrize("config", [CONFIG, SHARED], ids=["separate", "shared"])
def test_an_observation_gives_what_a_network_without_room_for_padding_gives_for_its_entities_alone(config):
    network, obs = network_of(config), batch()
    output = network(obs)
    is_row, is_column = valid_of(obs)
    for i in range(3, 12):
        rows, columns = is_row[i].nonzero().squeeze(1), is_column[i].nonzero().squeeze(1)
        small = network_of(config, len(rows), len(columns))
        small.load_state_dict(network.state_dict())
        alone = small(
            {
                "ems": obs["ems"][i : i + 1, rows],
                "ems_mask": torch.ones(1, len(rows), dtype=torch.int8),
                "items": obs["items"][i : i + 1, columns],
                "items_mask": torch.ones(1, len(columns), dtype=torch.int8),
                "items_placed": torch.zeros(1, len(columns), dtype=torch.int8),
            }
        )
        table = output.logits[i].reshape(ROWS, COLUMNS)
        torch.testing.assert_close(table[rows][:, columns].flatten(), alone.logits[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(output.value[i], alone.value[0], rtol=1e-4, atol=1e-5)


@STREAMS
@pytest.mark.parametrize("config", [CONFIG, SHARED], ids=["separate", "shared"])
def test_an_entity_that_is_not_valid_never_changes_an_output_or_a_gradient(config, stream, monkeypatch):
    monkeypatch.setattr("scramjet.policies.encoders.attention.make_stream", stream)
    network, obs = network_of(config), batch()
    is_row, is_column = valid_of(obs)
    changed = dict(obs)
    changed["ems"] = torch.where(is_row.unsqueeze(-1), obs["ems"], torch.tensor(torch.nan))
    changed["items"] = torch.where(is_column.unsqueeze(-1), obs["items"], torch.tensor(1e9))
    results = []
    for each in (obs, changed):
        network.zero_grad()
        output = network(each)
        (output.logits.clamp(min=-50).sum() + output.value.sum()).backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
        results.append((output.logits, output.value, gradients))
    for before, after in zip(*results, strict=True):
        assert torch.equal(before, after)
    moved = dict(obs, ems=torch.where(is_row.unsqueeze(-1), obs["ems"] + 0.5, obs["ems"]))
    assert not torch.equal(network(moved).value[2:], results[0][1][2:])


@STREAMS
@pytest.mark.parametrize("config", [CONFIG, SHARED], ids=["separate", "shared"])
def test_without_any_valid_entity_outputs_and_gradients_are_finite(config, stream, monkeypatch):
    monkeypatch.setattr("scramjet.policies.encoders.attention.make_stream", stream)
    network, obs = network_of(config), batch()
    empty = obs | {name: torch.zeros_like(obs[name]) for name in ("ems_mask", "items_mask")}
    for each in (obs, empty):
        network.zero_grad()
        output = network(each)
        log_probs = torch.log_softmax(output.logits, 1)
        assert torch.isfinite(log_probs).all()
        assert torch.isfinite(output.value).all()
        (log_probs.exp().square().sum() + output.value.sum()).backward()
        assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


def on_gpu(obs):
    return {name: entry.cuda() for name, entry in obs.items()}


def binpack_observations():
    """What 16 random players of the real world see in a few steps, and observations without any entity of a kind."""
    pool, random = scramjet.make("binpack", 16), np.random.default_rng(0)
    out, seen = pool.reset(seed=0), []
    for _ in range(6):
        seen.append({name: torch.from_numpy(entry.copy()) for name, entry in out.obs.items()})
        out = pool.step(random_actions(pool, out, random))
    obs = {name: torch.cat([each[name] for each in seen]) for name in seen[0]}
    obs["items_placed"][:4], obs["ems_mask"][2:6] = 1, 0
    return pool, obs


def outputs_and_gradients(network, obs):
    """Logits, values and the gradient of a loss of both in all parameters."""
    output = network(obs)
    weights = torch.linspace(-1, 1, output.logits.shape[1], device=output.logits.device)
    loss = (torch.softmax(output.logits, 1) * weights).sum() + output.value.square().sum()
    return output.logits, output.value, *torch.autograd.grad(loss, list(network.parameters()), materialize_grads=True)


@pytest.mark.parametrize("config", [CONFIG, SHARED, LSTM], ids=["separate", "shared", "lstm"])
def test_padded_and_packed_streams_give_the_same_in_the_real_world(config, monkeypatch):
    pool, obs = binpack_observations()
    torch.manual_seed(0)
    network = default_network(pool.observation_space, pool.action_space, config)
    with torch.no_grad():
        network.actor_head.columns.weight *= 100
    packed = outputs_and_gradients(network, obs)
    assert packed[0][6:].amax(1).std() > 0.1
    monkeypatch.setattr("scramjet.policies.encoders.attention.make_stream", Padded)
    for one, other in zip(packed, outputs_and_gradients(network, obs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("config", [CONFIG, SHARED], ids=["separate", "shared"])
def test_the_gpu_gives_what_the_cpu_gives(config):
    network, obs = network_of(config), batch()
    on_cpu = outputs_and_gradients(network, obs)
    for one, other in zip(on_cpu, outputs_and_gradients(network.cuda(), on_gpu(obs)), strict=True):
        torch.testing.assert_close(one, other.cpu(), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("config", [CONFIG, SHARED], ids=["separate", "shared"])
def test_a_cuda_graph_recorded_with_some_observations_serves_others(config):
    network, obs = network_of(config).cuda(), on_gpu(batch())
    warming = torch.cuda.Stream()
    warming.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warming):
        for _ in range(3):
            outputs_and_gradients(network, obs)
    torch.cuda.current_stream().wait_stream(warming)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = outputs_and_gradients(network, obs)
    others = on_gpu(batch(seed=1))
    for name, entry in obs.items():
        entry.copy_(others[name])
    graph.replay()
    recorded = [each.detach().clone() for each in recorded]
    for one, other in zip(recorded, outputs_and_gradients(network, others), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_pairs_with_an_entity_that_is_not_valid_have_probability_0():
    obs = batch()
    is_row, is_column = valid_of(obs)
    valid = (is_row.unsqueeze(2) & is_column.unsqueeze(1)).flatten(1)
    probabilities = torch.softmax(network_of(SHARED)(obs).logits, 1)[3:]
    assert (probabilities[~valid[3:]] == 0).all()
    assert (probabilities[valid[3:]] > 0).all()


def test_reordering_entities_reorders_the_logits_space_by_space_and_leaves_the_value():
    network, obs = network_of(SHARED), batch()
    rows, columns = torch.randperm(ROWS), torch.randperm(COLUMNS)
    changed = {name: entry[:, rows] if name.startswith("ems") else entry[:, columns] for name, entry in obs.items()}
    before, after = network(obs), network(changed)
    table = before.logits.reshape(-1, ROWS, COLUMNS)[:, rows][:, :, columns]
    torch.testing.assert_close(after.logits, table.flatten(1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(after.value, before.value, rtol=1e-4, atol=1e-5)
    assert before.logits[3:].std() > 0.1


@pytest.mark.parametrize("config", [CONFIG, SHARED], ids=["separate", "shared"])
def test_the_gradient_reaches_every_parameter(config):
    network, obs = network_of(config), batch()
    output = network(obs)
    logits = torch.log_softmax(output.logits[3:], 1)
    (logits.exp() * torch.randn_like(logits)).sum().backward(retain_graph=config.shared_trunk)
    output.value.square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_the_first_policy_hardly_prefers_any_pair():
    torch.manual_seed(0)
    network = default_network(space_of(), Discrete(ROWS * COLUMNS), SHARED)
    logits = network(batch()).logits[3:]
    assert logits[logits > -1e3].abs().max() < 0.05


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


def test_other_worlds_name_their_own_entries():
    spec = EntitySpec(EntityStream("seats", "seat_free"), EntityStream("guests", "guest_here"))
    space = Dict(
        {
            "seats": Box(0, 1, (3, 2), np.float32),
            "seat_free": MultiBinary(3),
            "guests": Box(0, 1, (5, 4), np.float32),
            "guest_here": MultiBinary(5),
        }
    )
    network = make_entity_network(space, make_distribution(Discrete(15), CONFIG), CONFIG, spec)
    obs = {
        "seats": torch.rand(2, 3, 2),
        "seat_free": torch.ones(2, 3),
        "guests": torch.rand(2, 5, 4),
        "guest_here": torch.ones(2, 5),
    }
    assert network(obs).logits.shape == (2, 15)


@pytest.mark.parametrize(
    ("space", "actions", "message"),
    [
        (space_of(), Discrete(23), "a pair of 6 ems and 4 items, so the action space must be Discrete(24)"),
        (Box(0, 1, (3,)), Discrete(24), "needs an entry 'ems' (Box [count, numbers]) with 'ems_mask'"),
        (
            Dict({name: entry for name, entry in space_of().spaces.items() if name != "items_placed"}),
            Discrete(24),
            "needs an entry 'items' (Box [count, numbers]) with 'items_mask' and 'items_placed'",
        ),
        (Dict(dict(space_of().spaces) | {"ems_mask": MultiBinary(5)}), Discrete(24), "with 'ems_mask'"),
    ],
)
def test_a_world_without_the_entities_is_refused_by_what_is_missing(space, actions, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        default_network(space, actions, CONFIG)
