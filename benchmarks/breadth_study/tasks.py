"""The tasks of the study: worlds, their budgets, and the returns that scores are measured by.

Budgets are small on purpose: some 35 tasks, four systems and three seeds are to fit into minutes of 16 cores. A task's
reference is what a good agent reaches with any budget: the optimum where it is known, else a public figure or our own
best. Random play is not written down here; it is measured by the study.
"""

from __future__ import annotations

from dataclasses import dataclass

from scramjet.engine.layout import num_players
from scramjet.envs.registry import is_registered, load_env, registrations


@dataclass(frozen=True)
class Task:
    """A world with its budget."""

    world: str
    """As `scramjet train` takes it."""
    steps: int
    reference: float
    """The mean return that counts as a score of 1; random play counts as 0."""
    group: str
    episodes: int = 100
    """Episodes of the evaluation after training."""
    twin: str | None = None
    """The Gymnasium task with the same transitions: a peer's runs there are its runs here."""
    convolves: bool = False
    """Whether scramjet's defaults read the observations with convolutions, which take a CPU long."""
    wrapper: str | None = None
    """MODULE:CLASS of the wrapper that Stable-Baselines3 needs to read the observations."""

    @property
    def is_native(self) -> bool:
        return ":" not in self.world

    @property
    def is_available(self) -> bool:
        """Whether scramjet knows the world; those of other libraries are looked for when they are played."""
        return not self.is_native or is_registered(self.world)

    @property
    def gym_id(self) -> str:
        """The id of another library's world."""
        return self.world.partition(":")[2]

    def score(self, mean_return: float, random_return: float) -> float:
        """0 for random play, 1 for the reference."""
        return (mean_return - random_return) / (self.reference - random_return)


FLAT = "minigrid.wrappers:FlatObsWrapper"

# References. Optima: cartpole, maze, probes, tmaze, and puzzles that are solved or not. Of classics, Box2D, MiniGrid
# and MuJoCo: PPO in rl-baselines3-zoo's benchmark.md (commit 22e3ff2, after 20 K to 5 M steps), but for
# MountainCarContinuous and LunarLander, where ours reaches more. Of squared, snake, binpack and 2048: our presets. Of
# native MiniGrid worlds: about the shortest ways.
_TASKS = (
    Task("cartpole", 50_000, 500, "native", twin="gym:CartPole-v1"),
    Task("acrobot", 100_000, -73.5, "native", twin="gym:Acrobot-v1"),
    Task("mountain_car", 150_000, -110, "native", twin="gym:MountainCar-v0"),
    Task("mountain_car_continuous", 50_000, 93, "native", twin="gym:MountainCarContinuous-v0"),
    Task("pendulum", 150_000, -172, "native", twin="gym:Pendulum-v1"),
    Task("flickering_cartpole", 50_000, 500, "native"),
    Task("masked_cartpole", 50_000, 500, "native"),
    Task("bandit", 10_000, 1, "native"),
    Task("identity_continuous", 20_000, 0, "native"),
    Task("memory", 30_000, 3, "native"),
    Task("tmaze", 30_000, 4, "native"),
    Task("squared", 100_000, 24, "native"),
    Task("maze", 100_000, 1, "native"),
    Task("snake", 60_000, 22, "native", convolves=True),
    Task("binpack", 50_000, 0.92, "native"),
    Task("rubiks_cube", 50_000, 1, "native"),
    Task("sliding_tiles", 50_000, 1, "native"),
    Task("game_2048", 60_000, 2500, "native", convolves=True),
    Task("sokoban", 40_000, 10, "native", convolves=True),
    Task("empty", 40_000, 0.95, "native", convolves=True),
    Task("four_rooms", 40_000, 0.57, "native", episodes=50, convolves=True),
    Task("door_key", 60_000, 0.97, "native", episodes=50, convolves=True),
    Task("multi_room", 40_000, 0.77, "native", episodes=50, convolves=True),
    Task("key_corridor", 40_000, 0.9, "native", episodes=50, convolves=True),
    Task("obstructed_maze", 40_000, 0.9, "native", episodes=50, convolves=True),
    Task("deep_sea", 50_000, 0.99, "native"),
    Task("gym:CartPole-v1", 50_000, 500, "Gymnasium"),
    Task("gym:Acrobot-v1", 100_000, -73.5, "Gymnasium"),
    Task("gym:MountainCar-v0", 150_000, -110, "Gymnasium"),
    Task("gym:MountainCarContinuous-v0", 50_000, 93, "Gymnasium"),
    Task("gym:Pendulum-v1", 150_000, -172, "Gymnasium"),
    Task("gym:LunarLander-v3", 200_000, 260, "Box2D", episodes=50),
    Task("gym:BipedalWalker-v3", 200_000, 288, "Box2D", episodes=20),
    Task("gym:MiniGrid-Empty-Random-5x5-v0", 40_000, 0.968, "MiniGrid", convolves=True, wrapper=FLAT),
    Task("gym:MiniGrid-DoorKey-5x5-v0", 80_000, 0.964, "MiniGrid", episodes=50, convolves=True, wrapper=FLAT),
    Task("mujoco:HalfCheetah-v5", 150_000, 5819, "MuJoCo", episodes=20),
    Task("mujoco:Hopper-v5", 150_000, 2410, "MuJoCo", episodes=20),
    Task("mujoco:Walker2d-v5", 150_000, 3479, "MuJoCo", episodes=20),
    Task("mujoco:Ant-v5", 150_000, 1327, "MuJoCo", episodes=20),
    Task("mujoco:Swimmer-v5", 150_000, 282, "MuJoCo", episodes=20),
)
TASKS = {task.world: task for task in _TASKS if task.is_available}


def left_out() -> dict[str, str]:
    """Native worlds that are no task, each with the reason."""
    reasons = {}
    for entry in registrations():
        if entry.name in TASKS:
            continue
        if entry.name.startswith("probe_"):
            reasons[entry.name] = "a check of one to three steps, which the test suite trains to its known answer"
        elif num_players(load_env(entry.name)) > 1:
            reasons[entry.name] = "a game of several players: its returns say nothing without the opponents"
        else:
            reasons[entry.name] = "no budget is written down for it yet"
    return reasons
