import { element } from "./dom.js";
import { formatDuration } from "./format.js";

/** @typedef {{ decision: "approve" | "deny", remember?: "run" | "always" }} Answer */
/**
 * @typedef {{
 *   tool: string,
 *   input: unknown,
 *   reason: string,
 *   rule: string,
 *   expires_at: string,
 *   files?: readonly { path: string, sha256: string | null }[],
 *   containment?: { text: string } | null,
 *   always_rule?: string | null,
 * }} Question an approval, or the event that tells of one
 */

/**
 * A call that waits for a person: the exact input, what it would change, and the answers there are.
 * @param {object} options
 * @param {Question} options.question
 * @param {(answer: Answer) => Promise<unknown>} options.onAnswer what it rejects with is shown
 */
export function createApprovalCard({ question, onAnswer }) {
  const { tool, input, reason, rule, expires_at: expiresAt, files = [], containment, always_rule: alwaysRule } =
    question;
  const problem = element("p", { class: "field-error", role: "alert" });
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  /**
   * @param {string} label
   * @param {Answer} answer
   */
  const button = (label, answer) => {
    const made = element("button", {
      type: "button",
      class: answer.decision === "approve" && answer.remember === undefined ? "primary" : "",
      onclick: () => void send(answer),
    }, label);
    buttons.push(made);
    return made;
  };
  /** @param {Answer} answer */
  const send = async (answer) => {
    for (const each of buttons) each.disabled = true;
    problem.textContent = "";
    try {
      await onAnswer(answer);
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
      for (const each of buttons) each.disabled = false;
      buttons[0]?.focus();
    }
  };

  const shown = typeof input === "string" ? input : JSON.stringify(input, null, 2) ?? "";
  const seconds = (Date.parse(expiresAt) - Date.now()) / 1000;
  const mayRemember = !rule.startsWith("always_ask:");
  const root = element(
    "div",
    { class: "ask", role: "group", "aria-label": `Approval of ${tool}` },
    element("p", {}, element("strong", {}, tool), ` needs your approval: ${reason}`),
    element("pre", { tabIndex: 0, "aria-label": "Input" }, shown),
    ...(containment === undefined || containment === null ? [] : [element("p", {}, `${containment.text}.`)]),
    ...(files.length === 0 ? [] : [element("ul", { class: "ask-files", "aria-label": "Files" }, ...files.map(toFile))]),
    element("p", { class: "hint" }, `Expires in ${formatDuration(seconds)}.`),
    element(
      "div",
      { class: "ask-buttons" },
      button("Approve once", { decision: "approve" }),
      button("Deny", { decision: "deny" }),
      ...(mayRemember ? [button("Approve in this run", { decision: "approve", remember: "run" })] : []),
    ),
    ...(alwaysRule === undefined || alwaysRule === null ? [] : [
      element(
        "details",
        { class: "ask-always" },
        element("summary", {}, "Always allow this call"),
        element("p", {}, "This rule is stored, word for word, until you revoke it:"),
        element("p", { class: "ask-rule" }, alwaysRule),
        button("Store the rule and approve", { decision: "approve", remember: "always" }),
      ),
    ]),
    problem,
  );
  return { root, focus: () => buttons[0]?.focus() };
}

/** @param {{ path: string, sha256: string | null }} file */
function toFile({ path, sha256 }) {
  return element(
    "li",
    {},
    element("code", {}, path),
    sha256 === null ? " is new" : ` is changed, from SHA-256 ${sha256.slice(0, 12)}`,
  );
}
