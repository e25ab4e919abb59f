/** The canvas that pictures of worlds are drawn on: `scramjet.envs.drawing.Canvas`, shape by shape. */
class Canvas {
  constructor(width, height, background = [250, 248, 244]) {
    this.width = width;
    this.height = height;
    this.pixels = NdArray.zeros([height, width, 3], "uint8");
    const data = this.pixels.data;
    for (let k = 0; k < data.length; k++) data[k] = background[k % 3];
  }

  rectangle(left, top, right, bottom, color) {
    const along = (x, low, high) => clamp01(Math.min(x - low, high - x) + 0.5);
    this.blend(left, top, right, bottom, color, (x, y) => along(x, left, right) * along(y, top, bottom));
  }

  disc(center, radius, color) {
    const [cx, cy] = $.list(center);
    const coverage = (x, y) => clamp01(radius - distance(x - cx, y - cy) + 0.5);
    this.blend(cx - radius, cy - radius, cx + radius, cy + radius, color, coverage);
  }

  line(start, end, width, color) {
    const [[x1, y1], [x2, y2]] = [$.list(start), $.list(end)];
    const [dx, dy] = [x2 - x1, y2 - y1];
    const lengthSquared = Math.max(dx * dx + dy * dy, 1e-9);
    const coverage = (x, y) => {
      const along = clamp01(((x - x1) * dx + (y - y1) * dy) / lengthSquared);
      return clamp01(width / 2 - distance(x - x1 - along * dx, y - y1 - along * dy) + 0.5);
    };
    const half = width / 2;
    this.blend(Math.min(x1, x2) - half, Math.min(y1, y2) - half, Math.max(x1, x2) + half, Math.max(y1, y2) + half, color, coverage);
  }

  polygon(points, color, given = 0) {
    const inset = typeof given === "object" ? given.inset : given;
    const corners = $.list(points).map($.list);
    const edges = corners.map(([x, y], k) => {
      const next = corners[(k + 1) % corners.length];
      const [dx, dy] = [next[0] - x, next[1] - y];
      return { x, y, dx, dy, length: distance(dx, dy), cross: x * next[1] - y * next[0] };
    });
    const area = edges.reduce((sum, edge) => sum + edge.cross, 0) / 2;
    if (Math.abs(area) < 1e-9) return;
    const [sides, sign] = [edges.filter(({ length }) => length > 0), Math.sign(area)];
    const coverage = (px, py) => {
      let depth = Infinity;
      for (let k = 0; k < sides.length; k++) {
        const { x, y, dx, dy, length } = sides[k];
        depth = Math.min(depth, (sign * ((py - y) * dx - (px - x) * dy)) / length);
      }
      return clamp01(depth - inset + 0.5);
    };
    const [xs, ys] = [corners.map(([x]) => x), corners.map(([, y]) => y)];
    this.blend(Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys), color, coverage);
  }

  /** Mix a colour into the pixels of a box by their coverage; a pixel's middle is at halves. */
  blend(left, top, right, bottom, color, coverage) {
    const [red, green, blue] = $.list(color);
    const data = this.pixels.data;
    const fit = (value, most) => Math.min(Math.max(value, 0), most);
    const [firstX, lastX] = [fit(Math.floor(left) - 1, this.width), fit(Math.ceil(right) + 1, this.width)];
    const [firstY, lastY] = [fit(Math.floor(top) - 1, this.height), fit(Math.ceil(bottom) + 1, this.height)];
    for (let y = firstY; y < lastY; y++) {
      for (let x = firstX; x < lastX; x++) {
        const share = coverage(x + 0.5, y + 0.5);
        if (share <= 0) continue;
        const place = 3 * (y * this.width + x);
        data[place] = data[place] * (1 - share) + red * share + 0.5;
        data[place + 1] = data[place + 1] * (1 - share) + green * share + 0.5;
        data[place + 2] = data[place + 2] * (1 - share) + blue * share + 0.5;
      }
    }
  }
}

/** Math.hypot without its care for huge numbers, which takes ten times as long. */
function distance(x, y) {
  return Math.sqrt(x * x + y * y);
}

function clamp01(value) {
  return value < 0 ? 0 : value > 1 ? 1 : value;
}

$.Canvas = Canvas;
