/** The board of a game: its picture, or its text, with the places of the legal moves that can be clicked. */

import { element, replace } from "../dom.js";
import { percent } from "../format.js";

const HINT_FROM = 0.005;

/**
 * @param {{click: function(number, number), hover?: function(number|null)}} handlers `click` gets the point as shares
 *   of the picture's width and height; `hover` the number of the move under the pointer
 */
export function makeBoard({ click, hover }) {
  const picture = element("img", { alt: "", draggable: "false" });
  const mark = element("div", { class: "place-mark", hidden: true });
  const dots = element("div", { "aria-hidden": "true" });
  const labels = element("div", { "aria-hidden": "true" });
  const text = element("pre", { class: "board-text", hidden: true });
  const frame = element("div", { class: "board-frame" }, picture, dots, mark, labels);
  const node = element("div", { class: "board" }, frame, text);
  let places = [];

  /** The point of an event as shares of the picture. */
  function point(event) {
    const box = picture.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  function placeAt(x, y) {
    return places.find((place) => x >= place.left && x < place.right && y >= place.top && y < place.bottom) ?? null;
  }

  frame.addEventListener("pointermove", (event) => {
    const place = event.pointerType === "touch" ? null : placeAt(...point(event));
    frame.classList.toggle("is-pointing", place !== null);
    highlight(place?.number ?? null);
    hover?.(place?.number ?? null);
  });
  frame.addEventListener("pointerleave", () => {
    highlight(null);
    hover?.(null);
  });
  frame.addEventListener("click", (event) => {
    const [x, y] = point(event);
    if (x >= 0 && x < 1 && y >= 0 && y < 1) click(x, y);
  });
  picture.addEventListener("load", () => {
    frame.style.setProperty("--ratio", String(picture.naturalWidth / picture.naturalHeight));
  });

  /** Mark the place of a move; null marks none. */
  function highlight(number) {
    const place = places.find((each) => each.number === number);
    mark.hidden = !place;
    if (place) covering(mark, place);
  }

  return {
    node,
    highlight,
    /** Show a state of the server; `hasDots` puts a dot on the place of each legal move. */
    show(state, title, hasDots) {
      places = state.places;
      replace(dots, ...(hasDots ? places : []).map((place) => covering(element("div", { class: "place-dot" }), place)));
      frame.hidden = state.picture === null;
      text.hidden = state.picture !== null;
      text.textContent = state.text;
      if (state.picture !== null) picture.src = `data:image/png;base64,${state.picture}`;
      picture.alt = `${title}: ${state.text.split("\n").at(-1)}`;
      if (!mark.hidden) mark.hidden = true;
      replace(labels);
    },
    /** Write on each move's place how likely the network makes it. */
    showHint(moves) {
      replace(labels, ...moves.map((move) => {
        const place = places.find((each) => each.number === move.number);
        if (!place || move.probability === null || move.probability < HINT_FROM) return null;
        return covering(element("div", { class: "place-label" }, element("span", {}, percent(move.probability))), place);
      }));
    },
    clearHint() {
      replace(labels);
    },
  };
}

/** The box, laid over a place of the picture. */
function covering(box, place) {
  box.style.left = `${100 * place.left}%`;
  box.style.top = `${100 * place.top}%`;
  box.style.width = `${100 * (place.right - place.left)}%`;
  box.style.height = `${100 * (place.bottom - place.top)}%`;
  return box;
}
