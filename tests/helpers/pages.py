"""For tests of the page: a running server, run folders made by hand, and the contrast of texts by WCAG 2.2."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scramjet.runtime.runs import Run
from tests.helpers.written_runs import record_at, write_run


def record(update: int, value: float = 1.0, **metrics: Any) -> dict[str, Any]:
    """The metrics of an update as training writes them."""
    usual = record_at(update, return_mean=value, return_100=value, approx_kl=0.01, value_loss=2.0, entropy=0.5)
    parts = {"rollout_seconds": 0.1, "prepare_seconds": 0.01, "learn_seconds": 0.3, "evaluate_seconds": 0.0}
    return {**usual, **metrics, "time": {**usual["time"], **parts}}


def make_run(runs_dir: Path, name: str, updates: int = 20, *, total: int = 100_000, **config: Any) -> Path:
    """A run at rest with so many updates, whose return climbs from 1 on."""
    records = [record(update, float(update)) for update in range(1, updates + 1)]
    settings = {"device": "cpu", "learning_rate": 0.001, "policy": {"hidden": [64]}, "tags": [], **config}
    return write_run(runs_dir, name, records, total_timesteps=total, **settings)


def make_running(runs_dir: Path, name: str, updates: int = 20, **config: Any) -> Run:
    """The same, locked by this process, as a run that trains is; release it at the end."""
    return Run.open(make_run(runs_dir, name, updates, **config)).lock()


@dataclass(frozen=True)
class PageServer:
    """A running server: where it is, and the folder that it shows."""

    url: str
    runs_dir: Path

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
