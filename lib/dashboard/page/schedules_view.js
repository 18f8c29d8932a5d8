import { byId, element } from "./dom.js";
import { formatTime, messageOf } from "./format.js";

const SHOWN = 100;
const FIRINGS = 20;
const STATE_WORDS = new Map([["active", "Active"], ["paused", "Paused"], ["done", "Done"]]);
const FIRING_WORDS = new Map([
  ["started", "Started"],
  ["skipped", "Skipped"],
  ["missed", "Missed"],
  ["failed", "Failed"],
  ["checking", "Checking"],
  ["nothing_new", "Nothing new"],
]);
const OFF = "No schedule fires: the [cron] section of postern.toml has enabled = false.";

/** @typedef {import("../../base/records/schedule.ts").Firing} Firing */
/** @typedef {import("../../base/records/schedule.ts").Schedule} Schedule */

/**
 * The schedules: when each fires, what it does, what became of its firings; to pause, resume and fire one now.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createSchedulesView({ session }) {
  const lead = byId("schedules-lead", HTMLElement);
  const list = byId("schedules-list", HTMLElement);
  const note = byId("schedules-note", HTMLElement);

  async function load() {
    try {
      const [{ data }, { data: done }, tool] = await Promise.all([
        session.json(`v1/schedules?limit=${SHOWN}`),
        session.json(`v1/schedules?state=done&limit=${FIRINGS}`),
        // A token without the scope for tools sees the schedules all the same
        session.json("v1/tools/cron_list").catch(() => undefined),
      ]);
      /** @type {readonly Schedule[]} */
      const all = [...data, ...done];
      const words = data.length === 1 ? "1 schedule." : `${data.length} schedules.`;
      const none = "There is no schedule. Ask the agent for one, or see postern tool show cron_add.";
      lead.textContent = `${data.length === 0 ? none : words}${tool?.enabled === false ? ` ${OFF}` : ""}`;
      const isOpen = new Set([...list.querySelectorAll("details[open]")].map((each) => each.id));
      list.replaceChildren(...all.map((schedule) => toRow(schedule, isOpen)));
    } catch (error) {
      lead.textContent = `The schedules cannot be shown: ${messageOf(error)}`;
    }
  }

  /**
   * @param {Schedule} schedule
   * @param {ReadonlySet<string>} isOpen
   */
  function toRow(schedule, isOpen) {
    const { id, state, schedule: when, timezone, next_at: next, prompt, tool, input, last } = schedule;
    const what = tool === null ? prompt ?? "" : `${tool} ${JSON.stringify(input)}`;
    const history = element("ul", { class: "settled", "aria-label": `Firings of ${id}` });
    const details = element(
      "details",
      { id: `schedule-${id}`, class: "ask-always" },
      element("summary", {}, "Firings"),
      history,
    );
    details.addEventListener("toggle", () => {
      if (details.open) void showHistory(id, history);
    });
    details.open = isOpen.has(details.id);
    const paused = state === "paused";
    const buttons = state === "done" ? [] : [
      button("Run now", id, () => session.json(`v1/schedules/${encodeURIComponent(id)}/run`, { method: "POST" })),
      button(paused ? "Resume" : "Pause", id, () => callTool(paused ? "cron_resume" : "cron_pause", id)),
    ];
    return element(
      "li",
      { class: "schedule" },
      element("span", { class: "badge", "data-schedule": state }, STATE_WORDS.get(state) ?? state),
      element("strong", {}, id),
      element("span", {}, `${when} (${timezone})`),
      element("code", {}, what),
      element(
        "span",
        { class: "hint" },
        `${describeCheck(schedule)}${next === null ? "" : `Next: ${formatTime(next)}. `}${
          last === null ? "" : `Last: ${describe(last)}`
        }`,
      ),
      element("div", { class: "ask-buttons" }, ...buttons),
      details,
    );
  }

  /**
   * @param {string} label
   * @param {string} id
   * @param {() => Promise<unknown>} work
   */
  function button(label, id, work) {
    const made = element("button", { type: "button", "aria-label": `${label}: ${id}` }, label);
    made.addEventListener("click", async () => {
      made.disabled = true;
      try {
        await work();
        note.textContent = `${label}: ${id} - done.`;
      } catch (error) {
        note.textContent = `${label}: ${id} - ${messageOf(error)}`;
      }
      await load();
      byId("schedules-title", HTMLElement).focus();
    });
    return made;
  }

  /**
   * @param {string} name
   * @param {string} id
   */
  async function callTool(name, id) {
    const { output, is_error: isError } = await session.json(`v1/tools/${name}/call`, {
      method: "POST",
      body: { input: { id } },
    });
    if (isError) throw new Error(output);
  }

  /**
   * @param {string} id
   * @param {HTMLElement} place
   */
  async function showHistory(id, place) {
    try {
      const { data } = await session.json(`v1/schedules/${encodeURIComponent(id)}/history?limit=${FIRINGS}`);
      place.replaceChildren(
        ...data.map((/** @type {Firing} */ firing) => element("li", {}, describe(firing), ...linkOf(firing))),
      );
      if (data.length === 0) place.append(element("li", { class: "empty" }, "It has not fired yet."));
    } catch (error) {
      place.replaceChildren(element("li", { class: "empty" }, messageOf(error)));
    }
  }

  return {
    load,
    /** Forgets everything, as on signing out. */
    reset() {
      lead.textContent = "";
      note.textContent = "";
      list.replaceChildren();
    },
  };
}

/** @param {Schedule} schedule */
function describeCheck({ precheck, checked }) {
  if (precheck === undefined) return "";
  const call = `Precheck: ${precheck.tool} ${JSON.stringify(precheck.input)}`;
  switch (checked?.outcome) {
    case "woke":
      return `${call}, something new ${formatTime(checked.at)}. `;
    case "nothing_new":
      return `${call}, nothing new since ${formatTime(checked.since)}, last checked ${formatTime(checked.at)}. `;
    case "failed":
      return `${call}, failed ${formatTime(checked.at)}: ${checked.reason}. `;
    default:
      return `${call}. `;
  }
}

/** @param {Firing} firing */
function describe({ time, trigger, status, run_status: run, reason, run_error: failure }) {
  const outcome = run === null ? "" : `, its run is ${run.replaceAll("_", " ")}`;
  const why = reason ?? failure?.message ?? "";
  return `${FIRING_WORDS.get(status) ?? status} ${formatTime(time)}${
    trigger === "manual" ? " by a person" : ""
  }${outcome}${why === "" ? "." : `: ${why}`} `;
}

/** @param {Firing} firing */
function linkOf({ run_id: runId, check_run_id: checkId }) {
  const id = runId ?? checkId;
  return id === undefined ? [] : [element("a", { href: `#runs/${encodeURIComponent(id)}` }, "Run")];
}
