import process from "node:process";
import type { Clock } from "../clock.ts";

/**
 * Metrics counted by hand and rendered as Prometheus text 0.0.4 (docs/design/observability.md "Metrics").
 *
 * A series is resolved once by its labels and then counted without a look-up. The number of series per metric is bounded:
 * past `MAX_SERIES`, more than one client can bring about, new label values count under `other`, so that no client can fill the memory.
 * Source: https://prometheus.io/docs/instrumenting/exposition_formats/
 */
const MAX_SERIES = 2_000;

/** Number that only grows. `add` adds 1 unless it is given another number. */
export interface Counter {
  add(by?: number): void;
}
/** Number that goes up and down. */
export interface Gauge {
  set(value: number): void;
  add(by: number): void;
}
/** Counts of values by size, with their sum. */
export interface Histogram {
  /** @param value in the metric's unit, as its name says (seconds) */
  observe(value: number): void;
}

/** A metric with labels: `with` gives the series of these label values, in the order of the label names. */
export interface Family<T> {
  with(...values: readonly string[]): T;
}

/** Registry of the metrics of one gateway. */
export interface Metrics {
  /** @param known label values whose series stand at 0 from the start, so that a rate sees the first event */
  counter(
    name: string,
    help: string,
    labels?: readonly string[],
    known?: readonly (readonly string[])[],
  ): Family<Counter>;
  gauge(name: string, help: string, labels?: readonly string[]): Family<Gauge>;
  /** Adds a gauge that is read at each scrape */
  gaugeOf(name: string, help: string, read: () => number): void;
  /** Adds a counter that is read at each scrape, and that must never go down */
  counterOf(name: string, help: string, read: () => number): void;
  histogram(
    name: string,
    help: string,
    options: { readonly labels?: readonly string[]; readonly buckets: readonly number[] },
  ): Family<Histogram>;
  /** The whole registry as text, sorted by name, ending with a newline */
  render(): string;
}

/** Upper bounds of the buckets of durations, in seconds. Longer durations count in the bucket `+Inf`. */
export const DURATION_BUCKETS_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120] as const;

interface Registered {
  readonly header: string;
  render(): string;
}

/** Creates an empty registry. Registering a name twice throws TypeError. */
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
    counter(name, help, labels = [], known = []) {
      const family = value(name, "counter", help, labels);
      for (const values of known) family.with(...values);
      return family;
    },
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
  /** By the first label's value, then by the second's, and so on: joining the values costs more than all else */
  const root = new Branch<T>();
  const all: T[] = [];
  const make = (branch: Branch<T>, values: readonly string[]) => {
    const made = create(labels.map((label, i) => `${label}="${escapeLabel(values[i] ?? "")}"`).join(","));
    all.push(made);
    return (branch.series = made);
  };
  const find = (values: readonly string[]) => {
    let branch: Branch<T> | undefined = root;
    for (const value of values) branch = branch?.by?.get(value);
    return branch?.series;
  };
  const grow = (values: readonly string[]) => {
    let branch = root;
    for (const value of values) branch = branch.at(value);
    return branch;
  };
  return {
    all: () => all,
    with(...values: readonly string[]): T {
      if (values.length !== labels.length) {
        throw new TypeError(`Expected ${labels.length} label values, got ${values.length}`);
      }
      const found = find(values);
      if (found !== undefined) return found;
      const bounded = all.length < MAX_SERIES ? values : labels.map(() => "other");
      return find(bounded) ?? make(grow(bounded), bounded);
    },
  };
}

class Branch<T> {
  series: T | undefined;
  by: Map<string, Branch<T>> | undefined;

  at(value: string): Branch<T> {
    this.by ??= new Map();
    const known = this.by.get(value);
    if (known !== undefined) return known;
    const branch = new Branch<T>();
    this.by.set(value, branch);
    return branch;
  }
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
      counts[i] = (counts[i] ?? 0) + 1;
    },
    render() {
      let text = "";
      let total = 0;
      for (const [i, prefix] of prefixes.entries()) text += `${prefix}${(total += counts[i] ?? 0)}\n`;
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

const LAG_EVERY_MS = 500;

/**
 * Metrics of the process itself: version, start, memory, processor time and how late the event loop is.
 * @returns a function that ends the measuring
 */
export function observeProcess(
  metrics: Metrics,
  options: { readonly clock: Clock; readonly version: string },
): () => void {
  const { clock, version } = options;
  const startedSeconds = clock.now() / 1000;
  metrics.gauge("postern_build_info", "Version and runtime, always 1", ["version", "runtime"]).with(version, runtime())
    .set(1);
  metrics.gaugeOf("postern_process_start_time_seconds", "Start, seconds since the epoch", () => startedSeconds);
  const memory = metrics.gauge("postern_process_resident_memory_bytes", "Resident memory, read each 500 ms").with();
  memory.set(process.memoryUsage.rss());
  metrics.counterOf("postern_process_cpu_seconds_total", "User and system processor time", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  const lag = metrics.gauge("postern_event_loop_lag_seconds", "How late the last timer of 500 ms fired").with();
  let due = clock.monotonic() + LAG_EVERY_MS;
  const timer = clock.every(LAG_EVERY_MS, () => {
    const now = clock.monotonic();
    lag.set(Math.max(0, now - due) / 1000);
    due = now + LAG_EVERY_MS;
    // Not at the scrape: the system's answer costs more than all the rest of it
    memory.set(process.memoryUsage.rss());
  });
  return () => timer.clear();
}

function runtime(): string {
  return "deno" in process.versions ? `deno ${process.versions["deno"]}` : `node ${process.versions.node}`;
}
