import { element } from "./dom.js";
import { exactLine, exactText } from "./exact_text.js";
import { messageOf } from "./format.js";

/** @typedef {{ action: "resume" | "close", outcome: "done" | "not_done" | "unknown", note?: string }} Decision */
/** @typedef {{ tool: string, input: unknown }} Call */

const OUTCOMES = /** @type {const} */ ([
  ["done", "It took effect"],
  ["not_done", "It did not take effect: make it again"],
  ["unknown", "I cannot tell: do not make it again"],
]);

/**
 * A run that was cut off with an effect under way: what is not known, and the decisions there are.
 * @param {object} options
 * @param {readonly Call[]} options.calls those that were cut off
 * @param {(decision: Decision) => Promise<unknown>} options.onDecide what it rejects with is shown
 */
export function createReviewCard({ calls, onDecide }) {
  const problem = element("p", { class: "field-error", role: "alert" });
  const note = element("input", { id: "review-note", type: "text", maxLength: 1000, autocomplete: "off" });
  const choices = OUTCOMES.map(([value, label]) => {
    const input = element("input", { type: "radio", name: "review-outcome", value, checked: value === "unknown" });
    return { value, input, root: element("label", { class: "choice" }, input, label) };
  });
  const buttons = [
    button("Go on with the run", "resume", "primary"),
    button("End the run here", "close", ""),
  ];

  /**
   * @param {string} label
   * @param {Decision["action"]} action
   * @param {string} kind
   */
  function button(label, action, kind) {
    return element("button", { type: "button", class: kind, onclick: () => void send(action) }, label);
  }

  /** @param {Decision["action"]} action */
  async function send(action) {
    const outcome = choices.find(({ input }) => input.checked)?.value ?? "unknown";
    for (const each of buttons) each.disabled = true;
    problem.textContent = "";
    try {
      await onDecide({ action, outcome, ...(note.value.trim() === "" ? {} : { note: note.value.trim() }) });
    } catch (error) {
      problem.textContent = messageOf(error);
      for (const each of buttons) each.disabled = false;
      buttons[0]?.focus();
    }
  }

  return element(
    "section",
    { class: "ask", "aria-label": "Review" },
    element("p", {}, element("strong", {}, "This run needs your decision.")),
    element(
      "p",
      {},
      `The gateway stopped while ${
        calls.length === 1 ? "this call was" : "a call was"
      } at work. Whether it took effect is not known, so it is neither made again nor taken for done. Look for yourself: is the file there, was the message sent? When the run goes on, the agent is told what you say.`,
    ),
    ...calls.flatMap(({ tool, input }) => [
      element("p", { class: "tool-label" }, exactLine(tool)),
      element(
        "pre",
        { tabIndex: 0, "aria-label": `Input of ${exactLine(tool)}` },
        exactText(JSON.stringify(input, null, 2) ?? "null"),
      ),
    ]),
    element(
      "fieldset",
      { class: "choices" },
      element("legend", {}, "What became of it?"),
      ...choices.map(({ root }) => root),
    ),
    element("label", { class: "field" }, "Note, kept with your decision", note),
    element("div", { class: "ask-buttons" }, ...buttons),
    problem,
  );
}
