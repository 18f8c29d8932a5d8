import { byId, element } from "./dom.js";
import { formatBytes, formatDuration, formatMs, formatNumber } from "./format.js";
import { isProbe, parseMetrics, quantileBetween, sumOf } from "./metrics.js";
import { createSparkline } from "./sparkline.js";

/** @typedef {import("./metrics.js").Sample} Sample */
/** @typedef {import("../../base/records/gateway_status.ts").HealthReply} HealthReply */
/** @typedef {import("../../base/records/gateway_status.ts").StatusReply} StatusReply */

const KEPT = 60;
/** Seconds: over less, a rate is noise */
const MIN_STEP = 1;
const REQUESTS = "postern_http_requests_total";
const DURATION = "postern_http_request_duration_seconds";

/** Health, live figures from /metrics, routes and models. */
export function createStatusView() {
  const charts = [
    chart("Requests a second", formatNumber, (before, after, seconds) => rate(before, after, REQUESTS, seconds)),
    chart(
      "Response time, p95",
      (value) => formatMs(value * 1000),
      (before, after) => quantileBetween(before, after, DURATION, 0.95),
    ),
    chart(
      "Tokens a second",
      formatNumber,
      (before, after, seconds) => rate(before, after, "postern_provider_tokens_total", seconds),
    ),
    chart("Memory", formatBytes, (_, after) => endingWith(after, "process_resident_memory_bytes")),
  ];
  byId("charts", HTMLElement).append(...charts.map(({ line }) => line.root));
  /** @type {{ at: number, samples: Sample[] } | undefined} */
  let last;

  return {
    /**
     * @param {HealthReply | undefined} health undefined when there was no reply
     * @param {StatusReply | undefined} told undefined when there was no reply
     */
    showHealth(health, told) {
      byId("status-lead", HTMLElement).textContent = stateSentence(health?.status);
      if (health === undefined) return;
      const uptime = health.uptime_seconds;
      const facts = [
        ["Address", location.host],
        ["Version", health.version],
        ["Up for", uptime === undefined ? undefined : formatDuration(uptime)],
        ...(told === undefined ? [] : toldFacts(told)),
      ];
      byId("facts", HTMLElement).replaceChildren(
        ...facts.flatMap(([name, value]) => value === undefined ? [] : [fact(name, String(value))]),
      );
    },
    /** @param {string} text of /metrics */
    showMetrics(text) {
      const samples = parseMetrics(text);
      const at = performance.now();
      const before = last;
      showNumbers(samples);
      showRoutes(samples);
      if (before !== undefined && at - before.at < MIN_STEP * 1000) return;
      last = { at, samples };
      for (const { line, values, read } of charts) {
        values.push(before === undefined ? NaN : read(before.samples, samples, (at - before.at) / 1000));
        if (values.length > KEPT) values.shift();
        line.show(values);
      }
    },
    /** @param {readonly { id: string, owned_by: string }[]} models @param {string | undefined} problem */
    showModels(models, problem) {
      const items = models.map(({ id, owned_by }) => element("li", {}, element("code", {}, id), ` ${owned_by}`));
      byId("models", HTMLElement).replaceChildren(
        ...(items.length > 0 ? items : [element("li", {}, problem ?? "The provider lists no model")]),
      );
    },
  };
}

/**
 * @param {string} title
 * @param {(value: number) => string} format
 * @param {(before: Sample[], after: Sample[], seconds: number) => number} read
 */
function chart(title, format, read) {
  /** @type {number[]} */
  const values = [];
  return { line: createSparkline({ title, format, capacity: KEPT }), values, read };
}

/**
 * @param {Sample[]} before
 * @param {Sample[]} after
 * @param {string} name
 * @param {number} seconds
 */
function rate(before, after, name, seconds) {
  const difference = known(sumOf(after, name)) - known(sumOf(before, name));
  // A counter that went back belongs to a gateway that was restarted
  return difference < 0 ? NaN : difference / seconds;
}

/** @param {Sample[]} samples */
function showNumbers(samples) {
  const failed = sumOf(samples, REQUESTS, ({ status = "" }) => status.startsWith("5"));
  const numbers = [
    ["Requests", known(sumOf(samples, REQUESTS))],
    ["Server errors", known(failed)],
    // The scrape itself is one of them
    ["In flight", Math.max(0, known(sumOf(samples, "postern_http_requests_in_flight")) - 1)],
    ["Runs at work", known(sumOf(samples, "postern_runs_active"))],
    ["Sockets", known(sumOf(samples, "postern_ws_connections"))],
    ["Tool calls", known(sumOf(samples, "postern_tool_calls_total"))],
    ["Tokens", known(sumOf(samples, "postern_provider_tokens_total"))],
    ["Rate limited", known(sumOf(samples, "postern_rate_limited_total"))],
  ];
  byId("numbers", HTMLElement).replaceChildren(
    ...numbers.map(([name, value]) => fact(String(name), formatNumber(Number(value)))),
  );
}

/** @param {Sample[]} samples */
function showRoutes(samples) {
  /** @type {Map<string, { count: number, failed: number }>} */
  const routes = new Map();
  for (const sample of samples) {
    if (sample.name !== REQUESTS || isProbe(sample)) continue;
    const key = `${sample.labels["method"] ?? ""} ${sample.labels["route"] ?? ""}`;
    const row = routes.get(key) ?? { count: 0, failed: 0 };
    row.count += sample.value;
    if (Number(sample.labels["status"]) >= 400) row.failed += sample.value;
    routes.set(key, row);
  }
  const rows = [...routes].sort(([, a], [, b]) => b.count - a.count).map(([key, { count, failed }]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("code", {}, key)),
      element("td", {}, formatNumber(count)),
      element("td", { class: failed > 0 ? "bad" : "" }, formatNumber(failed)),
    )
  );
  const head = element(
    "tr",
    {},
    ...["Route", "Requests", "Refused or failed"].map((name) => element("th", { scope: "col" }, name)),
  );
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  byId("routes", HTMLElement).replaceChildren(
    rows.length > 0 ? table : element("p", { class: "empty" }, "No requests yet"),
  );
}

/**
 * @param {StatusReply} told
 * @returns {(string | undefined)[][]}
 */
function toldFacts({ workspace, provider, config }) {
  const waiting = config.needs_restart.join(", ");
  const problem = config.last_reload?.problem ?? undefined;
  return [
    ["Workspace", workspace],
    ["Provider", provider === null ? "none" : `${provider.name}/${provider.model}, since ${provider.reason}`],
    ["Needs a restart", waiting === "" ? undefined : waiting],
    ["Last change of the configuration", problem === undefined ? undefined : `refused: ${problem}`],
  ];
}

/** @param {string | undefined} status */
function stateSentence(status) {
  switch (status) {
    case undefined:
      return "The gateway does not answer; these are its last figures.";
    case "ok":
      return "The gateway is well.";
    case "degraded":
      return "The gateway answers, but its storage or its log cannot be written: see its log.";
    case "draining":
      return "The gateway is shutting down and finishes what it accepted.";
    default:
      return `The gateway says "${status}".`;
  }
}

/**
 * @param {string | undefined} name
 * @param {string} value
 */
function fact(name, value) {
  return element("div", {}, element("dt", {}, name ?? ""), element("dd", {}, value));
}

/**
 * @param {Sample[]} samples
 * @param {string} suffix
 */
function endingWith(samples, suffix) {
  return samples.find(({ name }) => name.endsWith(suffix))?.value ?? NaN;
}

/** @param {number} value */
function known(value) {
  return Number.isFinite(value) ? value : 0;
}
