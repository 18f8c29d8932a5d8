import { byId, element } from "./dom.js";
import { exactLine } from "./exact_text.js";
import { messageOf } from "./format.js";

/**
 * @typedef {(label: string, question: readonly Node[], work: (() => Promise<void>) | undefined) => void} Ask puts a question in the
 *   place of a row's buttons. Without `work` it can only be cancelled
 */

/**
 * The list of one kind of extension (plugins, skills, MCP servers): the line above it, its rows, and what came of a change. The page has
 * elements with the ids `<id>-title`, `<id>-lead`, `<id>-note` and `<id>-list`.
 * @param {{
 *   id: string,
 *   things: string,
 *   read: () => Promise<{ lead: string, rows: readonly HTMLElement[] }>,
 * }} options `things` is what messages call them
 */
export function createExtensionList({ id, things, read }) {
  const lead = byId(`${id}-lead`, HTMLElement);
  const list = byId(`${id}-list`, HTMLElement);
  const note = byId(`${id}-note`, HTMLElement);

  /** Shows what there is now. Open rows stay open, and the focus stays on its row. */
  async function load() {
    try {
      const { lead: words, rows } = await read();
      lead.textContent = words;
      const open = [...list.querySelectorAll("details[open]")].map((row) => row.id);
      const summary = document.activeElement?.closest("summary");
      const focused = list.contains(summary ?? null) ? summary?.parentElement?.id : undefined;
      list.replaceChildren(...rows.map((row) => row instanceof HTMLLIElement ? row : element("li", {}, row)));
      list.hidden = rows.length === 0;
      for (const row of list.querySelectorAll("details")) {
        row.open = open.includes(row.id);
        if (row.id === focused) row.querySelector("summary")?.focus();
      }
    } catch (error) {
      lead.textContent = `The ${things} cannot be shown: ${messageOf(error)}`;
    }
  }

  return {
    load,
    /**
     * Does a change, says what came of it, and shows the list as it is now.
     * @param {string} label
     * @param {() => Promise<unknown>} work
     */
    async change(label, work) {
      note.textContent = `${label} ...`;
      try {
        await work();
        note.textContent = `${label}: done.`;
      } catch (error) {
        note.textContent = `${label}: ${messageOf(error)}`;
      }
      await load();
      byId(`${id}-title`, HTMLElement).focus();
    },
    /** @param {string} words */
    say(words) {
      note.textContent = words;
    },
    /** Forgets everything, as on signing out. */
    reset() {
      lead.textContent = "";
      note.textContent = "";
      list.replaceChildren();
    },
  };
}

/**
 * A row that opens. `why` says why the extension is off; empty: nothing is said.
 * @param {string} id
 * @param {{ on: boolean, name: string, badge: HTMLElement, description: string, why: string }} summary
 * @param {readonly Node[]} body
 */
export function toRow(id, { on, name, badge, description, why }, body) {
  return element(
    "details",
    { id, class: "tool-info" },
    element(
      "summary",
      {},
      element("span", { class: "switch", "data-on": String(on), "aria-hidden": "true" }),
      element("span", { class: "tool-name" }, exactLine(name)),
      badge,
      description === "" ? "" : element("span", { class: "tool-description" }, exactLine(description)),
      why === "" ? "" : element("span", { class: "tool-why" }, exactLine(why)),
    ),
    element("div", { class: "tool-body" }, ...body),
  );
}

/**
 * The buttons of one row. A question may take their place; cancelling it brings them back.
 * @param {string} name of the extension, which the labels for screen readers end with
 * @param {(ask: Ask) => readonly HTMLElement[]} toButtons
 */
export function toChoices(name, toButtons) {
  const place = element("div", { class: "ask-buttons" });
  const start = () => place.replaceChildren(...toButtons(ask));
  /** @type {Ask} */
  function ask(label, question, work) {
    const no = button("Cancel", name, start);
    const yes = work === undefined ? [] : [button(label, name, work)];
    for (const each of yes) each.className = "primary";
    place.replaceChildren(...question, ...yes, no);
    // A key that is pressed too long must not answer
    no.focus();
  }
  start();
  return place;
}

/**
 * A button that rests while its work is under way.
 * @param {string} label
 * @param {string} name
 * @param {() => void | Promise<void>} work
 */
export function button(label, name, work) {
  const made = element("button", { type: "button", "aria-label": `${label}: ${name}` }, label);
  made.addEventListener("click", async () => {
    made.disabled = true;
    await work();
    made.disabled = false;
  });
  return made;
}

/**
 * A titled list of lines, whose text is somebody else's. Nothing where there is no line.
 * @param {string} title
 * @param {readonly string[]} lines
 */
export function toLines(title, lines) {
  if (lines.length === 0) return [];
  return [
    element("p", { class: "tool-label" }, title),
    element("ul", { class: "ask-files" }, ...lines.map((line) => element("li", {}, exactLine(line)))),
  ];
}
