import { type Finding, fine, warning } from "./finding.ts";

const NAME = "runtime";
const OLDEST_DENO = [2, 9] as const;

/** Node or Deno. A Node older than the oldest that works never gets here: the program refuses it first. */
export function checkRuntime(): Finding {
  const place = `on ${process.platform} ${process.arch}`;
  if (process.platform === "win32") {
    const missing = "daemon, shell and process tools are not there on Windows";
    return warning(NAME, `Node ${process.versions.node} ${place}: ${missing}`, "run it under WSL");
  }
  const deno = process.versions["deno"];
  if (deno === undefined) return fine(NAME, `Node ${process.versions.node} ${place}`);
  const [major = 0, minor = 0] = deno.split(".").map(Number);
  const isOld = major < OLDEST_DENO[0] || (major === OLDEST_DENO[0] && minor < OLDEST_DENO[1]);
  if (!isOld) return fine(NAME, `Deno ${deno} ${place}`);
  return warning(
    NAME,
    `Deno ${deno} is older than ${OLDEST_DENO.join(".")}, the oldest it is tried on`,
    "deno upgrade",
  );
}
