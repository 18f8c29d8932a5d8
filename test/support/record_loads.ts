/**
 * Preloaded into a gateway on Node (`--import`): writes the URL of each module it loads into the file that LOADS_FILE names, a
 * line each, until it has answered its first request, which is the line "answered". What a start leaves for a moment later waits
 * until then, however late that request comes.
 */
import { subscribe } from "node:diagnostics_channel";
import { appendFileSync } from "node:fs";
import { registerHooks } from "node:module";
import process from "node:process";

/** Longer than anybody waits for the first request */
const LATER_MS = 600_000;

const file = process.env["LOADS_FILE"] ?? "";
const { setTimeout } = globalThis;
// No start waits for a timer: those that are set are for later
globalThis.setTimeout = ((run: () => void) => setTimeout(run, LATER_MS)) as typeof setTimeout;
const hooks = registerHooks({
  load(url, context, next) {
    appendFileSync(file, `${url}\n`);
    return next(url, context);
  },
});
subscribe("http.server.response.finish", () => {
  hooks.deregister();
  globalThis.setTimeout = setTimeout;
  appendFileSync(file, "answered\n");
});
