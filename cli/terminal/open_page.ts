import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { ToolError } from "../../lib/base/errors.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { createDesktop } from "../../lib/system/desktop/desktop.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import type { CommandContext } from "../command.ts";

/** Opens a page in the person's browser. @returns false where that does not work: the person opens it then, who needs the address */
export async function openPage(
  { io }: CommandContext,
  { dataDir, workspace }: LoadedConfig,
  { url, signal }: { readonly url: URL; readonly signal: AbortSignal },
): Promise<boolean> {
  const desktop = createDesktop({
    processes: { run: () => Promise.reject(new TypeError("No picture is taken here")) },
    commands: createCommandLookup(),
    clock: systemClock,
    environment: (name) => io.env[name],
    ...{ home: io.home, folder: join(dataDir, "mcp") },
  });
  try {
    await desktop.openUrl(url, { signal, writable: [workspace] });
    return true;
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    return false;
  }
}
