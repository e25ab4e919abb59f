"""Planning on grids: against plain iteration, shortest paths by breadth-first search, and finite differences."""

from collections import deque

import numpy as np
import pytest
import torch
from gymnasium.spaces import Dict, Discrete, MultiBinary, MultiDiscrete

from scramjet.kernels.cpu.planning import SHARPNESS
from scramjet.policies import PolicyConfig, make_encoder
from scramjet.policies.encoders.value_propagation import propagate

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE = 7
SPACE = Dict(
    {
        "agent": MultiDiscrete([SIZE, SIZE]),
        "step_count": Discrete(5),
        "target": MultiDiscrete([SIZE, SIZE]),
        "walls": MultiBinary((SIZE, SIZE)),
    }
)
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def plain_iteration(reward, passes):
    """The paper's equation applied to all cells of grids [N, H, W] at once until nothing changes."""
    value = reward
    while True:
        around = np.pad(value, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        best = np.max([around[:, :-2, 1:-1], around[:, 2:, 1:-1], around[:, 1:-1, :-2], around[:, 1:-1, 2:]], axis=0)
        new = np.maximum(value, reward + passes * (best - reward))
        if np.allclose(new, value, rtol=0, atol=1e-12):
            return value
        value = new


def is_within(cell, grid):
    return all(0 <= place < size for place, size in zip(cell, grid.shape, strict=True))


def distances(walls, target):
    """Steps to the target from each free cell, by breadth-first search; -1 where there is no way."""
    steps = np.full(walls.shape, -1)
    steps[target] = 0
    queue = deque([target])
    while queue:
        cell = queue.popleft()
        for other in ((cell[0] + down, cell[1] + right) for down, right in MOVES):
            if is_within(other, walls) and not walls[other] and steps[other] < 0:
                steps[other] = steps[cell] + 1
                queue.append(other)
    return steps


def test_settled_values_are_those_of_the_papers_iteration():
    rng = np.random.default_rng(0)
    for shape in ((1, 2), (4, 6), (9, 3)):
        reward, passes = rng.random((19, *shape)) ** 4, rng.random((19, *shape))
        value = propagate(torch.from_numpy(reward).float(), torch.from_numpy(passes).float(), 1000)
        np.testing.assert_allclose(value, plain_iteration(reward, passes), rtol=1e-5, atol=1e-6)


def test_around_walls_a_value_is_the_discount_to_the_power_of_the_shortest_path():
    walls = np.random.default_rng(1).random((40, 9, 9)) < 0.3
    walls[:, 4, 4] = False
    reward, passes = np.zeros((40, 9, 9), np.float32), np.where(walls, 0, 0.9).astype(np.float32)
    reward[:, 4, 4] = 1
    value = propagate(torch.from_numpy(reward), torch.from_numpy(passes), 1000).numpy()
    longest = 0
    for row in range(40):
        steps = distances(walls[row], (4, 4))
        expected = np.where((steps >= 0) & ~walls[row], 0.9 ** steps.astype(float), 0.0)
        np.testing.assert_allclose(value[row], expected, rtol=1e-4, atol=1e-7)
        longest = max(longest, steps.max())
    assert longest > 12


def test_the_gradient_agrees_with_finite_differences():
    rng = np.random.default_rng(2)
    reward = torch.from_numpy(rng.random((5, 4, 5)) ** 3).requires_grad_()
    passes = torch.from_numpy(0.3 + 0.69 * rng.random((5, 4, 5))).requires_grad_()
    assert torch.autograd.gradcheck(lambda r, p: propagate(r, p, 1000), (reward, passes), eps=1e-7, atol=1e-5)


def test_numbers_that_are_none_or_shares_of_exactly_1_end_too():
    reward = torch.rand(3, 5, 5)
    assert torch.isnan(propagate(torch.full((1, 5, 5), torch.nan), torch.ones(1, 5, 5), 25)).all()
    passes = torch.ones(3, 5, 5, requires_grad=True)
    value = propagate(reward, passes, 25)
    torch.testing.assert_close(value, reward.amax((1, 2), keepdim=True).expand(3, 5, 5))
    value.sum().backward()
    assert torch.isfinite(passes.grad).all()


def with_known_weights(config):
    """An encoder told, not taught, that walls shut and the target shines."""
    encoder = make_encoder(SPACE, config)
    names = [name for name in SPACE.spaces if name not in ("agent", "step_count")]
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
        encoder.embed.weight[0, names.index("target")] = 1.0
        encoder.embed.weight[1, names.index("walls")] = 1.0
        encoder.maps.weight[0, 0] = 12.0 / SHARPNESS  # the reward of a target
        encoder.maps.weight[0, 1] = -20.0 / SHARPNESS
        encoder.maps.weight[1, 1] = -30.0 / SHARPNESS  # the share that a wall lets through
        encoder.maps.bias[0] = -12.0 / SHARPNESS
    return encoder


def random_mazes(count, rng):
    """Walls, an agent and a target with a way between them, and which moves lead nearer."""
    obs = {name: [] for name in SPACE.spaces}
    nearer = []
    while len(nearer) < count:
        walls = rng.random((SIZE, SIZE)) < 0.35
        agent, target = (tuple(int(i) for i in rng.integers(SIZE, size=2)) for _ in range(2))
        walls[agent] = walls[target] = False
        steps = distances(walls, target)
        if agent == target or steps[agent] < 0:
            continue
        found = []
        for down, right in MOVES:
            cell = (agent[0] + down, agent[1] + right)
            found.append(is_within(cell, walls) and not walls[cell] and steps[cell] == steps[agent] - 1)
        nearer.append(found)
        for name, value in (("agent", agent), ("target", target), ("walls", walls), ("step_count", [0])):
            obs[name].append(value)
    batch = {name: torch.from_numpy(np.array(value).astype(np.int64)) for name, value in obs.items()}
    return batch | {"walls": batch["walls"].to(torch.int8)}, np.array(nearer)


def test_with_walls_shut_the_highest_value_around_the_agent_is_the_shortest_way_as_far_as_planning_steps_reach():
    obs, nearer = random_mazes(200, np.random.default_rng(3))
    right = {}
    for steps in (1, 2, None):
        features = with_known_weights(PolicyConfig(encoder="value_propagation", planning_steps=steps))(obs)
        around = features[:, [1, 5, 7, 3]]  # up, right, down, left of the 3x3
        right[steps] = nearer[np.arange(200), around.argmax(1).numpy()].mean()
    assert right[1] < right[2] < right[None] == 1.0
    assert (~nearer).any(1).all()


def test_a_target_that_has_gone_dark_can_be_learned_to_shine_again_but_not_to_be_darker():
    """What a failing seed did: the target's reward went to 1e-9, less than any value that is told from zero."""
    obs, _ = random_mazes(50, np.random.default_rng(7))
    lit = torch.zeros(50, SIZE, SIZE)
    lit[torch.arange(50), obs["target"][:, 0], obs["target"][:, 1]] = 1.0
    for sign, learns in ((-1.0, True), (1.0, False)):  # descent goes against the gradient
        encoder = with_known_weights(PolicyConfig(encoder="value_propagation"))
        with torch.no_grad():
            encoder.maps.weight[0, 0] = -8.0 / SHARPNESS  # with the bias, -24 for a target
        reward, _ = encoder.reward_and_passes(obs)
        assert reward.min() > 3e-4
        (sign * (reward * lit).sum()).backward()
        assert (float(encoder.maps.weight.grad[0, 0].abs()) > 1e-3) == learns


@pytest.mark.gpu
def test_the_encoder_gives_the_same_features_on_the_gpu():
    obs, _ = random_mazes(200, np.random.default_rng(9))
    encoder = with_known_weights(PolicyConfig(encoder="value_propagation"))
    expected = encoder(obs)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        features = encoder.cuda()({name: entry.cuda() for name, entry in obs.items()})
    torch.testing.assert_close(features.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_an_agent_at_the_rim_sees_nothing_beyond_it():
    obs, _ = random_mazes(1, np.random.default_rng(5))
    obs["agent"] = torch.tensor([[0, SIZE - 1]])
    passable = make_encoder(SPACE, PolicyConfig(encoder="value_propagation"))(obs)[0, 9:18].reshape(3, 3)
    assert (passable[0] == 0).all()
    assert (passable[:, 2] == 0).all()
    assert (passable[1:, :2] > 0).all()


def test_positions_may_be_counted_from_another_start():
    shifted = Dict(dict(SPACE.spaces) | {"agent": MultiDiscrete([SIZE, SIZE], start=[3, -2])})
    config = PolicyConfig(encoder="value_propagation")
    plain, moved = make_encoder(SPACE, config), make_encoder(shifted, config)
    moved.load_state_dict(plain.state_dict())
    obs, _ = random_mazes(20, np.random.default_rng(6))
    torch.testing.assert_close(plain(obs), moved(obs | {"agent": obs["agent"] + torch.tensor([3, -2])}))


def test_a_few_gradient_steps_teach_it_mazes_it_has_not_seen():
    encoder = make_encoder(SPACE, PolicyConfig(encoder="value_propagation", grid_channels=(16,)))
    head = torch.nn.Linear(encoder.num_features, 4)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=5e-3)
    train, test = random_mazes(2048, np.random.default_rng(7)), random_mazes(300, np.random.default_rng(8))

    def correct():
        with torch.no_grad():
            chosen = head(encoder(test[0])).argmax(1).numpy()
        return test[1][np.arange(300), chosen].mean()

    before = correct()
    for step in range(160):
        part = torch.arange(256) + 256 * (step % 8)
        log_probs = torch.log_softmax(head(encoder({name: entry[part] for name, entry in train[0].items()})), 1)
        loss = -torch.logsumexp(log_probs.masked_fill(~torch.from_numpy(train[1])[part], -1e9), 1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert before < 0.6
    assert correct() > 0.95
