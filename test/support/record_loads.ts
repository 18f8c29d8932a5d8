/**
 * Preloaded into a gateway on Node (`--import`): writes the URL of each module it loads into the file that LOADS_FILE names, a
 * line each, until it has answered its first request, which is the line "answered".
 */
import { subscribe } from "node:diagnostics_channel";
import { appendFileSync } from "node:fs";
import { registerHooks } from "node:module";
import process from "node:process";

const file = process.env["LOADS_FILE"] ?? "";
const hooks = registerHooks({
  load(url, context, next) {
    appendFileSync(file, `${url}\n`);
    return next(url, context);
  },
});
subscribe("http.server.response.finish", () => {
  hooks.deregister();
  appendFileSync(file, "answered\n");
});
