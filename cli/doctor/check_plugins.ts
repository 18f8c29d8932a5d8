import type { PluginInfo } from "../../lib/base/records/extension_views.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import { askRoute } from "../reach_gateway.ts";
import { clientOf } from "./ask_gateway.ts";
import { type Check, type Finding, fine, type Installation, warning } from "./finding.ts";

/** Checks what plugins need: bubblewrap for programs, koffi for libraries on Node, and whatever keeps an enabled plugin off. */
export const pluginsCheck: Check = {
  name: "plugins",
  async run(installation) {
    const found = await Promise.all([checkSandbox(installation), checkKoffi(installation), checkEnabled(installation)]);
    return found.flat();
  },
};

async function checkSandbox({ loaded: { config } }: Installation): Promise<readonly Finding[]> {
  const { allow_process: process, allow_ffi: ffi, sandbox } = config.plugins;
  if (!process && !ffi) return [];
  if (sandbox === "off") {
    const message = "Plugins that are programs run with your rights: [plugins] sandbox is off";
    return [warning("plugins", message, 'set [plugins] sandbox = "auto"')];
  }
  if (await createCommandLookup().find("bwrap") !== undefined) return [];
  const message = sandbox === "require"
    ? "bubblewrap is not installed: no plugin that is a program can run"
    : "bubblewrap is not installed: plugins that are programs run with your rights";
  return [warning("plugins", message, "apt install bubblewrap")];
}

function checkKoffi({ loaded: { config } }: Installation): readonly Finding[] {
  if (!config.plugins.allow_ffi || "Deno" in globalThis) return [];
  try {
    import.meta.resolve("koffi");
    return [];
  } catch {
    const message = "koffi is not installed: no plugin that is a library can run on Node";
    return [warning("plugins", message, "npm install koffi")];
  }
}

/** Asks the running gateway for its plugins. Without one, records and folders are left alone. */
async function checkEnabled(installation: Installation): Promise<readonly Finding[]> {
  const client = clientOf(installation);
  if (client === undefined) return [fine("plugins", "Not looked at: no gateway runs")];
  const list = await askRoute(client, "GET /v1/plugins");
  if (list === undefined) {
    return [warning("plugins", "The gateway does not tell of its plugins", "postern plugin list")];
  }
  const { data } = list;
  const stuck = data.filter((plugin) => isStuck(plugin)).map(({ id, reason }) =>
    warning("plugins", `The plugin "${id}" cannot be called: ${reason}`, `postern plugin show ${id}`)
  );
  const on = data.filter((plugin) => plugin.on).length;
  return stuck.length > 0 ? stuck : [fine("plugins", `${on} of ${data.length} are on`)];
}

/** Tells whether a person enabled a plugin that is off nevertheless, or whose folder cannot be used. */
function isStuck({ state, on, kind, reason }: PluginInfo): boolean {
  return !on && (state === "enabled" || kind === null || (reason?.includes("(reason: ") ?? false));
}
