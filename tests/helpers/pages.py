"""For tests of the page: a running server, run folders made by hand, and the contrast of texts by WCAG 2.2."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scramjet.runtime.runs import Run

ROLLOUT = 1_000
"""Env steps of one update."""


def record(update: int, value: float = 1.0, **metrics: Any) -> dict[str, Any]:
    """The metrics of an update as training writes them."""
    times = {"elapsed_seconds": update * 0.5, "steps_per_second": 2_000.0}
    times |= {"rollout_seconds": 0.1, "prepare_seconds": 0.01, "learn_seconds": 0.3, "evaluate_seconds": 0.0}
    return {
        "update": update,
        "step": update * ROLLOUT,
        "return_mean": value,
        "return_100": value,
        "approx_kl": 0.01,
        "value_loss": 2.0,
        "entropy": 0.5,
        **metrics,
        "time": times,
    }


def config_text(seed: int = 1, total: int = 100 * ROLLOUT, env: str = "cartpole", tags: Sequence[str] = ()) -> str:
    """A short config.toml in the layout of our own."""
    listed = "".join(f"    {json.dumps(tag)},\n" for tag in tags)
    tags_text = f"[\n{listed}]" if tags else "[]"
    return (
        f'config_version = 1\nalgorithm = "ppo"\nseed = {seed}\ntotal_timesteps = {total}\ndevice = "cpu"\n'
        f'tags = {tags_text}\nlearning_rate = 0.001\n\n[env]\nname = "{env}"\n\n[policy]\nhidden = [\n    64,\n]\n'
    )


def append(run: Path, *records: Mapping[str, Any]) -> None:
    """Add lines to the metrics of a run."""
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in records)


def make_run(runs_dir: Path, name: str, updates: int = 20, *, lineage: dict | None = None, **config: Any) -> Path:
    """A run at rest with so many updates, whose return climbs from 1 on."""
    run = Run.create(runs_dir, name, config_text(**config), lineage)
    run.release()
    append(run.path, *(record(update, float(update)) for update in range(1, updates + 1)))
    return run.path


def make_running(runs_dir: Path, name: str, updates: int = 20, **config: Any) -> Run:
    """The same, locked by this process, as a run that trains is; release it at the end."""
    return Run.open(make_run(runs_dir, name, updates, **config)).lock()


@dataclass(frozen=True)
class PageServer:
    """A running server: where it is, and the folder that it shows."""

    url: str
    runs_dir: Path
    app: Any

    @property
    def address(self) -> str:
        """host:port"""
        return urlsplit(self.url).netloc


def wait_until(page: Any, script: str, argument: Any = None, seconds: float = 15.0) -> Any:
    """The value of a script in the page once it is true. Playwright's own `wait_for_function` needs eval, which the
    page's policy forbids."""
    deadline = time.monotonic() + seconds
    while not (value := page.evaluate(script, argument)):
        assert time.monotonic() < deadline, f"not so within {seconds} s: {script}"
        page.wait_for_timeout(50)
    return value


TEXTS = """() => {
  const parse = text => (text.match(/[0-9.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const over = (top, below) => [0, 1, 2].map(k => top[k] * top[3] + below[k] * (1 - top[3])).concat(1);
  const rgba = text => (([r, g, b, a]) => [r, g, b, a ?? 1])(parse(text));
  const background = node => {
    const layers = [];
    const colour = at => rgba(getComputedStyle(at).backgroundColor);
    for (let at = node; at instanceof Element; at = at.parentElement) layers.push(colour(at));
    return layers.reverse().reduce((below, layer) => over(layer, below), colour(document.body));
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].filter(each => each.nodeType === 3).map(each => each.data.trim()).join(' ').trim();
    const box = node.getBoundingClientRect();
    if (!own || box.width < 2 || box.height < 2 || ['SCRIPT', 'STYLE', 'OPTION'].includes(node.tagName)) continue;
    const style = getComputedStyle(node);
    if (style.visibility === 'hidden' || style.opacity === '0' || style.clipPath !== 'none') continue;
    const paint = node instanceof SVGElement ? style.fill : style.color;
    const below = background(node);
    const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const color = over(rgba(paint), below).slice(0, 3);
    found.push({text: own.slice(0, 60), color, below: below.slice(0, 3), isLarge});
  }
  return found;
}"""


def contrast(first: list[float], second: list[float]) -> float:
    """The contrast of two colours of sRGB, 0 to 255 each: from 1 for equal ones to 21 for black on white."""

    def luminance(colour: list[float]) -> float:
        shares = [value / 255 for value in colour]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def faint_texts(page: Any) -> list[tuple[str, float]]:
    """The texts of a page below what WCAG's level AA asks for, with their contrast."""
    texts = page.evaluate(TEXTS)
    assert len(texts) > 2
    told = [(each["text"], contrast(each["color"], each["below"]), 3.0 if each["isLarge"] else 4.5) for each in texts]
    return [(text, round(found, 2)) for text, found, wanted in told if found < wanted]
