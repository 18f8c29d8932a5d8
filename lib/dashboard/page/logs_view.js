import { byId, element } from "./dom.js";
import { formatTime, messageOf } from "./format.js";

/** @typedef {{ seq: number, time: string, level: string, message: string, fields: Record<string, unknown> }} LogLine */

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
      lead.textContent = "The last 1,000 lines since the gateway was started, newest first.";
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
      wanted.includes(line.level) && (requests.checked || line.message !== "Request")
    );
    list.replaceChildren(
      ...(shown.length > 0 ? shown.map(toItem) : [element("li", { class: "empty" }, "No such line")]),
    );
  }

  level.addEventListener("change", show);
  requests.addEventListener("change", show);

  return {
    load,
    poll: load,
    /** Forgets everything, as on signing out. */
    reset() {
      lines = [];
      isRefused = false;
      list.replaceChildren();
      lead.textContent = "";
    },
  };
}

/** @param {LogLine} line */
function toItem({ time, level, message, fields }) {
  const told = Object.entries(fields).filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`).join(" ");
  return element(
    "li",
    { class: "log-line", "data-level": level },
    element("span", { class: "hint" }, formatTime(time)),
    element("span", { class: "log-level" }, level),
    element("span", { class: "log-message" }, message),
    ...(told === "" ? [] : [element("code", {}, told)]),
  );
}
