import { byId, element } from "./dom.js";
import { messageOf } from "./format.js";
import { createToolOffer } from "./tool_offer.js";

/** @typedef {import("../../base/records/tool_info.ts").ToolInfo} Tool */

/**
 * The tools, those that are on before those that are off, each with the reason.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createToolsView({ session }) {
  const filter = byId("tools-filter", HTMLInputElement);
  const list = byId("tools-list", HTMLElement);
  const lead = byId("tools-lead", HTMLElement);
  /** @type {readonly Tool[]} */
  let tools = [];

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    const found = tools.filter(({ name, description }) => `${name} ${description}`.toLowerCase().includes(wanted));
    const on = found.filter(({ enabled }) => enabled);
    const off = found.filter(({ enabled }) => !enabled);
    list.replaceChildren(...group("On", on, enable), ...group("Off", off, enable));
    if (tools.length > 0 && found.length === 0) {
      list.append(element("p", { class: "empty" }, "No tool matches the filter"));
    }
    byId("tools-count", HTMLElement).textContent = wanted === "" ? "" : `${found.length} of ${tools.length} tools`;
  }

  /** @param {string} tool */
  async function enable(tool) {
    await session.json(`v1/tools/${encodeURIComponent(tool)}/enable`, { method: "POST" });
    await load();
    byId("tools-title", HTMLElement).focus();
    lead.textContent = `${tool} is on from the next message. ${lead.textContent}`;
  }

  async function load() {
    try {
      tools = (await session.json("v1/tools")).data;
      const on = tools.filter(({ enabled }) => enabled).length;
      lead.textContent = on === tools.length
        ? `All ${on} are on.`
        : `${on} of ${tools.length} are on. Each disabled item says how to enable it.`;
    } catch (error) {
      lead.textContent = `The tools cannot be shown: ${messageOf(error)}`;
    }
    show();
  }

  filter.addEventListener("input", show);

  return { load };
}

/**
 * @param {string} title
 * @param {readonly Tool[]} tools
 * @param {(tool: string) => Promise<unknown>} enable
 */
function group(title, tools, enable) {
  if (tools.length === 0) return [];
  return [
    element("h2", {}, `${title} `, element("span", { class: "count" }, String(tools.length))),
    element(
      "ul",
      { class: "tool-list" },
      ...tools.map((tool) =>
        element(
          "li",
          {},
          toDetails(tool),
          tool.turn_on === null ? "" : createToolOffer({ tool: tool.name, turn_on: tool.turn_on }, enable),
        )
      ),
    ),
  ];
}

/** @param {Tool} tool */
function toDetails(tool) {
  const schema = tool.input_schema === undefined ? "No schema" : JSON.stringify(tool.input_schema, null, 2);
  const why = tool.enabled ? "On" : tool.reason ?? "Off";
  return element(
    "details",
    { class: "tool-info" },
    element(
      "summary",
      {},
      element("span", { class: "switch", "data-on": String(tool.enabled), "aria-hidden": "true" }),
      element("span", { class: "tool-name" }, tool.name),
      element("span", { class: "badge", "data-access": tool.access }, tool.access),
      element("span", { class: "tool-description" }, tool.description),
      tool.enabled ? "" : element("span", { class: "tool-why" }, why),
    ),
    element(
      "div",
      { class: "tool-body" },
      element("p", {}, tool.description),
      element("p", { class: "hint" }, `${why}. Source: ${sourceOf(tool)}. Access: ${accessMeaning(tool.access)}.`),
      element("p", { class: "tool-label" }, "Input schema"),
      element("pre", { tabIndex: 0, "aria-label": `Input schema of ${tool.name}` }, schema),
    ),
  );
}

/** @param {Tool} tool */
function sourceOf({ source, origin }) {
  return origin === null ? source : `${origin} (${source})`;
}

/** @param {string} access */
function accessMeaning(access) {
  switch (access) {
    case "read":
      return "reads only";
    case "state":
      return "changes the agent's own records";
    case "write":
      return "can change the workspace or run programs";
    case "network":
      return "reaches other machines";
    default:
      return access;
  }
}
