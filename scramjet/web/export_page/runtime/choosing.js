/** From logits to actions: how likely each choice is, and which one is taken. */

const MASKED_LOGIT = -1e9;

/** Softmax of some logits, those of illegal choices left out; a temperature of 0 is not for here. */
function softmax(logits, temperature = 1) {
  const highest = Math.max(...logits);
  const weights = Array.from(logits, (logit) => Math.exp((logit - highest) / temperature));
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / total);
}

/** Logits with those of illegal choices so low that their probability is 0. */
function legalLogits(logits, mask) {
  return mask === null ? logits : logits.map((logit, k) => ($.truth(mask.read(k)) ? logit : MASKED_LOGIT));
}

/** One choice: the likeliest at temperature 0, else drawn with `random`, a function to [0, 1). */
function chosen(logits, temperature, random) {
  if (temperature <= 0) return logits.reduce((best, logit, k, all) => (logit > all[best] ? k : best), 0);
  const probabilities = softmax(logits, temperature);
  let point = random();
  const last = probabilities.findLastIndex((probability) => probability > 0);
  return probabilities.findIndex((probability, k) => (point -= probability) < 0 || k === last);
}

/** A standard normal number (Box and Muller 1958). */
function normalNumber(random) {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

/** The action of a policy for logits: a number, or a list of several. */
function policyAction(distribution, logits, mask, temperature, random) {
  const legal = legalLogits(logits, mask);
  if (distribution.kind === "choice") return chosen(legal, temperature, random);
  if (distribution.kind === "choices") {
    let at = 0;
    return distribution.sizes.map((size) => chosen(legal.slice(at, (at += size)), temperature, random));
  }
  const { size, low, high, centre, halfWidth, squashes, scales } = distribution;
  return $.range(size).map((k) => {
    const spread = Math.exp(Math.min(Math.max(logits[size + k], -10), 2));
    let value = logits[k] + (temperature > 0 ? temperature * spread * normalNumber(random) : 0);
    if (squashes) value = 0.5 * (low[k] + high[k]) + 0.5 * (high[k] - low[k]) * Math.tanh(value);
    else if (scales) value = centre[k] + halfWidth[k] * value;
    return Math.min(Math.max(value, low[k]), high[k]);
  });
}
