import { fileURLToPath } from "node:url";

/** The command line that starts this program again, by the same runtime and from the same place: arguments follow. */
export function ownCommand(): readonly string[] {
  // Sources and the built program have the same layout; only the ending differs
  const main = fileURLToPath(new URL(`./main${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url));
  return "Deno" in globalThis ? [process.execPath, "run", "--allow-all", "--no-check", main] : [process.execPath, main];
}
