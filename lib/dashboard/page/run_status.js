import { element } from "./dom.js";
import { exactLine } from "./exact_text.js";

/** @typedef {import("../../base/records/run.ts").Run} Run */

const WORDS = new Map([
  ["queued", "Waiting for its turn"],
  ["running", "At work"],
  ["waiting_for_approval", "Waits for your approval"],
  ["completed", "Done"],
  ["failed", "Failed"],
  ["cancelled", "Cancelled"],
  ["needs_review", "Needs your decision"],
]);

/** @param {string} status whether the run still does something by itself */
export function isAtWork(status) {
  return status === "queued" || status === "running" || status === "waiting_for_approval";
}

/** @param {string} status of a run, in plain words */
export function statusWords(status) {
  return WORDS.get(status) ?? status;
}

/** Characters of a run's name */
const NAME = 80;

/** @param {Pick<Run, "message" | "kind">} run called by the first line of the message that began it, else by what it is */
export function runName({ message, kind }) {
  const [line = ""] = (message ?? "").trim().split("\n", 1);
  const name = line === "" ? `Run of kind ${kind}` : exactLine(line);
  return name.length > NAME ? `${name.slice(0, NAME).trimEnd()}...` : name;
}

/** @param {Pick<Run, "status" | "waiting_for">} run */
export function statusBadge({ status, waiting_for: waitingFor }) {
  const words = waitingFor === "workspace" ? "Waits for its workspace" : statusWords(status);
  return element("span", { class: "badge", "data-run": status }, words);
}
