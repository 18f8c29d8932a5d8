import { element } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 56;
const PAD = 3;
/** Values the width is made for while there are few, so that a young chart is not a speck at its right edge */
const FEW = 20;

/**
 * A small chart with a title and the newest value. A screen reader hears one sentence in its place.
 * @param {{ title: string, format: (value: number) => string, capacity: number }} options
 *   `capacity`: how many values stand side by side
 */
export function createSparkline({ title, format, capacity }) {
  const line = drawn("path", { class: "spark-line" });
  const area = drawn("path", { class: "spark-area" });
  const svg = drawn("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    class: "spark",
  });
  svg.append(area, line);
  const now = element("span", { class: "chart-now" }, "-");
  const peak = element("span", { class: "chart-peak" });
  const root = element(
    "figure",
    { class: "chart" },
    element("figcaption", {}, title),
    element("p", { class: "chart-figures" }, now, peak),
    svg,
  );

  return {
    root,
    /** @param {readonly number[]} values oldest first; NaN leaves a gap */
    show(values) {
      const known = values.filter(Number.isFinite);
      const highest = Math.max(0, ...known);
      const last = values.at(-1) ?? NaN;
      now.textContent = format(last);
      peak.textContent = known.length === 0 ? "" : `peak ${format(highest)}`;
      svg.setAttribute(
        "aria-label",
        known.length === 0 ? `${title}: no data yet` : `${title}: now ${format(last)}, highest ${format(highest)}`,
      );
      const points = toPoints(values, capacity, highest);
      line.setAttribute("d", points.map((run) => `M${run.map(([x, y]) => `${x} ${y}`).join("L")}`).join(""));
      area.setAttribute("d", points.map((run) => closed(run)).join(""));
    },
  };
}

/**
 * Runs of neighbouring points, split at gaps; the newest value stands at the right edge.
 * @param {readonly number[]} values
 * @param {number} capacity
 * @param {number} highest
 * @returns {[number, number][][]}
 */
function toPoints(values, capacity, highest) {
  const shown = values.slice(-capacity);
  const step = WIDTH / (Math.max(FEW, shown.length) - 1);
  /** @type {[number, number][][]} */
  const runs = [[]];
  shown.forEach((value, i) => {
    if (!Number.isFinite(value)) return void runs.push([]);
    const x = WIDTH - (shown.length - 1 - i) * step;
    const y = HEIGHT - PAD - (highest === 0 ? 0 : value / highest) * (HEIGHT - 2 * PAD);
    runs.at(-1)?.push([Math.round(x * 10) / 10, Math.round(y * 10) / 10]);
  });
  return runs.filter((run) => run.length > 0);
}

/** @param {[number, number][]} run */
function closed(run) {
  const first = run[0] ?? [0, 0];
  const last = run.at(-1) ?? first;
  return `M${first[0]} ${HEIGHT}L${run.map(([x, y]) => `${x} ${y}`).join("L")}L${last[0]} ${HEIGHT}Z`;
}

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 */
function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
