/** A world's picture: crisp, as large as fits, in its own proportions; or its text in a block of even letters. */

import { element } from "../dom.js";

/**
 * @param {{tallest?: number}} options `tallest`: share of the window's height that it may take
 * @returns {{node: HTMLElement, show: function(?ArrayBuffer, ?string, string): Promise<void>, forget: function()}}
 *   `show` draws a PNG, or else the text; the last argument says to those who do not see it what it shows
 */
export function makePicture({ tallest = 0.62 } = {}) {
  const canvas = element("canvas", { class: "picture-canvas", role: "img", width: 1, height: 1, hidden: true });
  const text = element("pre", { class: "picture-text", tabindex: "0", role: "img", hidden: true });
  const node = element("div", { class: "picture" }, canvas, text);
  const pen = canvas.getContext("2d");

  /** Small pictures grow by a whole factor, so that every pixel stays a square; large ones shrink smoothly. */
  function fit() {
    const room = Math.min(node.clientWidth / canvas.width, (innerHeight * tallest) / canvas.height);
    const factor = room >= 1 ? Math.floor(room) : room;
    canvas.style.width = `${Math.max(1, Math.floor(canvas.width * factor))}px`;
    canvas.classList.toggle("is-shrunk", factor < 1);
  }

  async function show(png, words, label) {
    if (png) {
      const image = await createImageBitmap(new Blob([png], { type: "image/png" }));
      if (canvas.width !== image.width || canvas.height !== image.height || canvas.hidden) {
        [canvas.width, canvas.height, canvas.hidden] = [image.width, image.height, false];
        fit();
      }
      pen.drawImage(image, 0, 0);
      image.close();
    } else {
      canvas.hidden = true;
      text.textContent = words ?? "";
    }
    text.hidden = Boolean(png);
    (png ? canvas : text).setAttribute("aria-label", label);
  }

  const observer = new ResizeObserver(fit);
  observer.observe(node);
  return { node, show, forget: () => observer.disconnect() };
}
