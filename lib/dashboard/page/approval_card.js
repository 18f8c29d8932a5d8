import { element } from "./dom.js";
import { createElicitationForm } from "./elicitation_form.js";
import { exactLine, exactText } from "./exact_text.js";
import { formatDuration, messageOf } from "./format.js";

/** @typedef {"call" | "folder" | "command"} Match */
/** @typedef {{ decision: "approve" | "deny", remember?: "run" | "always", match?: Match, content?: Readonly<Record<string, unknown>> }} Answer */
/** @typedef {{ remember: "run" | "always", match: Match, text: string }} Offer a rule that an answer may store */
/**
 * @typedef {{
 *   kind?: "call" | "elicitation",
 *   server?: string,
 *   message?: string,
 *   schema?: import("./elicitation_form.js").Form | null,
 *   url?: string | null,
 *   tool: string,
 *   input: unknown,
 *   input_digest?: string,
 *   reason: string,
 *   rule: string,
 *   expires_at: string,
 *   files?: readonly { path: string, sha256: string | null }[],
 *   containment?: { text: string } | null,
 *   bound?: readonly { kind: string, name: string, sha256: string | null }[],
 *   offers?: readonly Offer[],
 *   always_rule?: string | null,
 * }} Question an approval, or the event that tells of one
 */

/** Characters of an input that are shown; a page with more of them stands still */
const MAX_SHOWN = 200_000;

/** @type {Readonly<Record<Match, string>>} */
const LABELS = {
  call: "This exact call",
  folder: "This tool in this folder",
  command: "This command with this first argument",
};

/**
 * A call that waits for a person: the exact input, what it would change, and the answers there are; or what the server of a running call
 * asks. What cannot be seen is spelled out, and a rule is shown before it is stored.
 * @param {object} options
 * @param {Question} options.question
 * @param {(answer: Answer) => Promise<unknown>} options.onAnswer what it rejects with is shown
 */
export function createApprovalCard({ question, onAnswer }) {
  return question.kind === "elicitation"
    ? createElicitationCard({ question, onAnswer })
    : createCallCard({ question, onAnswer });
}

/**
 * A question of a running call: its form, which the browser checks before it is sent, as the gateway does after.
 * @param {{ question: Question, onAnswer: (answer: Answer) => Promise<unknown> }} options
 */
function createElicitationCard({ question, onAnswer }) {
  const { tool, input, input_digest: digest, expires_at: expiresAt, server, url } = question;
  const { parts, read } = createElicitationForm(question);
  const problem = element("p", { class: "field-error", role: "alert" });
  const label = url === null || url === undefined
    ? "Send the answer"
    : `Tell the ${server === undefined ? "program" : "server"} that I agree`;
  const submit = element("button", { type: "submit", class: "primary" }, label);
  const decline = element("button", { type: "button", onclick: () => void send({ decision: "deny" }) }, "Decline");
  /** @param {Answer} answer */
  const send = async (answer) => {
    submit.disabled = decline.disabled = true;
    problem.textContent = "";
    try {
      await onAnswer(answer);
    } catch (error) {
      problem.textContent = messageOf(error);
      submit.disabled = decline.disabled = false;
      submit.focus();
    }
  };
  const root = element(
    "form",
    {
      class: "ask",
      autocomplete: "off",
      "aria-label": `Question of ${exactLine(tool)}`,
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        const content = read();
        void send({ decision: "approve", ...(content === undefined ? {} : { content }) });
      },
    },
    ...parts,
    element(
      "details",
      { class: "ask-always" },
      element("summary", {}, "The call that it runs for"),
      element("pre", { tabIndex: 0, "aria-label": "Input" }, shownInput(input, digest)),
    ),
    element("p", { class: "hint" }, `Expires in ${formatDuration((Date.parse(expiresAt) - Date.now()) / 1000)}.`),
    element("div", { class: "ask-buttons" }, submit, decline),
    problem,
  );
  return { root, focus: () => submit.focus() };
}

/**
 * @param {{ question: Question, onAnswer: (answer: Answer) => Promise<unknown> }} options
 */
