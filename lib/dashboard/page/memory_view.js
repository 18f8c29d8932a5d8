import { byId, element } from "./dom.js";
import { formatTime, messageOf } from "./format.js";

/** @typedef {import("../../base/records/memory.ts").MemoryView} MemoryRecord */

const SHOWN = 50;

/**
 * Creates the view of what the agent keeps between conversations: look through it, search it, and forget a part of it.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createMemoryView({ session }) {
  const lead = byId("memory-lead", HTMLElement);
  const list = byId("memory-list", HTMLElement);
  const more = byId("memory-more", HTMLButtonElement);
  const search = byId("memory-search", HTMLInputElement);
  let last = "";
  /** Lists that were asked for: only the last one counts */
  let asked = 0;

  async function load(after = "") {
    const number = ++asked;
    const query = search.value.trim();
    const place = after === "" ? "" : `&after=${encodeURIComponent(after)}`;
    const words = query === "" ? "" : `&query=${encodeURIComponent(query)}`;
    try {
      const found = await session.json(`v1/memory?limit=${SHOWN}${words}${place}`);
      if (number !== asked) return;
      last = found.last_id ?? "";
      more.hidden = !found.has_more;
      const items = found.data.map(toItem);
      if (after === "") list.replaceChildren(...items);
      else list.append(...items);
      lead.textContent = list.childElementCount > 0
        ? "What the agent keeps between conversations."
        : query === ""
        ? "The agent keeps nothing yet."
        : "Nothing that is kept has these words.";
    } catch (error) {
      if (number === asked) lead.textContent = `The memory cannot be shown: ${messageOf(error)}`;
    }
  }

  /** @param {MemoryRecord} record */
  function toItem({ namespace, key, value, tags, updated_at: time }) {
    const problem = element("p", { class: "field-error", role: "alert" });
    const name = namespace === "default" ? key : `${namespace}/${key}`;
    const button = element("button", { type: "button", "aria-label": `Forget ${name}` }, "Forget");
    const item = element(
      "li",
      {},
      element(
        "details",
        {},
        element("summary", {}, element("strong", {}, name), " ", element("span", { class: "hint" }, formatTime(time))),
        element("pre", { tabIndex: 0, "aria-label": `Value of ${name}` }, value),
        ...(tags.length === 0 ? [] : [element("p", { class: "hint" }, `Tags: ${tags.join(", ")}`)]),
        element("div", { class: "ask-buttons" }, button),
        problem,
      ),
    );
    button.addEventListener("click", async () => {
      if (button.textContent === "Forget") return void (button.textContent = "Forget for good");
      button.disabled = true;
      try {
        const which = `key=${encodeURIComponent(key)}&namespace=${encodeURIComponent(namespace)}`;
        await session.json(`v1/memory?${which}`, { method: "DELETE" });
        item.remove();
        byId("memory-title", HTMLElement).focus();
      } catch (error) {
        problem.textContent = messageOf(error);
        button.disabled = false;
      }
    });
    return item;
  }

  more.addEventListener("click", () => void load(last));
  search.addEventListener("change", () => void load());

  return {
    load: () => load(),
    /** Forgets everything, as on signing out. */
    reset() {
      asked++;
      list.replaceChildren();
      lead.textContent = "";
      search.value = "";
    },
  };
}
