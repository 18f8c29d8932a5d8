import { fileURLToPath } from "node:url";

/** Returns the command line that starts this program again, by the same runtime and from the same place. Arguments follow. */
export function ownCommand(): readonly string[] {
  // The build puts this module into the folder "chunks", beside "cli"
  const main = fileURLToPath(
    new URL(import.meta.url.endsWith(".ts") ? "../main.ts" : "../cli/main.js", import.meta.url),
  );
  return "Deno" in globalThis ? [process.execPath, "run", "--allow-all", "--no-check", main] : [process.execPath, main];
}
