import { element } from "./dom.js";
import { formatMs } from "./format.js";

/** Words for a call that was not made, by who denied it. @type {ReadonlyMap<string, string>} */
const DENIED = new Map([
  ["you", "denied by you"],
  ["person", "denied by a person"],
  ["program", "denied by the program"],
  ["rule", "denied by a remembered answer"],
  ["nobody", "denied: nobody answered"],
  ["policy", "denied by the policy"],
  ["halt", "halted"],
]);

/**
 * A tool call of a reply, folded: its name and what it was asked, and inside the input and the output.
 * @param {{ tool: string, input: unknown }} call
 */
export function createToolCard({ tool, input }) {
  const state = element("span", { class: "tool-state" }, "running");
  const output = element("div", { class: "tool-output" });
  const inputText = typeof input === "string" ? input : JSON.stringify(input, null, 2) ?? "";
  const root = element(
    "details",
    { class: "tool", "data-state": "running" },
    element(
      "summary",
      {},
      element("span", { class: "tool-mark", "aria-hidden": "true" }),
      element("span", { class: "tool-name" }, tool),
      element("span", { class: "tool-brief" }, brief(input)),
      state,
    ),
    element("div", { class: "tool-body" }, ...labelled("Input", inputText), output),
  );
  /**
   * @param {string} next
   * @param {string} word
   */
  const setState = (next, word) => {
    root.setAttribute("data-state", next);
    state.textContent = word;
  };
  return {
    root,
    /** @param {string} message */
    progress: (message) => setState("running", message),
    /** @param {{ output: string, is_error: boolean, duration_ms?: number, denied_by?: string | undefined }} result */
    end(result) {
      const denied = DENIED.get(result.denied_by ?? "");
      if (denied !== undefined) {
        setState("denied", denied);
        output.replaceChildren(...labelled("Why", result.output || "(empty)"));
        return;
      }
      setState(
        result.is_error ? "failed" : "done",
        // A stored call may have no duration: nobody knows how long it took
        result.duration_ms === undefined
          ? result.is_error ? "failed" : "done"
          : `${result.is_error ? "failed, " : ""}${formatMs(result.duration_ms)}`,
      );
      output.replaceChildren(...labelled(result.is_error ? "Error" : "Output", result.output || "(empty)"));
    },
    /** The reply ended before the call did. */
    abandon() {
      if (root.getAttribute("data-state") === "running") setState("failed", "not finished");
    },
  };
}

/**
 * @param {string} label
 * @param {string} text
 */
function labelled(label, text) {
  const heading = element("p", { class: "tool-label" }, label);
  return [heading, element("pre", { tabIndex: 0, "aria-label": label }, text)];
}

/** @param {unknown} input */
function brief(input) {
  if (typeof input !== "object" || input === null) return String(input ?? "");
  const [first] = Object.values(input);
  return typeof first === "string" ? first : JSON.stringify(input);
}
