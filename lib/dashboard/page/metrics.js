/** @typedef {{ name: string, labels: Record<string, string>, value: number }} Sample */

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
/** Routes that this page itself asks again and again, and probes: they would hide the real traffic */
const PROBES = new Set(["/metrics", "/health", "/health/live"]);

/**
 * The samples of a scrape in Prometheus text format; comments and broken lines are left out.
 * @param {string} text
 * @returns {Sample[]}
 */
export function parseMetrics(text) {
  return text.split("\n").flatMap((line) => {
    const match = line.startsWith("#") ? null : LINE.exec(line);
    if (match === null) return [];
    /** @type {Record<string, string>} */
    const labels = {};
    for (const [, name = "", value = ""] of (match[2] ?? "").matchAll(LABEL)) labels[name] = unescaped(value);
    return [{ name: match[1] ?? "", labels, value: toNumber(match[3] ?? "") }];
  });
}

/**
 * The sum over the samples of this name, without the probes' routes; NaN when there is none.
 * @param {readonly Sample[]} samples
 * @param {string} name
 * @param {(labels: Record<string, string>) => boolean} [accept]
 */
export function sumOf(samples, name, accept = () => true) {
  const found = samples.filter((sample) => sample.name === name && !isProbe(sample) && accept(sample.labels));
  return found.length === 0 ? NaN : found.reduce((sum, { value }) => sum + value, 0);
}

/** @param {Sample} sample */
export function isProbe(sample) {
  return PROBES.has(sample.labels["route"] ?? "");
}

/**
 * The value below which the share `quantile` of the observations made between two scrapes lies, in the histogram's unit,
 * interpolated within its bucket; NaN when there was none.
 * @param {readonly Sample[]} before
 * @param {readonly Sample[]} after
 * @param {string} name of the histogram
 * @param {number} quantile 0 to 1
 */
export function quantileBetween(before, after, name, quantile) {
  const earlier = bucketsOf(before, name);
  const buckets = [...bucketsOf(after, name)]
    .map(([bound, count]) => ({ bound, count: count - (earlier.get(bound) ?? 0) }))
    .sort((a, b) => a.bound - b.bound);
  const total = buckets.at(-1)?.count ?? 0;
  if (total <= 0) return NaN;
  let lower = { bound: 0, count: 0 };
  for (const bucket of buckets) {
    if (bucket.count >= quantile * total) {
      if (bucket.bound === Infinity) return lower.bound;
      const share = (quantile * total - lower.count) / Math.max(1, bucket.count - lower.count);
      return lower.bound + share * (bucket.bound - lower.bound);
    }
    lower = bucket;
  }
  return lower.bound;
}

/**
 * @param {readonly Sample[]} samples
 * @param {string} name
 * @returns {Map<number, number>} cumulative count by upper bound
 */
function bucketsOf(samples, name) {
  const buckets = new Map();
  for (const sample of samples) {
    if (sample.name !== `${name}_bucket` || isProbe(sample)) continue;
    const bound = toNumber(sample.labels["le"] ?? "");
    buckets.set(bound, (buckets.get(bound) ?? 0) + sample.value);
  }
  return buckets;
}

/** @param {string} text */
function toNumber(text) {
  if (text === "+Inf") return Infinity;
  if (text === "-Inf") return -Infinity;
  return Number(text);
}

/** @param {string} value */
function unescaped(value) {
  return value.replaceAll(/\\(.)/g, (_, character) => (character === "n" ? "\n" : character));
}
