/**
 * Metrics counted by hand and rendered as Prometheus text 0.0.4 (DESIGN.md section 10).
 *
 * A series is resolved once by its labels and then counted without a look-up. The number of series per metric is bounded:
 * past `MAX_SERIES` new label values are counted under `other`, so that no client can fill the memory.
 * Source: https://prometheus.io/docs/instrumenting/exposition_formats/
 */
const MAX_SERIES = 500;

export interface Counter {
  add(by?: number): void;
}
export interface Gauge {
  set(value: number): void;
  add(by: number): void;
}
export interface Histogram {
  /** @param value in the metric's unit, as its name says (seconds) */
  observe(value: number): void;
}

/** A metric with labels: `with` gives the series of these label values, in the order of the label names. */
export interface Family<T> {
  with(...values: readonly string[]): T;
}

export interface Metrics {
  counter(name: string, help: string, labels?: readonly string[]): Family<Counter>;
  gauge(name: string, help: string, labels?: readonly string[]): Family<Gauge>;
  /** Read at each scrape */
  gaugeOf(name: string, help: string, read: () => number): void;
  /** Read at each scrape; must never go down */
  counterOf(name: string, help: string, read: () => number): void;
  histogram(
    name: string,
    help: string,
    options: { readonly labels?: readonly string[]; readonly buckets: readonly number[] },
  ): Family<Histogram>;
  /** The whole registry as text, sorted by name, ending with a newline */
  render(): string;
}

export const DURATION_BUCKETS_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120] as const;

interface Registered {
  readonly header: string;
  render(): string;
}

/** An empty registry. Registering a name twice throws TypeError. */
export function createMetrics(): Metrics {
  const registered = new Map<string, Registered>();
  /** By name; undefined once another was registered */
  let sorted: readonly Registered[] | undefined;
  const register = (name: string, kind: string, help: string, render: () => string) => {
    if (registered.has(name)) throw new TypeError(`Metric "${name}" is registered twice`);
    sorted = undefined;
    registered.set(name, { header: `# HELP ${name} ${help}\n# TYPE ${name} ${kind}\n`, render });
  };
  const value = (name: string, kind: "counter" | "gauge", help: string, labels: readonly string[]) => {
    const family = createFamily(labels, (rendered) => createValue(`${name}${rendered === "" ? "" : `{${rendered}}`} `));
    register(name, kind, help, () => renderAll(family.all()));
    if (labels.length === 0) family.with();
    return family;
  };
  return {
    counter: (name, help, labels = []) => value(name, "counter", help, labels),
    gauge: (name, help, labels = []) => value(name, "gauge", help, labels),
    gaugeOf: (name, help, read) => register(name, "gauge", help, () => `${name} ${number(read())}\n`),
    counterOf: (name, help, read) => register(name, "counter", help, () => `${name} ${number(read())}\n`),
    histogram(name, help, { labels = [], buckets }) {
      const family = createFamily(labels, (rendered) => createHistogram(name, rendered, buckets));
      register(name, "histogram", help, () => renderAll(family.all()));
      return family;
    },
    render() {
      sorted ??= [...registered].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, metric]) => metric);
      let text = "";
      for (const metric of sorted) {
        const body = metric.render();
        if (body !== "") text += metric.header + body;
      }
      return text;
    },
  };
}

interface Rendered {
  render(): string;
}

function createFamily<T extends Rendered>(labels: readonly string[], create: (rendered: string) => T) {
  const series = new Map<string, T>();
  return {
    all: () => series.values(),
    with(...values: readonly string[]): T {
      if (values.length !== labels.length) {
        throw new TypeError(`Expected ${labels.length} label values, got ${values.length}`);
      }
      const key = values.length === 1 ? (values[0] as string) : values.join("\u0000"); // length was checked
      const found = series.get(key);
      if (found !== undefined) return found;
      const bounded = series.size < MAX_SERIES ? values : labels.map(() => "other");
      const boundedKey = bounded === values ? key : bounded.join("\u0000");
      const made = series.get(boundedKey) ??
        create(labels.map((label, i) => `${label}="${escapeLabel(bounded[i] ?? "")}"`).join(","));
      series.set(boundedKey, made);
      return made;
    },
  };
}

function createValue(prefix: string): Counter & Gauge & Rendered {
  let current = 0;
  return {
    add(by = 1) {
      current += by;
    },
    set(next) {
      current = next;
    },
    render: () => `${prefix}${number(current)}\n`,
  };
}

function createHistogram(name: string, labels: string, buckets: readonly number[]): Histogram & Rendered {
  const counts = new Array<number>(buckets.length + 1).fill(0);
  const comma = labels === "" ? "" : `${labels},`;
  const prefixes = [...buckets.map(number), "+Inf"].map((bound) => `${name}_bucket{${comma}le="${bound}"} `);
  const suffix = labels === "" ? "" : `{${labels}}`;
  let sum = 0;
  return {
    observe(observed) {
      sum += observed;
      let i = 0;
      // Both arrays are indexed within their length; past the last bound stands +Inf
      while (i < buckets.length && observed > (buckets[i] as number)) i++;
      counts[i] = (counts[i] as number) + 1;
    },
    render() {
      let text = "";
      let total = 0;
      for (let i = 0; i < prefixes.length; i++) text += `${prefixes[i]}${(total += counts[i] as number)}\n`;
      return `${text}${name}_sum${suffix} ${number(sum)}\n${name}_count${suffix} ${total}\n`;
    },
  };
}

function renderAll(series: Iterable<Rendered>): string {
  let text = "";
  for (const one of series) text += one.render();
  return text;
}

function number(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : "-Inf";
  return String(value);
}

function escapeLabel(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll("\n", "\\n").replaceAll('"', '\\"');
}
