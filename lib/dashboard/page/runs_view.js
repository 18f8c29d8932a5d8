import { byId, element } from "./dom.js";
import { formatTime, messageOf } from "./format.js";
import { runName, statusBadge } from "./run_status.js";
import { createRunView } from "./run_view.js";

/** @typedef {import("./run_status.js").Run} Run */

const SHOWN = 50;
/** Sentences that stay for a screen reader */
const SPOKEN = 20;

/**
 * The runs, newest first, and one of them in full.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createRunsView({ session }) {
  const lead = byId("runs-lead", HTMLElement);
  const list = byId("runs-list", HTMLElement);
  const place = byId("run", HTMLElement);
  const filter = byId("runs-filter", HTMLSelectElement);
  const announcer = byId("runs-announcer", HTMLElement);
  /** @type {Map<string, ReturnType<typeof createRow>>} */
  const rows = new Map();
  /** @type {{ id: string, view: ReturnType<typeof createRunView> } | undefined} */
  let open;

  /** @param {string} text */
  const announce = (text) => {
    announcer.append(element("p", {}, text));
    if (announcer.childElementCount > SPOKEN) announcer.firstElementChild?.remove();
  };

  /** Lists that were asked for, and which of them is shown */
  let asked = 0;
  let shown = 0;

  /** @param {(path: string) => Promise<any>} [read] */
  async function load(read = session.json) {
    const number = ++asked;
    const wanted = filter.value;
    // Others were asked for meanwhile, or a later list is here already
    const isPassed = () => filter.value !== wanted || number < shown;
    try {
      const found = await read(`v1/runs?limit=${SHOWN}${wanted === "" ? "" : `&status=${wanted}`}`);
      if (found === undefined || isPassed()) return;
      shown = number;
      const { data, has_more: more } = found;
      show(data);
      const words = data.length === 1 ? "1 run." : `${data.length} runs.`;
      const text = data.length === 0
        ? "There is no such run. Runs are started over the API, by postern run start, channels and schedules."
        : more
        ? `The newest ${SHOWN} runs.`
        : words;
      if (lead.textContent !== text) lead.textContent = text;
    } catch (error) {
      if (isPassed()) return;
      lead.textContent = `The runs cannot be shown: ${messageOf(error)}`;
    }
  }

  /** Keeps the rows that stay, and the focus in them. @param {readonly Run[]} runs */
  function show(runs) {
    for (const [id, row] of rows) {
      if (runs.some((run) => run.id === id)) continue;
      row.root.remove();
      rows.delete(id);
    }
    let before = list.firstElementChild;
    for (const run of runs) {
      const row = rows.get(run.id) ?? createRow(run);
      rows.set(run.id, row);
      row.update(run);
      if (before === row.root) before = before.nextElementSibling;
      else list.insertBefore(row.root, before);
    }
  }

  filter.addEventListener("change", () => void load());

  function closeRun() {
    open?.view.close();
    open = undefined;
    place.replaceChildren();
    announcer.replaceChildren();
  }

  return {
    load,
    /** @param {string} id of the run to show in full; empty shows the list */
    open(id) {
      byId("runs-all", HTMLElement).hidden = id !== "";
      place.hidden = id === "";
      lead.hidden = id !== "";
      if (open?.id === id) return;
      closeRun();
      if (id === "") return;
      const view = createRunView({ session, id, announce });
      open = { id, view };
      place.append(view.root);
      view.focus();
    },
    async poll() {
      if (open !== undefined) await open.view.poll();
      else await load(session.poll);
    },
    /** Forgets everything, as on signing out. */
    reset() {
      closeRun();
      rows.clear();
      list.replaceChildren();
      lead.textContent = "";
    },
  };
}

/** @param {Run} run */
function createRow({ id }) {
  const badge = element("span", {});
  const about = element("span", { class: "run-about" });
  const time = element("span", { class: "hint" });
  const name = element("span", {});
  const link = element(
    "a",
    { class: "run-name", href: `#runs/${encodeURIComponent(id)}` },
    name,
    " ",
    element("code", {}, id),
  );
  let shown = "";
  return {
    root: element("li", {}, badge, link, about, time),
    /** @param {Run} run */
    update(run) {
      const outcome = run.error === null ? run.result ?? "" : run.error.message;
      const next = JSON.stringify([run.status, run.waiting_for, run.message, outcome, run.created_at]);
      if (next === shown) return;
      shown = next;
      badge.replaceChildren(statusBadge(run));
      name.textContent = runName(run);
      about.textContent = outcome;
      time.textContent = `${run.kind}, ${formatTime(run.created_at)}`;
    },
  };
}
