"""Time PufferLib's own PPO trainer on its own native CartPole, on CPU.

Runs inside an environment that has PufferLib 3.0 from PyPI, built with its CartPole only::

    python pufferlib_cartpole.py --num-envs 256 --num-steps 128 --seconds 20 --json

Both the envs alone and training are timed, or with ``--work`` one thing by itself: env, training or gae (its compiled
advantages, which clip importance ratios besides).

Matched to our benchmark: separate 4-64-64-{2,1} tanh actor and critic, the rollout length, 4 epochs
of 4 minibatches (16 Adam steps per update, each sample seen 4 times on average), gamma 0.99, lambda
0.95, float32, no ``torch.compile``, PyTorch's default thread count, one process.

With ``--lstm SIZE`` the policy is PufferLib's own: ``LSTMWrapper`` around ``Default``, which is one
linear layer of SIZE, an LSTM of SIZE and a linear output each for actions and value. Matched then:
one trunk for both, its width, the LSTM's width, and gradients through whole rollouts of 128 steps
(``bptt_horizon`` is the rollout length). Not matched: GELU after the first layer where ours has
tanh; PufferLib resets no state where an episode ends inside a segment, and starts every rollout
from a state of zeros; ours keeps the state between rollouts and clears it at each episode's end.

Not matchable, because it is how the trainer or the environment is written:

* minibatches are drawn anew from the whole batch, as whole 128-step segments, so 4 epochs' worth
  of samples is not 4 exact passes (``prio_alpha=0`` makes the draw uniform, not by priority);
* advantages are recomputed over the whole batch before every minibatch (16 times per update) and
  again over the minibatch itself, with V-trace clipping of the importance ratios;
* its CartPole restarts after 200 steps, not 500, without flagging the cut, and pays 0 on the last
  step of an episode.

In the peer's favour, its terminal dashboard is switched off, checkpoints are never written while
the clock runs, and episode statistics are gathered once per rollout rather than at every step.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from importlib.metadata import version
from typing import Any

import measuring

# Importing pufferlib creates a link in the working directory: give it one to throw away.
SCRATCH = tempfile.TemporaryDirectory()
os.chdir(SCRATCH.name)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from pufferlib.models import Default, LSTMWrapper  # noqa: E402
from pufferlib.ocean.cartpole.cartpole import Cartpole  # noqa: E402
from pufferlib.pufferl import PuffeRL, compute_puff_advantage  # noqa: E402

EPOCHS = 4
MINIBATCHES = 4
WARMUP_UPDATES = 2
MIN_TIMED_UPDATES = 3


class TanhActorCritic(torch.nn.Module):
    """Separate actor and critic, each with two tanh layers of 64 units."""

    def __init__(self, observation_size: int = 4, num_actions: int = 2, width: int = 64) -> None:
        super().__init__()

        def trunk(outputs: int) -> torch.nn.Sequential:
            return torch.nn.Sequential(
                torch.nn.Linear(observation_size, width),
                torch.nn.Tanh(),
                torch.nn.Linear(width, width),
                torch.nn.Tanh(),
                torch.nn.Linear(width, outputs),
            )

        self.actor = trunk(num_actions)
        self.critic = trunk(1)

    def forward(
        self, observations: torch.Tensor, state: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return action logits and values; ``state`` is for recurrent policies and unused."""
        return self.actor(observations), self.critic(observations)

    forward_eval = forward  # the trainer's name for the forward pass during rollouts


class QuietPuffeRL(PuffeRL):
    """PufferLib's trainer without its terminal dashboard."""

    def print_dashboard(self, *args: Any, **kwargs: Any) -> None:
        """Print nothing: drawing the table would cost training time."""


def make_policy(env: Cartpole, lstm_size: int) -> torch.nn.Module:
    """The tanh networks, or PufferLib's LSTM policy where ``lstm_size`` is not 0."""
    if not lstm_size:
        return TanhActorCritic()
    policy = Default(env, hidden_size=lstm_size)
    return LSTMWrapper(env, policy, input_size=lstm_size, hidden_size=lstm_size)


