/** Drawing the page: elements, the board, buttons for actions, what the network thinks. */

const MOST_BUTTONS = 4000;
const MANY_BUTTONS = 40; // of more, those of illegal actions are not shown
const MOST_THOUGHTS = 8;
const ARROWS = { ArrowUp: "up", ArrowRight: "right", ArrowDown: "down", ArrowLeft: "left" };

/** An element with properties and children; text is never read as markup. */
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** The names of a world's actions, for buttons. */
function actionNames(world) {
  const count = world.action.kind === "choice" ? world.action.sizes[0] : 0;
  return $.range(count).map((action) => world.actionNames[action] ?? String(action));
}

/** The action that a key stands for; null for keys that mean nothing. */
function keyAction(world, key) {
  const names = actionNames(world).map((name) => name.toLowerCase());
  const arrow = ARROWS[key];
  if (arrow !== undefined && names.includes(arrow)) return names.indexOf(arrow);
  if (world.actionNames.length === 0 && (arrow === "left" || arrow === "right")) {
    if (names.length === 2 || names.length === 3) return arrow === "left" ? 0 : names.length - 1;
  }
  if (world.actionNames.length === 0 && names.length === 4 && arrow !== undefined) {
    return Object.values(ARROWS).indexOf(arrow);
  }
  if (!/^[1-9]$/.test(key)) return null;
  return Number(key) <= names.length ? Number(key) - 1 : null;
}

/** Show a picture on a canvas, or a text in its place. */
function drawPicture(picture, canvas, text) {
  const isDrawn = picture instanceof NdArray;
  canvas.hidden = !isDrawn;
  text.hidden = isDrawn;
  if (!isDrawn) {
    text.textContent = picture ?? "This world has no picture for the page.";
    return;
  }
  const [height, width] = picture.shape;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  const places = picture.places();
  for (let k = 0, from = 0; from < places.length; k += 4) {
    for (let channel = 0; channel < 3; channel++) image.data[k + channel] = picture.data[places[from++]];
    image.data[k + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Fill a list with what the network thinks of the position. */
function drawThoughts(session, list, value, scale) {
  const names = actionNames(session.world);
  const rows = session.preferences.slice(0, MOST_THOUGHTS).map(({ action, probability }) => {
    const share = `${(100 * probability).toFixed(1)} %`;
    const bar = element("span", { className: "bar" });
    bar.style.width = `${100 * probability}%`;
    return element("li", {}, element("span", { className: "name", textContent: names[action] }), element("span", { className: "track" }, bar), element("span", { className: "share", textContent: share }));
  });
  list.replaceChildren(...rows);
  if (session.game.isOver) {
    value.textContent = "The game is over.";
    return;
  }
  const expected = (session.think(session.thinker).value * scale).toFixed(2);
  const who = session.world.numPlayers > 1 ? ` for ${playerName(session, session.thinker)}` : "";
  value.textContent = `Return it expects from here${who}: ${expected}`;
}

function playerName(session, player) {
  if (player === session.visitor) return "you";
  return session.world.numPlayers > 1 ? `player ${player + 1}` : "the network";
}

/** How a game ended, or whose turn it is, in one sentence. */
function statusText(session) {
  const { game, world, visitor, returns } = session;
  const shown = (value) => String(Math.round(value * 100) / 100);
  const steps = `${game.record._steps} ${world.numPlayers > 1 ? "moves" : "steps"}`;
  if (!game.isOver) {
    if (world.numPlayers === 1) return `Return ${shown(returns[0])} after ${steps}.`;
    if (session.isVisitorsTurn) return "Your move.";
    return visitor === EVERYONE ? `Player ${(game.actors[0] ?? 0) + 1} is to move.` : "The network is to move.";
  }
  if (world.numPlayers === 1) return `Over: return ${shown(returns[0])} after ${steps}.`;
  const best = Math.max(...returns);
  const isDraw = returns.every((one) => one === best);
  const score = ` ${returns.map(shown).join(" : ")} after ${steps}.`;
  if (isDraw) return `A draw.${score}`;
  if (visitor === EVERYONE) return `Player ${returns.indexOf(best) + 1} wins.${score}`;
  return (returns[visitor] === best ? "You win!" : "The network wins.") + score;
}
