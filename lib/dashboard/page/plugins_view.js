import { byId, element } from "./dom.js";
import { exactLine } from "./exact_text.js";
import { button, createExtensionList, toChoices, toLines, toRow } from "./extension_list.js";
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

/** @typedef {import("../../base/records/extension_views.ts").PluginInfo} Plugin */

/**
 * The plugins: where each comes from, what it may do, why it is off; to install, enable, disable and remove them. Texts of a plugin are
 * somebody else's: what cannot be seen is spelled out.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createPluginsView({ session }) {
  const file = byId("plugins-file", HTMLInputElement);

  const list = createExtensionList({
    id: "plugins",
    things: "plugins",
    async read() {
      /** @type {readonly Plugin[]} */
      const plugins = (await session.json("v1/plugins")).data;
      const on = plugins.filter((plugin) => plugin.on).length;
      return {
        lead: plugins.length === 0
          ? "There is no plugin. Install a package, or write one: postern plugin new."
          : `${on} of ${plugins.length} are on. Each disabled item says how to enable it.`,
        rows: plugins.map(toPluginRow),
      };
    },
  });

  file.addEventListener("change", async () => {
    const chosen = file.files?.[0];
    if (chosen === undefined) return;
    file.disabled = true;
    await list.change(`Install ${chosen.name}`, async () => {
      if (chosen.size > MAX_BYTES) throw new Error("it is larger than 64 MiB");
      await session.request("v1/plugins", { method: "POST", raw: new Blob([chosen], { type: "application/x-tar" }) });
    });
    file.value = "";
    file.disabled = false;
  });

  /** @param {Plugin} plugin */
  function toPluginRow(plugin) {
    const { id, version, kind, on, description, reason } = plugin;
    return toRow(`plugin-${id}`, {
      on,
      name: `${id} ${version ?? ""}`,
      badge: element("span", { class: "badge" }, kind ?? "unusable"),
      description: description ?? "",
      why: on ? "" : reason ?? "Off",
    }, [...toFacts(plugin), toButtons(plugin)]);
  }

  /** @param {Plugin} plugin */
  function toButtons(plugin) {
    const { id, state, source, digest } = plugin;
    const path = `v1/plugins/${encodeURIComponent(id)}`;
    const post = (/** @type {string} */ command, /** @type {unknown} */ body) =>
      session.request(`${path}/${command}`, { method: "POST", ...(body === undefined ? {} : { body }) });
    const enable = () => list.change(`Enable ${id}`, () => post("enable", { digest }));
    const disable = () => list.change(`Disable ${id}`, () => post("disable", undefined));
    const remove = () => list.change(`Remove ${id}`, () => session.request(path, { method: "DELETE" }));
    return toChoices(id, (ask) => [
      ...(source === "dev" || digest === null || state === "enabled"
        ? []
        : [button("Enable", id, () => ask("Enable it", [toQuestion(plugin)], enable))]),
      ...(source === "dev" || state === "disabled" ? [] : [button("Disable", id, disable)]),
      ...(source === "package" ? [button("Remove", id, () => ask("Remove it", [], remove))] : []),
    ]);
  }

  return list;
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
