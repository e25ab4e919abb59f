"""`/api/runs/NAME/page`: a run as one HTML file to share, which the run's view offers for download."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from scramjet.web.agents import LATEST, Agents
from scramjet.web.context import PageContext


def routes(context: PageContext) -> list[BaseRoute]:
    """The address of the file; what cannot be shared is answered with the reason."""
    agents = Agents(context.runs_dir, trust=context.trust)

    def answer_page(request: Request) -> Response:
        from scramjet.web.export_page.page import Facts, shared_page  # loads torch
        from scramjet.web.export_page.visitors import visitors_world

        agent = agents.load(request.path_params["name"], request.query_params.get("checkpoint", LATEST))
        facts = Facts(agent.run, agent.checkpoint.step, agent.reward_scale)
        page = shared_page(visitors_world(agent.config, {}), agent.policy, facts)
        headers = {"content-disposition": f'attachment; filename="{agent.run}.html"'}
        return Response(page.html, media_type="text/html", headers=headers)

    return [Route("/api/runs/{name}/page", answer_page)]
