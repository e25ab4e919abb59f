"""The forks of a run as a tree: where it comes from, what came from it, and what each changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scramjet.errors import ScramjetError
from scramjet.reports.run_files import Lineage, read_lineage
from scramjet.web.runs.facts import RunFacts

MOST_NODES = 200


def fork_tree(runs_dir: Path, name: str, facts: list[RunFacts]) -> dict[str, Any] | None:
    """The tree that a run stands in, from its oldest ancestor on; None for a run without forks.

    Ancestors that are no longer in the folder are known by the run's own lineage.
    """
    known = {each.name: each for each in facts}
    children: dict[str, list[str]] = {}
    for each in facts:
        if each.parent:
            children.setdefault(each.parent, []).append(each.name)
    lineages = _chain(_lineage(runs_dir / name))
    for lineage, child in zip(lineages, [name, *(each.parent_run for each in lineages)], strict=False):
        own = children.setdefault(lineage.parent_run, [])
        if child not in own:
            own.append(child)
    root = lineages[-1].parent_run if lineages else name
    if not children.get(root):
        return None
    past = {child: lineage for lineage, child in zip(lineages, [name, *(e.parent_run for e in lineages)], strict=False)}
    seen: set[str] = set()

    def node(here: str) -> dict[str, Any]:
        seen.add(here)
        lineage = past.get(here) or (_lineage(runs_dir / here) if here in known else None)
        grown = [
            node(child) for child in sorted(children.get(here, ())) if child not in seen and len(seen) < MOST_NODES
        ]
        found = known.get(here)
        return {
            "name": here,
            "is_here": found is not None,
            "value": None if found is None else found.value,
            "state": "" if found is None else found.state,
            "step": None if lineage is None else lineage.parent_step,
            "changed": {} if lineage is None else lineage.changed,
            "children": grown,
        }

    return node(root)


def _lineage(run: Path) -> Lineage | None:
    try:
        return read_lineage(run / "lineage.json")
    except ScramjetError:
        return None


def _chain(lineage: Lineage | None) -> list[Lineage]:
    """A lineage and those of its ancestors, the youngest first."""
    found = []
    while lineage is not None and lineage.parent_run:
        found.append(lineage)
        lineage = lineage.parent
    return found
