/** Buttons for moves and sliders for numbers: everything that can be played without the picture. */

import { element, replace } from "../dom.js";
import { number as inFigures } from "../format.js";

/** Worlds with more moves than this show only the legal ones. */
export const ALL_SHOWN = 12;
const DIRECTIONS = ["up", "right", "down", "left"];

/**
 * Buttons of a world's moves. Worlds with few show all of them, those not legal now dimmed; others the legal ones.
 * @param {{choose: function(number), hover: function(number|null), hold: function(number|null)}} handlers `hold` gets
 *   the move whose button is held down, null when it is let go
 */
export function makeMoves(names, { choose, hover, hold }) {
  const buttons = new Map();
  const isPad = names.length === 4 && DIRECTIONS.every((name) => names.includes(name));
  const node = element("div", { class: isPad ? "moves pad" : "moves", role: "group", "aria-label": "Moves" });
  const showsAll = names.length > 0 && names.length <= ALL_SHOWN;

  function button(move) {
    const made = element("button", { type: "button", class: isPad ? `move ${move.name}` : "move", "data-number": move.number },
      move.name);
    const isLegal = () => made.getAttribute("aria-disabled") !== "true";
    made.addEventListener("click", () => isLegal() && choose(move.number));
    made.addEventListener("pointerenter", () => isLegal() && hover(move.number));
    made.addEventListener("pointerleave", () => hover(null));
    made.addEventListener("focus", () => isLegal() && hover(move.number));
    made.addEventListener("blur", () => hover(null));
    made.addEventListener("pointerdown", () => hold(move.number));
    for (const event of ["pointerup", "pointerleave", "pointercancel"]) made.addEventListener(event, () => hold(null));
    return made;
  }

  return {
    node,
    /** Show which moves are legal now. Buttons stay the same elements, so that the one with the focus keeps it. */
    show(legal) {
      const shown = showsAll ? names.map((name, number) => ({ number, name })) : legal;
      const isLegal = new Set(legal.map((move) => move.number));
      if (!showsAll && legal.length === 0) {
        for (const each of buttons.values()) each.setAttribute("aria-disabled", "true");
        return;
      }
      const focused = document.activeElement;
      const wanted = shown.map((move) => {
        if (!buttons.has(move.number)) buttons.set(move.number, button(move));
        const found = buttons.get(move.number);
        if (isLegal.has(move.number)) found.removeAttribute("aria-disabled");
        else found.setAttribute("aria-disabled", "true");
        return found;
      });
      const isSame = wanted.length === node.children.length && wanted.every((each, place) => node.children[place] === each);
      if (isSame) return;
      const hadFocus = node.contains(focused);
      replace(node, ...wanted);
      if (hadFocus) (node.contains(focused) ? focused : wanted[0])?.focus();
    },
    /** Mark the move under the pointer on the board. */
    mark(number) {
      for (const [each, made] of buttons) made.classList.toggle("is-marked", each === number);
    },
  };
}

/** Sliders for a world's numbers, each within its bounds. `values()` reads them. */
export function makeSliders(bounds, act) {
  const sliders = bounds.map(([low, high], place) => {
    const middle = low <= 0 && high >= 0 ? 0 : (low + high) / 2;
    const input = element("input", { type: "range", min: low, max: high, step: (high - low) / 100, id: `slider-${place}` });
    input.value = String(middle);
    const output = element("output", { for: input.id }, inFigures(middle));
    input.addEventListener("input", () => {
      output.textContent = inFigures(Number(input.value));
    });
    return { input, output };
  });
  const rows = sliders.map(({ input, output }, place) => element("div", { class: "slider-row" },
    element("label", { for: input.id }, bounds.length > 1 ? `Number ${place + 1}` : "Action"), input, output));
  const step = element("button", { type: "button", on: { click: () => act() } }, "Step");
  return {
    node: element("div", { class: "sliders" }, rows, step),
    /** Say what the button does now, and whether it can be pressed. */
    showButton(text, isOver) {
      step.textContent = text;
      step.disabled = isOver;
    },
    values: () => sliders.map(({ input }) => Number(input.value)),
  };
}
