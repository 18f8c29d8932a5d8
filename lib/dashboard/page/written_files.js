import { element } from "./dom.js";
import { formatSize, messageOf } from "./format.js";

/** Time that a browser gets to begin saving a file */
const KEPT_MS = 60_000;

/** @typedef {Extract<import("../../base/records/agent_event.ts").AgentEvent, { type: "tool_end" }>} ToolEnd */

/**
 * Files that the tools of a run wrote, each with a button that saves it.
 * @param {{ session: import("./session.js").Session, path: string }} options `path` is the address of the run
 */
export function createWrittenFiles({ session, path }) {
  const list = element("ul", { class: "settled", "aria-label": "Files of the run" });
  const problem = element("p", { class: "field-error", role: "alert" });
  const root = element("div", { hidden: true }, element("h3", {}, "Files"), list, problem);

  /**
   * @param {string} id
   * @param {string} name
   */
  async function save(id, name) {
    problem.textContent = "";
    try {
      const reply = await session.request(`${path}/files/${id}/content`);
      const address = URL.createObjectURL(await reply.blob());
      element("a", { href: address, download: name }).click();
      // Some browsers read it only after the click
      setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
    } catch (error) {
      problem.textContent = messageOf(error);
    }
  }

  return {
    root,
    /** @param {ToolEnd} event */
    show({ seq, tool, files = [], files_dropped: dropped = 0 }) {
      root.hidden &&= files.length === 0;
      list.append(...files.map(({ path: name, bytes, sha256 }, at) =>
        element(
          "li",
          { class: "file-row" },
          element("code", { title: sha256 === null ? "" : `SHA-256 ${sha256}` }, name),
          element("span", { class: "hint" }, `${bytes === null ? "removed" : formatSize(bytes)} by ${tool}`),
          ...(bytes === null ? [] : [element("button", {
            type: "button",
            "aria-label": `Save ${name}`,
            onclick: () => void save(`${seq}-${at}`, name.slice(name.lastIndexOf("/") + 1)),
          }, "Save")]),
        )
      ));
      if (dropped > 0) list.append(element("li", { class: "hint" }, `and ${dropped} more`));
    },
    clear() {
      list.replaceChildren();
      root.hidden = true;
    },
  };
}
