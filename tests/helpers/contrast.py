"""The contrast of text on a page, by the formula of WCAG 2.2."""

from __future__ import annotations

from typing import Any

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


def luminance(colour: list[float]) -> float:
    """Relative luminance of a colour of sRGB, 0 to 255 each."""
    parts = [value / 255 for value in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: list[float], second: list[float]) -> float:
    """From 1 for equal colours to 21 for black on white."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def faint_texts(page: Any) -> list[tuple[str, float]]:
    """The texts of a page below what WCAG's level AA asks for, with their contrast."""
    texts = page.evaluate(TEXTS)
    assert len(texts) > 2
    told = [(each["text"], contrast(each["color"], each["below"]), 3.0 if each["isLarge"] else 4.5) for each in texts]
    return [(text, round(found, 2)) for text, found, wanted in told if found < wanted]
