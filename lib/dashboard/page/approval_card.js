import { element } from "./dom.js";
import { createElicitationForm } from "./elicitation_form.js";
import { exactLine, exactText } from "./exact_text.js";
import { formatDuration, messageOf } from "./format.js";

/** @typedef {import("../../base/records/approval.ts").RuleMatchKind} Match */
/** @typedef {{ decision: "approve" | "deny", remember?: "run" | "always", match?: Match, content?: Readonly<Record<string, unknown>>, input?: unknown }} Answer */
/** @typedef {import("../../base/records/approval.ts").RuleOffer} Offer a rule that an answer may store */
/**
 * @typedef {Pick<import("../../base/records/approval.ts").Approval, "kind" | "server" | "agent" | "message" | "schema" | "url" | "tool" | "input" | "reason" | "rule" | "expires_at" | "offers" | "asker" | "editable"> & {
 *   run_id?: string,
 *   description?: import("../../base/records/approval.ts").ApprovalDescription,
 *   always_rule?: string | null,
 * }} Question an approval, or the event that tells of one
 */

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
  // An event of an earlier version: nobody approves what the card does not show
  if (question.description === undefined) return createPointer(question);
  return question.kind === "elicitation"
    ? createElicitationCard({ question, onAnswer })
    : createCallCard({ question, onAnswer });
}

/** @param {Question} question */
function createPointer({ tool }) {
  const link = element("a", { href: "#approvals" }, "Approvals");
  const words = element("p", {}, exactLine(tool), " waits for your answer: ", link, " shows the whole question.");
  return { root: element("div", { class: "ask", role: "group" }, words), focus: () => link.focus() };
}

/**
 * A question of a running call: its form, which the browser checks before it is sent, as the gateway does after.
 * @param {{ question: Question, onAnswer: (answer: Answer) => Promise<unknown> }} options
 */
function createElicitationCard({ question, onAnswer }) {
  const { tool, expires_at: expiresAt, server, url } = question;
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
      ...toLines(question),
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
  const { tool, expires_at: expiresAt } = question;
  const problem = element("p", { class: "field-error", role: "alert" });
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  /**
   * @param {string} label
   * @param {Answer | (() => Answer | undefined)} answer read when the button is pressed; undefined: none is sent
   * @param {Record<string, unknown>} [more]
   */
  const button = (label, answer, more = {}) => {
    const read = typeof answer === "function" ? answer : () => answer;
    const isPlain = typeof answer !== "function" && answer.decision === "approve" && answer.remember === undefined;
    const press = () => {
      const given = read();
      if (given !== undefined) void send(given);
    };
    const made = element("button", {
      type: "button",
      class: isPlain ? "primary" : "",
      onclick: press,
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
    element(
      "p",
      { class: "ask-title" },
      element("strong", {}, question.description?.title ?? `${exactLine(tool)} needs your approval`),
    ),
    ...toLines(question),
    element("p", { class: "hint" }, `Expires in ${formatDuration(seconds)}.`),
    element(
      "div",
      { class: "ask-buttons" },
      button("Approve once", { decision: "approve" }),
      button("Deny", { decision: "deny" }),
    ),
    ...(question.editable === true ? [createEdit({ question, button, problem })] : []),
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
 * The input as text to change: what it becomes is checked by the gateway.
 * @param {object} options
 * @param {Question} options.question
 * @param {(label: string, answer: () => Answer | undefined) => HTMLButtonElement} options.button
 * @param {HTMLElement} options.problem
 */
function createEdit({ question, button, problem }) {
  const area = element("textarea", { rows: 8, spellcheck: false, "aria-label": "Input as JSON" });
  // Invisible characters are spelled out here too, and the JSON stays the same
  area.value = exactText(JSON.stringify(question.input, null, 2));
  return element(
    "details",
    { class: "ask-always" },
    element("summary", {}, "Change it, then approve"),
    element("p", {}, "The call is made once with your input, and the agent is told that you changed it."),
    area,
    button("Approve with this input", () => {
      try {
        return { decision: "approve", input: JSON.parse(area.value) };
      } catch (error) {
        problem.textContent = `The input is not JSON: ${messageOf(error)}`;
        return undefined;
      }
    }),
  );
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
 * Returns what the gateway says of the call.
 * @param {Question} question
 */
function toLines({ description, asker, run_id: run }) {
  if (description === undefined) return [];
  const { call, asker: lines = [], input, reason, containment, files, bound } = description;
  const { conversation_id: conversation = null } = asker ?? {};
  const links = [
    ...(conversation === null ? [] : [link(`#chat/${encodeURIComponent(conversation)}`, "Open the conversation")]),
    ...(run === undefined || asker === undefined || asker.direct === true
      ? []
      : [link(`#runs/${encodeURIComponent(run)}`, "Open the run")]),
  ];
  /** @type {(label: string, lines: readonly string[]) => readonly HTMLElement[]} */
  const list = (label, lines) =>
    lines.length === 0 ? [] : [
      element("p", {}, `${label}:`),
      element("ul", { class: "ask-files", "aria-label": label }, ...lines.map((line) => element("li", {}, line))),
    ];
  return [
    element("p", { class: "hint" }, call),
    ...lines.map((line) => element("p", { class: "hint" }, line)),
    ...(links.length === 0 ? [] : [element("p", { class: "ask-links" }, ...links)]),
    element("pre", { tabIndex: 0, "aria-label": "Input" }, ...coloured(input)),
    element("p", {}, reason),
    ...(containment === null ? [] : [element("p", {}, containment)]),
    ...list("Files", files),
    ...list("Bound to", bound),
  ];
}

/**
 * @param {string} href
 * @param {string} words
 */
function link(href, words) {
  return element("a", { href }, words);
}

/** Lines up to which each has its colour: more of them make a page slow. */
const MAX_COLOURED = 2_000;

/**
 * The lines of an input, those of a difference by their sign.
 * @param {string} input
 * @returns {readonly (Node | string)[]}
 */
function coloured(input) {
  const lines = input.split("\n");
  if (lines.length > MAX_COLOURED) return [input];
  return lines.flatMap((line, index) => {
    const kind = line.startsWith("! ")
      ? "ask-notice"
      : line.startsWith("+")
      ? "ask-added"
      : line.startsWith("-")
      ? "ask-removed"
      : "";
    const shown = kind === "" ? line : element("span", { class: kind }, line);
    return index === 0 ? [shown] : ["\n", shown];
  });
}
