"""RLlib's IMPALA or APPO on Gymnasium's CartPole for some seconds; prints one line of JSON.

    PYTHON_OF_ITS_ENVIRONMENT benchmarks/peers/rllib_asynchronous.py --algorithm impala --seconds 60

Steps count when its learner has trained on them; the clock begins after the first two iterations of `train()`.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from typing import Any

import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

WARM_UPS = 2
KINDS = {"impala": IMPALAConfig, "appo": APPOConfig}


def config_of(arguments: argparse.Namespace) -> Any:
    """RLlib's config with the shared network and the settings to be tuned."""
    config = KINDS[arguments.algorithm]()
    config.environment("CartPole-v1")
    config.env_runners(
        num_env_runners=arguments.runners,
        num_envs_per_env_runner=arguments.envs,
        rollout_fragment_length=arguments.fragment,
    )
    config.learners(num_learners=0)
    config.training(train_batch_size_per_learner=arguments.batch, lr=arguments.learning_rate)
    model = DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)
    config.rl_module(model_config=model)
    config.reporting(min_time_s_per_iteration=1)
    return config


def steps_trained(result: dict[str, Any]) -> float:
    """Env steps that the learner has trained on since the start."""
    learners = result.get("learners", {}).get("__all_modules__", {})
    return float(learners.get("num_env_steps_trained_lifetime", result.get("num_env_steps_trained_lifetime", 0)))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train for the given seconds; returns steps trained per second and the return at the end."""
    algorithm = config_of(arguments).build_algo()
    marks: list[tuple[float, float]] = []
    result: dict[str, Any] = {}
    while len(marks) <= WARM_UPS or marks[-1][0] - marks[WARM_UPS - 1][0] < arguments.seconds:
        result = algorithm.train()
        marks.append((time.perf_counter(), steps_trained(result)))
    (began, before), (ended, after) = marks[WARM_UPS - 1], marks[-1]
    algorithm.stop()
    return {
        "steps_per_second": (after - before) / (ended - began),
        "steps": after,
        "return": result.get("env_runners", {}).get("episode_return_mean"),
    }


def start_ray(num_cpus: int, tries: int = 5) -> None:
    """Start Ray, again if it does not come up: it gives its processes 15 s, which a busy machine may not have."""
    for left in reversed(range(tries)):
        try:
            ray.init(
                "local", num_cpus=num_cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
            )
            return
        except Exception:
            ray.shutdown()
            if left == 0:
                raise


def main() -> None:
    """Measure one setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", choices=KINDS, default="impala")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runners", type=int, default=2)
    parser.add_argument("--envs", type=int, default=8, help="envs of each runner")
    parser.add_argument("--fragment", type=int, default=50, help="steps of each env in one trajectory")
    parser.add_argument("--batch", type=int, default=500, help="steps of one update")
    parser.add_argument("--learning-rate", type=float, default=0.0005)
    arguments = parser.parse_args()
    start_ray(arguments.runners + 2)
    print(json.dumps(measure(arguments)))
    ray.shutdown()


if __name__ == "__main__":
    main()
