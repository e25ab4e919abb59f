"""Native worlds for Gymnasium: `import scramjet.gym` registers each of them as `scramjet/...`.

    import gymnasium
    import scramjet.gym

    gymnasium.register_envs(scramjet.gym)  # does nothing; keeps linters from removing the import
    env = gymnasium.make("scramjet/CartPole-v1")

Gymnasium imports the module itself if its name stands before the id:
`gymnasium.make("scramjet.gym:scramjet/CartPole-v1")`. Worlds that `scramjet.register` adds later become known too.
"""

from scramjet.adapters.gymnasium.registered_envs import register_with_gymnasium
from scramjet.envs.registry import on_register

__all__: list[str] = []

on_register(register_with_gymnasium)