def train_config(num_envs: int, num_steps: int, *, use_rnn: bool) -> dict[str, Any]:
    """The trainer's settings: it takes a plain dictionary and wants every key."""
    batch = num_envs * num_steps
    minibatch = batch // MINIBATCHES
    return {
        # Matched.
        "batch_size": batch,
        "bptt_horizon": num_steps,
        "minibatch_size": minibatch,
        "max_minibatch_size": minibatch,  # no gradient accumulation
        "update_epochs": EPOCHS,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "anneal_lr": False,
        "prio_alpha": 0.0,  # uniform minibatches
        "prio_beta0": 0.2,
        "precision": "float32",
        "device": "cpu",
        "use_rnn": use_rnn,
        "compile": False,
        # Customary PPO values: no effect on speed.
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-8,
        "clip_coef": 0.2,
        "vf_coef": 0.5,
        "vf_clip_coef": 0.2,
        "ent_coef": 0.01,
        "max_grad_norm": 0.5,
        "vtrace_rho_clip": 1.0,
        "vtrace_c_clip": 1.0,
        "cpu_offload": False,
        "torch_deterministic": True,
        "seed": 0,
        # Never reached: the clock decides when to stop.
        "total_timesteps": 10**12,
        "checkpoint_interval": 10**9,
        "data_dir": SCRATCH.name,
        "env": "puffer_cartpole",
    }


def time_env(num_envs: int, num_steps: int, seconds: float) -> float:
    """Steps per second of the environments alone, under random actions drawn beforehand."""
    env = Cartpole(num_envs=num_envs, report_interval=num_steps)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, (num_steps, num_envs), dtype=np.int32)
    sweeps = -1  # the first sweep is a warm-up
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or sweeps < 1:
        for action in actions:
            env.step(action)
        sweeps += 1
        if sweeps == 0:
            start = time.perf_counter()
    elapsed = time.perf_counter() - start
    env.close()
    return sweeps * num_steps * num_envs / elapsed


