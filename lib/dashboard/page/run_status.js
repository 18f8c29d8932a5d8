import { element } from "./dom.js";

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

/** @param {Pick<Run, "status" | "waiting_for">} run */
export function statusBadge({ status, waiting_for: waitingFor }) {
  const words = waitingFor === "workspace" ? "Waits for its workspace" : statusWords(status);
  return element("span", { class: "badge", "data-run": status }, words);
}
