/** The shell of the page: reads the hash, shows its view, and gives views what they share. */

import { fetchJson, openSocket } from "./parts/api.js";
import { element, replace } from "./parts/dom.js";
import { toast } from "./parts/toasts.js";

/**
 * A view's module exports `async function show(root, parameters, page)`: it fills `root` and may return a function
 * that cleans up. `parameters` are those of the hash's query, with `name` for what follows the route.
 * [first word of the hash, module, title, link in the top bar]
 */
const ROUTES = [
  ["", "./views/runs.js", "Runs", true],
  ["compare", "./views/compare.js", "Compare", true],
  ["run", "./views/run.js", "Run", false],
  ["play", "./views/play.js", "Play", true],
  ["watch", "./views/watch.js", "Watch", false],
];

const page = {
  /** GET or POST JSON; throws an Error with the server's message. */
  api: fetchJson,
  /** A WebSocket that reconnects; returns {send, close}. */
  socket: openSocket,
  /** Show a message for some seconds: toast(text, "error" | "note"). */
  toast,
  /** Set the title of the window. */
  title(text) {
    document.title = text ? `${text} · scramjet` : "scramjet";
  },
  /** Go to a hash, such as "#/run/cartpole-1". */
  go(hash) {
    location.hash = hash;
  },
};

const content = document.getElementById("content");
let cleanUp = null;
let shown = 0;

/** The route, name and parameters of a hash such as "#/watch/cartpole-1?checkpoint=best". */
export function readHash(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [route, ...rest] = path.split("/").map(decodeURIComponent);
  return { route, parameters: { ...Object.fromEntries(new URLSearchParams(query)), name: rest.join("/") } };
}

async function showView() {
  if (location.hash === "#content") return;
  const turn = ++shown;
  const { route, parameters } = readHash(location.hash);
  const found = ROUTES.find(([name]) => name === route);
  endView();
  markNavigation(route);
  const root = element("div", { class: "view" });
  replace(content, root);
  page.title(found ? found[2] : "Not found");
  if (!found) {
    root.append(notice("There is no such page.", "The runs", "#/"));
    return;
  }
  try {
    const view = await import(found[1]);
    const ended = await view.show(root, parameters, page);
    if (turn === shown) cleanUp = ended ?? null;
    else ended?.();
  } catch (error) {
    if (turn !== shown) return;
    replace(root, notice(error.message, "Back to the runs", "#/"));
  }
}

function endView() {
  const ending = cleanUp;
  cleanUp = null;
  try {
    ending?.();
  } catch (error) {
    toast(error.message, "error");
  }
}

function notice(text, label, hash) {
  return element("div", { class: "empty" }, element("p", {}, text), element("a", { href: hash, class: "button" }, label));
}

function markNavigation(route) {
  const links = ROUTES.filter(([, , , isLinked]) => isLinked).map(([name, , title]) => {
    const link = element("a", { href: `#/${name}` }, title);
    if (name === route) link.setAttribute("aria-current", "page");
    return link;
  });
  replace(document.getElementById("navigation"), ...links);
}

/** The token has done its work once the cookie is set: take it out of the address, which people copy and share. */
function hideToken() {
  const address = new URL(location.href);
  if (!address.searchParams.has("token")) return;
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}

document.querySelector("[data-skip]").addEventListener("click", (event) => {
  event.preventDefault();
  content.focus();
});
window.addEventListener("hashchange", () => {
  showView();
  window.scrollTo(0, 0);
});
window.addEventListener("unhandledrejection", (event) => toast(String(event.reason?.message ?? event.reason), "error"));
hideToken();
showView();
