"""What cannot be trained with search is refused with exit code 2 and the fix, and leaves no run behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.command_calls import refusal

PROBLEMS = {
    "gym:CartPole-v1 --algorithm spo": "spo cannot search gym:CartPole-v1: a world of another library cannot be "
    "branched",
    "gym:CartPole-v1 --algorithm alphazero": "worlds written for scramjet can: `scramjet list`",
    "kuhn --algorithm alphazero": "alphazero cannot search Kuhn: its record holds what players must not see",
    "memory --algorithm spo": "use the policy alone, with --policy.memory gru where it must remember",
    "snake --env.snakes 2 --algorithm spo": "spo cannot search Snake: its 2 agents act at once",
    "cartpole --policy.memory gru --algorithm spo": "cannot search with a policy that has memory: it would have to "
    "remember along every branch; train without --policy.memory",
    "cartpole --frame-stack 2 --algorithm spo": "train with --frame-stack 1",
    "cartpole --frame-stack 2 --algorithm alphazero": "train with --frame-stack 1",
    "cartpole --algorithm spo --mode async": "use --mode sync, or --algorithm ppo",
    "connect_four --algorithm alphazero --self-play.pool-fraction 0.5": "leave --self-play settings out, or use "
    "--algorithm ppo",
    "pendulum --algorithm alphazero": "alphazero chooses one of several actions, and Pendulum has Box",
    "tests.helpers.worlds.everything:Everything --algorithm alphazero": "use spo, whose particles take any actions",
    "cartpole --algorithm spo --spo.depth 0": "spo.depth=0",
    "cartpole --algorithm spo --spo.particles 0": "spo.particles=0",
    "cartpole --algorithm spo --spo.particles -3": "spo.particles=-3",
    "cartpole --algorithm alphazero --alphazero.simulations 0": "alphazero.simulations=0",
    "cartpole --algorithm spo --spo.particles 1000000000": "lower --num-envs or --spo.particles",
    "cartpole --algorithm spo --num-envs 8 --num-steps 10000000 --spo.particles 1000": "what particles find in a "
    "rollout",
    "cartpole --algorithm spo --spo.replay-size 2000000000": "lower --num-envs, --spo.particles or --spo.replay-size",
    "connect_four --algorithm alphazero --num-envs 400000 --alphazero.simulations 10000": "lower --num-envs or "
    "--alphazero.simulations",
    "cartpole --algorithm spo --num-envs 100000000000": "num_envs=100000000000",
    "cartpole --algorithm alphazero --device cuda --env-device cpu": "use --env-device auto",
    "cartpole --algorithm spo --clip-epsilon 0.1": "clip_epsilon=0.1 is PPO's, and algorithm='spo' does not use it",
    "cartpole --algorithm alphazero --entropy-coef 0.5": "entropy_coef=0.5 is PPO's",
    "cartpole --algorithm spo --advantage vtrace": "advantage=vtrace is PPO's",
    "cartpole --algorithm spo --bptt-horizon 4": "bptt_horizon=4 is PPO's",
    "cartpole --spo.particles 8": "spo.particles=8 is for another algorithm; add --algorithm spo",
    "cartpole --algorithm spo --alphazero.simulations 8": "alphazero.simulations=8 is for another algorithm; add "
    "--algorithm alphazero",
    "cartpole --algorithm alphazero --spo.depth 2": "spo.depth=2 is for another algorithm",
    "cartpole --algorithm dqn": "dqn",
}


@pytest.mark.parametrize("words", PROBLEMS)
def test_it_is_refused_with_the_reason_and_the_fix(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = [] if "--device" in words else ["--device", "cpu"]
    said = refusal(capsys, "train", *words.split(), *device, "--runs-dir", tmp_path, "--display", "plain")
    assert PROBLEMS[words] in said
    assert not list(tmp_path.iterdir())