def check_memory_is_used(trainer: PuffeRL, num_envs: int, num_steps: int) -> None:
    """Make one update and see each rollout step go through the LSTM's cell and each minibatch through the LSTM."""
    seen: dict[str, list[tuple[int, ...]]] = {"cell": [], "lstm": []}

    def cell_hook(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        seen["cell"].append(tuple(inputs[0].shape[:-1]))

    def lstm_forward(*inputs: Any) -> Any:  # the wrapper calls `forward` itself, past any hook
        seen["lstm"].append(tuple(inputs[0].shape[:-1]))
        return forward(*inputs)

    hook = trainer.policy.cell.register_forward_hook(cell_hook)
    forward = trainer.policy.lstm.forward
    trainer.policy.lstm.forward = lstm_forward
    trainer.evaluate()
    trainer.train()
    hook.remove()
    del trainer.policy.lstm.forward  # the class's own again
    expected = {
        "cell": [(num_envs,)] * num_steps,
        "lstm": [(num_steps, num_envs // MINIBATCHES)] * trainer.total_minibatches,
    }
    if seen != expected:
        raise RuntimeError("the trainer does not run the LSTM as this benchmark says it does")


def time_training(num_envs: int, num_steps: int, lstm_size: int, seconds: float) -> dict[str, Any]:
    """Train for about ``seconds`` after a warm-up and summarise the time each update took."""
    torch.manual_seed(0)
    env = Cartpole(num_envs=num_envs, report_interval=num_steps)
    env.agents_per_batch = env.num_agents  # the trainer asks for it with an LSTM; 3.0's native envs spell it otherwise
    settings = train_config(num_envs, num_steps, use_rnn=bool(lstm_size))
    trainer = QuietPuffeRL(settings, env, make_policy(env, lstm_size))
    batch = num_envs * num_steps
    passes = trainer.total_minibatches * trainer.minibatch_size / batch
    if passes != EPOCHS or trainer.accumulate_minibatches != 1:
        raise RuntimeError(f"the trainer makes {passes} passes over a batch, not {EPOCHS}")
    if lstm_size:
        check_memory_is_used(trainer, num_envs, num_steps)

    times: list[float] = []
    episode_length = float("nan")
    for update in range(10**9):
        start = time.perf_counter()
        trainer.evaluate()
        logs = trainer.train()
        if update >= WARMUP_UPDATES:
            times.append(time.perf_counter() - start)
        if logs:
            episode_length = logs.get("environment/episode_length", episode_length)
        if len(times) >= MIN_TIMED_UPDATES and sum(times) >= seconds:
            break
    trainer.close()
    return {
        "train_steps_per_second": round(batch / statistics.median(times)),
        "train_steps_per_second_mean": round(batch * len(times) / sum(times)),
        "timed_updates": len(times),
        "last_episode_length": round(float(episode_length), 1),
        "settings": {
            "num_steps": num_steps,
            "epochs": EPOCHS,
            "minibatches": MINIBATCHES,
            "minibatch_size": trainer.minibatch_size,
            "optimizer_steps_per_update": trainer.total_minibatches,
            "gradient_samples_per_env_step": passes,
            "network": f"linear {lstm_size}, LSTM {lstm_size}"
            if lstm_size
            else "separate actor and critic, 2 x 64 tanh",
            "parameters": sum(parameter.numel() for parameter in trainer.policy.parameters()),
            "optimizer": "adam",
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "device": "cpu",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        },
    }


def time_gae(seconds: float) -> float:
    """Steps per second of its compiled advantages alone; it has the envs first."""
    torch.manual_seed(0)
    shape = (measuring.GAE_ENVS, measuring.GAE_STEPS)
    values, rewards, done = torch.rand(shape), torch.rand(shape), (torch.rand(shape) < 0.02).float()
    ratio = torch.ones(shape)

    def once() -> None:
        advantages = torch.zeros(shape)
        compute_puff_advantage(
            values, rewards, done, ratio, advantages, measuring.GAMMA, measuring.GAE_LAMBDA, 1.0, 1.0
        )
        advantages + values

    return measuring.median_rate(once, values.numel(), seconds)


def measure_one(args: argparse.Namespace) -> dict[str, Any]:
    """Only what ``--work`` names, in the form that all peers answer in."""
    packages = ["pufferlib", "torch", "numpy"]
    if args.work == "env":
        rate, settings = time_env(args.num_envs, args.num_steps, args.seconds), "its own C CartPole, 1 thread"
    elif args.work == "gae":
        rate, settings = time_gae(args.seconds), "its compiled C++ (V-trace clipping too)"
    else:
        timed = time_training(args.num_envs, args.num_steps, args.lstm, args.seconds)
        rate, settings = timed["train_steps_per_second"], "PuffeRL on its own C CartPole"
    return {"steps_per_second": rate, "settings": settings, "versions": measuring.versions_of(packages)}


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """The environments, then training."""
    return {
        "system": "pufferlib",
        "version": version("pufferlib"),
        "num_envs": args.num_envs,
        "env_steps_per_second": round(time_env(args.num_envs, args.num_steps, seconds=2.0)),
        "lstm_size": args.lstm,
        **time_training(args.num_envs, args.num_steps, args.lstm, args.seconds),
    }


def main() -> None:
    """Measure what is asked for and print the result."""
    parser = argparse.ArgumentParser(description="Time PufferLib's trainer on its CartPole.")
    parser.add_argument("--work", choices=["env", "training", "gae"], help="one thing by itself, as JSON")
    parser.add_argument("--seed", type=int, default=0, help="changes nothing: PufferLib's CartPole is not solved here")
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--lstm", type=int, default=0, metavar="SIZE", help="PufferLib's LSTM policy; 0: no memory")
    parser.add_argument("--seconds", type=float, default=20.0, help="timed training, roughly")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if args.num_envs % MINIBATCHES:
        parser.error(f"--num-envs must be a multiple of {MINIBATCHES}")
    if args.lstm < 0:
        parser.error("--lstm must be at least 0")

    if args.work:
        print(json.dumps(measure_one(args)))
        return
    result = measure_all(args)
    if args.json:
        print(json.dumps(result))
    else:
        print(
            f"pufferlib {result['version']}, {args.num_envs} environments: "
            f"{result['train_steps_per_second']:,} training steps/s, "
            f"{result['env_steps_per_second']:,} environment steps/s"
        )


if __name__ == "__main__":
    main()
