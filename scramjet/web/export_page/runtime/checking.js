/** Plays a recorded game again and says where this page differs from the Python that recorded it. */

const TOLERANCE = 1e-6;
const NETWORK_TOLERANCE = 1e-3;

/** A sum in which every number has a weight by its place: numbers that differ or change places give another sum. */
function weightedSum(values) {
  return values.reduce((sum, value, k) => sum + Number(value) * ((k % 97) + 1), 0);
}

function observationNumbers(obs) {
  return obs instanceof NdArray ? obs.values() : Object.values(obs).flatMap(observationNumbers);
}

function recordNumbers(game) {
  const fields = game.world.layout.fields.filter(({ name }) => name !== "_seed");
  return fields.flatMap(({ name }) => {
    const value = game.record[name];
    return value instanceof NdArray ? value.values() : [value];
  });
}

function isClose(a, b, tolerance) {
  return Math.abs(a - b) <= tolerance * (1 + Math.abs(a));
}

/** What a recorded step says of a position, compared with the game here; a text on the first difference, or null. */
function positionDifference(game, network, states, recorded) {
  if (!isClose(recorded.record, weightedSum(recordNumbers(game)), TOLERANCE)) return "the state of the game differs";
  for (const seen of recorded.players) {
    const obs = game.observation(seen.player);
    if (!isClose(seen.obs, weightedSum(observationNumbers(obs)), TOLERANCE)) return "an observation differs";
    const mask = game.mask(seen.player);
    if (seen.mask !== null && seen.mask !== weightedSum(mask.values())) return "the legal actions differ";
    const output = network.forward(obs, states[seen.player]);
    states[seen.player] = output.state;
    const isSame = seen.logits.every((logit, k) => isClose(logit, output.logits[k], NETWORK_TOLERANCE));
    const isNear = Math.abs(seen.value - output.value) <= NETWORK_TOLERANCE * (1 + Math.abs(seen.value) + network.valueScale);
    if (!isSame || !isNear) return "the network's answer differs";
  }
  return null;
}

/** A text on the first difference between a recorded game and the same game here, or null. */
function gameDifference(game, network, recorded) {
  const fresh = () => $.range(game.world.numPlayers).map(() => network.initialState);
  game.begin(recorded.key);
  let states = fresh();
  for (const [number_, step] of recorded.steps.entries()) {
    const difference = positionDifference(game, network, states, step);
    if (difference !== null) return `step ${number_}: ${difference}`;
    const { rewards, terminated, truncated } = game.step(step.actions);
    const isSame = step.rewards.every((reward, k) => isClose(reward, rewards[k], TOLERANCE));
    if (!isSame) return `step ${number_}: the rewards differ`;
    if (!$.eq(step.terminated, terminated) || !$.eq(step.truncated, truncated)) return `step ${number_}: its end differs`;
    if (game.isOver) {
      game.beginNext();
      states = fresh();
    }
  }
  return null;
}
