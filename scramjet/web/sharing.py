"""`/api/runs/NAME/page`: a run as one HTML file to share, which the run's view offers for download."""

from __future__ import annotations

import contextlib

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from scramjet.arena.head_to_head import for_several, from_the_start
from scramjet.envs.api import Env
from scramjet.errors import ConfigError
from scramjet.training.config.run_config import RunConfig
from scramjet.web.agents import LATEST, Agents
from scramjet.web.context import PageContext
from scramjet.web.export_page.page import Facts, shared_page


def routes(context: PageContext) -> list[BaseRoute]:
    """The address of the file; what cannot be shared is answered with the reason."""
    agents = Agents(context.runs_dir, trust=context.trust)

    def answer_page(request: Request) -> Response:
        agent = agents.load(request.path_params["name"], request.query_params.get("checkpoint", LATEST))
        facts = Facts(agent.run, agent.checkpoint.step, agent.reward_scale)
        page = shared_page(visitors_world(agent.config, {}), agent.policy, facts)
        headers = {"content-disposition": f'attachment; filename="{agent.run}.html"'}
        return Response(page.html, media_type="text/html", headers=headers)

    return [Route("/api/runs/{name}/page", answer_page)]


def visitors_world(config: RunConfig, env_values: dict[str, str]) -> Env:
    """The world that visitors of a shared page play: from the start, with a seat for each player.

    `env_values` are parameters that the user gave, which stay. Raises a ConfigError for a world that no page takes.
    """
    if config.frame_stack > 1:
        raise ConfigError(
            f"export-page cannot take a run with frame_stack={config.frame_stack}: the page shows its network one "
            f"observation at a time"
        )
    if not isinstance(config.make_env(), Env):
        raise ConfigError(
            f"export-page cannot take {config.env}: its rules are code of another library, not a native world whose "
            f"Python can be translated to run in a page"
        )
    with contextlib.suppress(ConfigError):  # a world for one
        config, _ = for_several(config)
    world = from_the_start(config, env_values)[0].make_env()
    assert isinstance(world, Env)
    return world
