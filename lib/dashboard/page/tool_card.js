import { element } from "./dom.js";
import { formatMs } from "./format.js";

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
    /** The call goes on only once a person has answered. */
    waits() {
      setState("waiting", "waits for you");
      root.open = true;
    },
    /** A person has answered: the call goes on. */
    goesOn() {
      setState("running", "running");
      root.open = false;
    },
    /**
     * @param {{ output: string, is_error: boolean, duration_ms?: number }} result
     * @param {string} [denied] says who denied the call
     */
    end(result, denied) {
      root.open = denied !== undefined;
      // A stored call may have no duration: nobody knows how long it took
      const time = result.duration_ms === undefined ? [] : [formatMs(result.duration_ms)];
      const words = result.is_error ? ["failed", ...time] : time.length === 0 ? ["done"] : time;
      setState(result.is_error ? "failed" : "done", denied ?? words.join(", "));
      output.replaceChildren(...labelled(result.is_error ? "Error" : "Output", result.output || "(empty)"));
    },
    /** The reply ended before the call did. */
    abandon() {
      if (["running", "waiting"].includes(root.getAttribute("data-state") ?? "")) setState("failed", "not finished");
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
