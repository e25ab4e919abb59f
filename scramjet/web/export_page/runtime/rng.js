/** Random draws of rules: Philox4x32-10 (Salmon et al. 2011), the same numbers as `scramjet.envs.rng` gives. */

/** The high 32 bits of the product of two 32-bit words, by halves of 16 bits. */
function highWord(a, b) {
  const [aLow, aHigh, bLow, bHigh] = [a & 0xffff, a >>> 16, b & 0xffff, b >>> 16];
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const other = aLow * bHigh + (middle & 0xffff);
  return (aHigh * bHigh + Math.floor(middle / 0x10000) + Math.floor(other / 0x10000)) >>> 0;
}

$.philox = (counter, key) => {
  let [c0, c1, c2, c3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; round++) {
    const [low0, low1] = [Math.imul(0xd2511f53, c0) >>> 0, Math.imul(0xcd9e8d57, c2) >>> 0];
    const [high0, high1] = [highWord(0xd2511f53, c0), highWord(0xcd9e8d57, c2)];
    [c0, c1, c2, c3] = [(high1 ^ c1 ^ k0) >>> 0, low1, (high0 ^ c3 ^ k1) >>> 0, low0];
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  return [c0, c1, c2, c3];
};

$.draw_words = (s) => {
  const draw = s._draw;
  s._draw = draw + 1;
  return $.philox([draw >>> 0, s._index >>> 0, s._episode >>> 0, 0], s.$key);
};

/** 53 random bits of two words, as a number in [0, 2**53). */
function bits53(high, low) {
  return high * 2 ** 21 + (low >>> 11);
}

$.uniform = (s, low = 0, high = 1) => {
  const [w0, w1] = $.draw_words(s);
  return low + (high - low) * (bits53(w0, w1) * 2 ** -53);
};

$.randint = (s, n) => {
  const lowWord = (word) => Math.imul(word, n) >>> 0;
  let word = $.draw_words(s)[0];
  if (lowWord(word) < n) {
    const threshold = (2 ** 32 - n) % n;
    while (lowWord(word) < threshold) word = $.draw_words(s)[0];
  }
  return highWord(word, n >>> 0);
};

$.normal = (s, mean = 0, std = 1) => {
  const [w0, w1, w2, w3] = $.draw_words(s);
  const radius = Math.sqrt(-2 * Math.log((bits53(w0, w1) + 1) * 2 ** -53));
  return mean + std * radius * Math.cos(2 * Math.PI * (bits53(w2, w3) * 2 ** -53));
};
