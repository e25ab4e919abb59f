/** Plots by plotly, whose script is loaded when the first plot is drawn; colours follow the page, light and dark. */

import { element, replace } from "./dom.js";

let loading = null;
const drawn = new Set();

/** Plotly itself: `const Plotly = await loadPlotly()`. */
export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = element("script", { src: "/vendor/plotly.min.js" });
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => {
      loading = null;
      reject(new Error("The script of the plots could not be loaded."));
    });
    document.head.append(script);
  });
  return loading;
}

/** The value of one of the style sheet's variables now, such as colour("--accent"). */
export function colour(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

/** Colours of several curves, told apart also by those who see few colours. */
export function curveColours() {
  return Array.from({ length: 8 }, (_, index) => colour(`--curve-${index + 1}`));
}

/**
 * Draw a plot, or draw it anew with other data; zoom and hidden curves stay.
 * @param {HTMLElement} place
 * @param {function(): {traces: Object[], layout?: Object}} contents called again when the colours change
 */
export async function draw(place, contents) {
  const Plotly = await loadPlotly();
  if (!place.isConnected) return;
  const { traces, layout = {} } = contents();
  place.redraw = () => draw(place, contents);
  drawn.add(place);
  if (traces.every((trace) => trace.x.length === 0)) { // axes of nothing would be invented
    Plotly.purge(place);
    replace(place, element("p", { class: "no-data quiet" }, "no data yet"));
    return;
  }
  if (place.querySelector(".no-data")) replace(place);
  await Plotly.react(place, traces, merged(baseLayout(), layout), { displayModeBar: false, responsive: true });
}

/** Free a plot's memory when its view ends. */
export function forget(place) {
  drawn.delete(place);
  if (place.redraw) window.Plotly?.purge(place);
}

function baseLayout() {
  const axis = {
    gridcolor: colour("--line"),
    zerolinecolor: colour("--line"),
    linecolor: colour("--line"),
    automargin: true,
    fixedrange: matchMedia("(pointer: coarse)").matches,
  };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--quiet") },
    margin: { l: 8, r: 8, t: 8, b: 8 },
    xaxis: axis,
    yaxis: axis,
    showlegend: false,
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--line"), font: { color: colour("--text") } },
    uirevision: "kept",
  };
}

function merged(base, over) {
  const both = { ...base, ...over };
  for (const axis of ["xaxis", "yaxis"]) both[axis] = { ...base[axis], ...over[axis] };
  return both;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const place of drawn) {
    if (place.isConnected) place.redraw();
    else drawn.delete(place);
  }
});