function createCallCard({ question, onAnswer }) {
  const { tool, input, input_digest: digest, reason, expires_at: expiresAt, files = [], bound = [] } = question;
  const { containment } = question;
  const problem = element("p", { class: "field-error", role: "alert" });
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  /**
   * @param {string} label
   * @param {Answer} answer
   * @param {Record<string, unknown>} [more]
   */
  const button = (label, answer, more = {}) => {
    const made = element("button", {
      type: "button",
      class: answer.decision === "approve" && answer.remember === undefined ? "primary" : "",
      onclick: () => void send(answer),
      ...more,
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
      problem.textContent = messageOf(error);
      for (const each of buttons) each.disabled = false;
      buttons[0]?.focus();
    }
  };
  /** @param {Offer} offer */
  const toOffer = ({ remember, match, text }) => {
    const label = `${LABELS[match]}, ${remember === "run" ? "in this run" : "from now on"}`;
    return element(
      "li",
      {},
      element("p", {}, label),
      element("p", { class: "ask-rule" }, exactLine(text)),
      button("Store the rule and approve", {
        decision: "approve",
        remember,
        ...(match === "call" ? {} : { match }),
      }, { "aria-label": `Store the rule and approve: ${label}` }),
    );
  };

  const offers = offersOf(question);
  const seconds = (Date.parse(expiresAt) - Date.now()) / 1000;
  const root = element(
    "div",
    { class: "ask", role: "group", "aria-label": `Approval of ${exactLine(tool)}` },
    element("p", {}, element("strong", {}, exactLine(tool)), ` needs your approval: ${exactLine(reason)}`),
    element("pre", { tabIndex: 0, "aria-label": "Input" }, shownInput(input, digest)),
    ...(containment === undefined || containment === null ? [] : [element("p", {}, `${exactLine(containment.text)}.`)]),
    ...(files.length === 0 ? [] : [element("ul", { class: "ask-files", "aria-label": "Files" }, ...files.map(toFile))]),
    ...(bound.length === 0
      ? []
      : [element("ul", { class: "ask-files", "aria-label": "Bound to" }, ...bound.map(toBound))]),
    element("p", { class: "hint" }, `Expires in ${formatDuration(seconds)}.`),
    element(
      "div",
      { class: "ask-buttons" },
      button("Approve once", { decision: "approve" }),
      button("Deny", { decision: "deny" }),
    ),
    ...(offers.length === 0 ? [] : [
      element(
        "details",
        { class: "ask-always" },
        element("summary", {}, "Approve and remember"),
        element("p", {}, "The rule is stored as it stands here, word for word, until you revoke it:"),
        element("ul", { class: "ask-offers" }, ...offers.map(toOffer)),
      ),
    ]),
    problem,
  );
  return { root, focus: () => buttons[0]?.focus() };
}

/**
 * The rules that an answer may store; an approval of an earlier version offers the exact call for good.
 * @param {Question} question
 * @returns {readonly Offer[]}
 */
function offersOf({ offers, always_rule: text }) {
  return offers ?? (text === undefined || text === null ? [] : [{ remember: "always", match: "call", text }]);
}

/**
 * The whole input, which scrolls; a very long one is marked as cut.
 * @param {unknown} input
 * @param {string} [digest]
 */
function shownInput(input, digest) {
  const text = exactText(JSON.stringify(input, null, 2) ?? "null");
  if (text.length <= MAX_SHOWN) return text;
  return `${text.slice(0, MAX_SHOWN)}\n[Cut: ${MAX_SHOWN} of ${text.length} characters are shown${
    digest === undefined ? "" : `; SHA-256 of the whole ${digest}`
  }. "postern approvals show" shows it whole]`;
}

/** @param {{ path: string, sha256: string | null }} file */
function toFile({ path, sha256 }) {
  return element(
    "li",
    {},
    element("code", {}, exactLine(path)),
    sha256 === null ? " is new" : ` is changed, from SHA-256 ${sha256.slice(0, 12)}`,
  );
}

/** @param {{ kind: string, name: string, sha256: string | null }} state */
function toBound({ kind, name, sha256 }) {
  return element(
    "li",
    {},
    `Bound to the ${kind} `,
    element("code", {}, exactLine(name)),
    sha256 === null ? ", which is not there" : ` as it is, SHA-256 ${sha256.slice(0, 12)}`,
  );
}
