import { byId, element } from "./dom.js";
import { formatTime, messageOf } from "./format.js";

/** @typedef {{ seq: number, time: string, level: string, message: string, fields: Record<string, unknown> }} LogLine */

/** Characters that never scroll, on the narrowest screen either */
const MAX_STILL = 200;
/** As many as the gateway keeps */
const KEPT = 1000;

/**
 * The last lines of the gateway's log, newest first, which grows while it is shown.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createLogsView({ session }) {
  const lead = byId("logs-lead", HTMLElement);
  const list = byId("logs-list", HTMLElement);
  const level = byId("logs-level", HTMLSelectElement);
  const requests = byId("logs-requests", HTMLInputElement);
  /** Newest first @type {LogLine[]} */
  let lines = [];
  /** Run whose lines alone are shown; empty: all are */
  let runId = "";
  let isRefused = false;
  let isAsking = false;

  async function load() {
    if (isRefused || isAsking) return;
    isAsking = true;
    try {
      const { data } = await session.json(`v1/logs?since=${lines[0]?.seq ?? 0}`);
      if (data.length > 0 || lines.length === 0) {
        lines = [...data, ...lines].slice(0, KEPT);
        show();
      }
      showLead();
    } catch (error) {
      // Not asked for again: each refusal is in the gateway's audit
      isRefused = /** @type {{ status?: number }} */ (error).status === 403;
      lead.textContent = `The log cannot be shown: ${messageOf(error)}`;
    } finally {
      isAsking = false;
    }
  }

  function show() {
    const levels = ["error", "warn", "info", "debug"];
    const wanted = levels.slice(0, levels.indexOf(level.value) + 1);
    const shown = lines.filter((line) =>
      wanted.includes(line.level) &&
      (runId === "" ? requests.checked || line.message !== "Request" : line.fields["run_id"] === runId)
    );
    list.replaceChildren(
      ...(shown.length > 0 ? shown.map(toItem) : [element("li", { class: "empty" }, "No such line")]),
    );
  }

  function showLead() {
    if (runId === "") {
      lead.textContent = "The last 1,000 lines since the gateway was started, newest first.";
    } else if (lead.dataset["run"] !== runId) {
      const [run, all] = [toRun(runId, runId), element("a", { href: "#logs" }, "All lines")];
      lead.replaceChildren("Of the last 1,000 lines, those that name the run ", run, ". ", all);
    }
    lead.dataset["run"] = runId;
  }

  level.addEventListener("change", show);
  requests.addEventListener("change", show);

  return {
    load,
    poll: load,
    /** @param {string} id of the run whose lines alone are shown; empty: all are */
    open(id) {
      if (runId === id) return;
      runId = id;
      show();
    },
    /** Forgets everything, as on signing out. */
    reset() {
      lines = [];
      runId = "";
      isRefused = false;
      list.replaceChildren();
      lead.textContent = "";
    },
  };
}

/**
 * @param {string} id
 * @param {string} words
 */
function toRun(id, words) {
  return element("a", { href: `#runs/${encodeURIComponent(id)}` }, words);
}

/** @param {LogLine} line */
function toItem({ time, level, message, fields }) {
  const told = Object.entries(fields).filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ");
  const run = fields["run_id"];
  return element(
    "li",
    { class: "log-line", "data-level": level },
    element("span", { class: "hint" }, formatTime(time)),
    element("span", { class: "log-level" }, level),
    element("span", { class: "log-message" }, message, ...(typeof run === "string" ? [" ", toRun(run, "Run")] : [])),
    // A long one scrolls, by keyboard too
    ...(told === "" ? [] : [element("code", told.length > MAX_STILL ? { tabIndex: 0 } : {}, told)]),
  );
}
