import { byId, element } from "./dom.js";
import { exactLine } from "./exact_text.js";
import { formatTime } from "./format.js";

const MAX_BYTES = 67_108_864;
const STATES = new Map([["installed", "Installed"], ["enabled", "Enabled"], ["disabled", "Disabled"]]);
const SOURCES = new Map([
  ["package", "installed package"],
  ["user_dir", "your plugins folder"],
  ["project", ".plugins of the workspace"],
  ["workspace", "plugins of the workspace"],
  ["dev", "postern plugin dev"],
]);

/**
 * @typedef {{
 *   id: string,
 *   version: string | null,
 *   description: string | null,
 *   kind: string | null,
 *   state: string,
 *   on: boolean,
 *   reason: string | null,
 *   source: string,
 *   folder: string | null,
 *   registry: string | null,
 *   digest: string | null,
 *   asks: readonly string[],
 *   asks_more: readonly string[],
 *   rights: string | null,
 *   tools: readonly { name: string, description: string }[],
 *   last_error: { at: string, message: string } | null,
 * }} Plugin
 */

/**
 * The plugins: where each comes from, what it may do, why it is off; to install, enable, disable and remove them. Texts of a plugin are
 * somebody else's: what cannot be seen is spelled out.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createPluginsView({ session }) {
  const lead = byId("plugins-lead", HTMLElement);
  const list = byId("plugins-list", HTMLElement);
  const note = byId("plugins-note", HTMLElement);
  const file = byId("plugins-file", HTMLInputElement);

  async function load() {
    try {
      /** @type {readonly Plugin[]} */
      const plugins = (await session.json("v1/plugins")).data;
      const on = plugins.filter((plugin) => plugin.on).length;
      lead.textContent = plugins.length === 0
        ? "There is no plugin. Install a package, or write one: postern plugin new."
        : `${on} of ${plugins.length} are on. What is off says what would turn it on.`;
      const isOpen = new Set([...list.querySelectorAll("details[open]")].map(({ id }) => id));
      list.replaceChildren(...plugins.map((plugin) => element("li", {}, toDetails(plugin, isOpen))));
      list.hidden = plugins.length === 0;
    } catch (error) {
      lead.textContent = `The plugins cannot be shown: ${messageOf(error)}`;
    }
  }

  /**
   * Does a change, says what came of it, and shows the plugins as they are now.
   * @param {string} label
   * @param {() => Promise<unknown>} work
   */
  async function change(label, work) {
    note.textContent = `${label} ...`;
    try {
      await work();
      note.textContent = `${label}: done.`;
    } catch (error) {
      note.textContent = `${label}: ${messageOf(error)}`;
    }
    await load();
    byId("plugins-title", HTMLElement).focus();
  }

  file.addEventListener("change", async () => {
    const chosen = file.files?.[0];
    if (chosen === undefined) return;
    file.disabled = true;
    await change(`Install ${chosen.name}`, async () => {
      if (chosen.size > MAX_BYTES) throw new Error("it is larger than 64 MiB");
      await session.request("v1/plugins", { method: "POST", raw: new Blob([chosen], { type: "application/x-tar" }) });
    });
    file.value = "";
    file.disabled = false;
  });

  /**
   * @param {Plugin} plugin
   * @param {ReadonlySet<string>} isOpen
   */
  function toDetails(plugin, isOpen) {
    const { id, version, kind, on, description, reason } = plugin;
    const details = element(
      "details",
      { id: `plugin-${id}`, class: "tool-info" },
      element(
        "summary",
        {},
        element("span", { class: "switch", "data-on": String(on), "aria-hidden": "true" }),
        element("span", { class: "tool-name" }, `${id} ${version ?? ""}`),
        element("span", { class: "badge" }, kind ?? "unusable"),
        element("span", { class: "tool-description" }, exactLine(description ?? "")),
        on ? "" : element("span", { class: "tool-why" }, exactLine(reason ?? "Off")),
      ),
      element("div", { class: "tool-body" }, ...toFacts(plugin), toButtons(plugin)),
    );
    details.open = isOpen.has(details.id);
    return details;
  }

  /** @param {Plugin} plugin */
  function toButtons(plugin) {
    const { id, state, source, digest } = plugin;
    const place = element("div", { class: "ask-buttons" });
    const path = `v1/plugins/${encodeURIComponent(id)}`;
    const post = (/** @type {string} */ command, /** @type {unknown} */ body) =>
      session.request(`${path}/${command}`, { method: "POST", ...(body === undefined ? {} : { body }) });
    const enable = () => change(`Enable ${id}`, () => post("enable", { digest }));
    const remove = () => change(`Remove ${id}`, () => session.request(path, { method: "DELETE" }));
    const start = () => {
      place.replaceChildren(
        ...(source === "dev" || digest === null || state === "enabled"
          ? []
          : [button("Enable", id, () => ask("Enable it", [toQuestion(plugin)], enable))]),
        ...(source === "dev" || state === "disabled"
          ? []
          : [button("Disable", id, () => change(`Disable ${id}`, () => post("disable", undefined)))]),
        ...(source === "package" ? [button("Remove", id, () => ask("Remove it", [], remove))] : []),
      );
    };
    /** @type {(label: string, question: readonly Node[], work: () => Promise<void>) => void} */
    const ask = (label, question, work) => {
      const yes = button(label, id, () => {
        yes.disabled = true;
        void work();
      });
      yes.className = "primary";
      const no = button("Cancel", id, start);
      place.replaceChildren(...question, yes, no);
      // A key that is pressed too long must not answer
      no.focus();
    };
    start();
    return place;
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

/**
 * @param {string} label
 * @param {string} id
 * @param {() => void} onclick
 */
function button(label, id, onclick) {
  return element("button", { type: "button", "aria-label": `${label}: ${id}`, onclick }, label);
}

/**
 * The question before a plugin is enabled: its rights, and what is beyond those that were granted before.
 * @param {Plugin} plugin
 */
function toQuestion({ rights, asks, asks_more: more, digest }) {
  const wasGranted = asks.filter((line) => !more.includes(line));
  return element(
    "div",
    { class: "ask" },
    element("p", {}, `${rights ?? ""}.`),
    ...toLines("Enabling grants", more.length === 0 && wasGranted.length === 0 ? ["no capability"] : more),
    ...toLines("Granted before", wasGranted),
    element("p", { class: "ask-rule" }, `Content: SHA-256 ${digest ?? ""}`),
  );
}

/** @param {Plugin} plugin */
function toFacts(
  { state, source, folder, registry, rights, asks, asks_more: more, tools, digest, last_error: failed },
) {
  const from = [SOURCES.get(source) ?? source, ...[folder ?? registry ?? ""].filter((place) => place !== "")];
  const capabilities = asks.map((line) => `${line} (${more.includes(line) ? "not granted" : "granted"})`);
  return [
    element(
      "p",
      { class: "hint" },
      `${STATES.get(state) ?? state}. From: ${exactLine(from.join(", "))}. ${rights ?? ""}`,
    ),
    ...toLines("Capabilities", capabilities.length === 0 ? ["none"] : capabilities),
    ...toLines("Tools", tools.map(({ name, description }) => `${name}: ${description}`)),
    ...toLines("Last error", failed === null ? [] : [`${formatTime(failed.at)}: ${failed.message}`]),
    element("p", { class: "ask-rule hint" }, digest === null ? "" : `SHA-256 ${digest}`),
  ];
}

/**
 * @param {string} title
 * @param {readonly string[]} lines
 */
function toLines(title, lines) {
  if (lines.length === 0) return [];
  return [
    element("p", { class: "tool-label" }, title),
    element("ul", { class: "ask-files" }, ...lines.map((line) => element("li", {}, exactLine(line)))),
  ];
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
