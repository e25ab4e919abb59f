/** Talking to the server: JSON over HTTP, and WebSockets that come back after a break. */

const LONGEST_WAIT = 10_000;

/** JSON of a path below /api; throws an Error with the server's own message. */
export async function fetchJson(path, { method = "GET", body, signal } = {}) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is scramjet serve still running?");
  }
  const isJson = response.headers.get("content-type")?.includes("json");
  const answer = isJson ? await response.json() : { error: await response.text() };
  if (!response.ok) throw new Error(answer.error || `the server answered ${response.status}`);
  return answer;
}

/**
 * Open a WebSocket at a path of this server.
 * @param {string} path such as "/api/live"
 * @param {{message: function(any), open?: function(), binary?: function(ArrayBuffer), close?: function()}} handlers
 *   `message` gets the parsed JSON; `open` is called at each (re)connection
 * @returns {{send: function(any), close: function()}} `send` drops what comes while there is no connection
 */
export function openSocket(path, handlers) {
  let socket = null;
  let wait = 500;
  let timer = null;
  let isOver = false;

  function connect() {
    socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`);
    socket.binaryType = "arraybuffer";
    socket.addEventListener("open", () => {
      wait = 500;
      showConnection(true);
      handlers.open?.();
    });
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") handlers.message(JSON.parse(data));
      else handlers.binary?.(data);
    });
    socket.addEventListener("close", () => {
      if (isOver) return;
      showConnection(false);
      handlers.close?.();
      timer = setTimeout(connect, wait);
      wait = Math.min(LONGEST_WAIT, wait * 2);
    });
  }

  connect();
  return {
    send(value) {
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(value));
    },
    close() {
      isOver = true;
      clearTimeout(timer);
      showConnection(true);
      socket.close();
    },
  };
}

function showConnection(isThere) {
  const place = document.getElementById("connection");
  place.textContent = isThere ? "" : "connection lost, trying again";
}
