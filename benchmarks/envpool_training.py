"""Training on EnvPool's CartPole-v1: scramjet beside a PPO loop in torch in CleanRL's manner, interleaved.

    python benchmarks/envpool_training.py [--num-envs 8 64] [--repeats 3] [--seconds 4]

Both step the same envs of EnvPool and train separate 64x64 tanh networks with 128-step rollouts, 4 epochs and 4
minibatches, each in a process of its own, one at a time. The loop in torch is that of
`benchmarks/peers/envpool_cartpole.py`; it trains on EnvPool's dead steps, in which an env is only reset, and they are
counted for it. Scramjet has none, tells termination from truncation, and gathers the statistics of episodes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
NUM_STEPS = 128


def our_speed(num_envs: int, seconds: float) -> float:
    """Steps trained per second of a whole run's session; without evaluations, checkpoints and display."""
    sys.path.insert(0, str(PEERS))
    from measuring import median_rate

    from scramjet.algorithms.config import PPOConfig
    from scramjet.training import start
    from scramjet.training.config.run_config import EvaluationConfig, RunConfig

    config = RunConfig(
        env="envpool:CartPole-v1",
        num_envs=num_envs,
        num_steps=NUM_STEPS,
        total_timesteps=10**10,
        ppo=PPOConfig(num_epochs=4, num_minibatches=4),
        eval=EvaluationConfig(every=0, final_episodes=0),
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        session = start.new_run(config, Path(folder), None, None)
        with session.run, session.metrics_log:

            def update() -> None:
                rollout = session.player.play(session.generator)
                session.learner.update(session.learner.prepare(rollout), 0)
                session.progress.add(session.pool.episodes())

            return median_rate(update, num_envs * NUM_STEPS, seconds)


def speed_of(command: list[str]) -> float:
    """What a program prints as its last line."""
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return float(json.loads(output.splitlines()[-1])["steps_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--ours", action="store_true", help="measure scramjet alone, in this process")
    chosen = parser.parse_args()
    if chosen.ours:
        print(json.dumps({"steps_per_second": our_speed(chosen.num_envs[0], chosen.seconds)}))
        return
    print(f"{'envs':>6}{'scramjet':>22}{'loop in torch':>22}{'ratio':>7}   (median, lowest to highest; K steps/s)")
    python = [sys.executable, "-W", "ignore"]
    for num_envs in chosen.num_envs:
        given = ["--num-envs", str(num_envs), "--seconds", str(chosen.seconds)]
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(chosen.repeats):
            ours.append(speed_of([*python, __file__, "--ours", *given]) / 1e3)
            theirs.append(speed_of([*python, str(PEERS / "envpool_cartpole.py"), "--work", "training", *given]) / 1e3)
        cells = [f"{statistics.median(x):.1f} ({min(x):.1f} to {max(x):.1f})" for x in (ours, theirs)]
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(f"{num_envs:>6}{cells[0]:>22}{cells[1]:>22}{ratio:>7.2f}", flush=True)


if __name__ == "__main__":
    main()
