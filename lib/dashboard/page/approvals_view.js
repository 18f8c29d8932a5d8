import { createApprovalCard } from "./approval_card.js";
import { byId, element } from "./dom.js";
import { formatTime, messageOf } from "./format.js";
import { exactLine } from "./exact_text.js";

const RECENT = 20;
const PENDING = "v1/approvals?status=pending&limit=100";
const STATUS_WORDS = new Map([
  ["approved", "Approved"],
  ["denied", "Denied"],
  ["expired", "Expired"],
  ["cancelled", "Not needed any more"],
]);

/** @typedef {import("../../base/records/approval.ts").Approval & import("./approval_card.js").Question} Approval */
/** @typedef {import("../../base/records/approval.ts").ApprovalRule} Rule */

/**
 * Calls that wait for a person, those that were answered, and the answers that are remembered.
 * @param {{
 *   session: import("./session.js").Session,
 *   onWaiting: (waiting: readonly Approval[]) => void,
 * }} options `onWaiting` is called with all that wait, each time that they are shown
 */
export function createApprovalsView({ session, onWaiting }) {
  const lead = byId("approvals-lead", HTMLElement);
  const pending = byId("approvals-pending", HTMLElement);
  const rules = byId("approvals-rules", HTMLElement);
  const recent = byId("approvals-recent", HTMLElement);
  const count = byId("approvals-count", HTMLElement);
  /** Number beside the menu that has the tabs on a narrow screen */
  const menuCount = byId("menu-count", HTMLElement);
  /** @type {Map<string, ReturnType<typeof createApprovalCard>>} */
  const cards = new Map();

  /**
   * Keeps the cards that stay, and the focus in them.
   * @param {{ data: readonly Approval[], has_more: boolean }} listed those that wait, the newest first
   */
  function showPending({ data: waiting, has_more: hasMore }) {
    for (const [id, card] of cards) {
      if (waiting.some((approval) => approval.id === id)) continue;
      card.root.remove();
      cards.delete(id);
    }
    for (const approval of waiting.toReversed()) {
      if (cards.has(approval.id)) continue;
      const card = createApprovalCard({ question: approval, onAnswer: (answer) => send(approval.id, answer) });
      cards.set(approval.id, card);
      pending.append(card.root);
    }
    onWaiting(waiting);
    count.textContent = waiting.length === 0 ? "" : `${waiting.length}${hasMore ? "+" : ""}`;
    count.hidden = waiting.length === 0;
    menuCount.textContent = count.textContent;
    menuCount.hidden = count.hidden;
    const words = hasMore
      ? `More than ${waiting.length} calls wait for your answer. These are the newest; postern approval list shows all.`
      : waiting.length === 1
      ? "1 call waits for your answer."
      : `${waiting.length} calls wait for your answer.`;
    const text = waiting.length === 0 ? "No call waits for an answer." : words;
    if (lead.textContent !== text) lead.textContent = text;
  }

  /**
   * @param {string} id
   * @param {import("./approval_card.js").Answer} answer
   */
  async function send(id, answer) {
    await session.json(`v1/approvals/${encodeURIComponent(id)}`, { method: "POST", body: answer });
    await load();
    const [next] = cards.values();
    if (next === undefined) byId("approvals-title", HTMLElement).focus();
    else next.focus();
  }

  /** @param {readonly Rule[]} remembered */
  function showRules(remembered) {
    rules.replaceChildren(
      ...remembered.map(({ id, scope, text }) =>
        element(
          "li",
          {},
          element("span", { class: "ask-rule" }, exactLine(text)),
          element("button", {
            type: "button",
            "aria-label": `Revoke: ${exactLine(text)}`,
            onclick: () => void revoke(id),
          }, scope === "run" ? "Revoke (one run)" : "Revoke"),
        )
      ),
    );
    if (remembered.length === 0) rules.append(element("li", { class: "empty" }, "No answer is remembered."));
  }

  /** @param {string} id */
  async function revoke(id) {
    try {
      await session.request(`v1/approval-rules/${encodeURIComponent(id)}`, { method: "DELETE" });
    } catch (error) {
      lead.textContent = `The rule could not be revoked: ${messageOf(error)}`;
      return;
    }
    await load();
    byId("approvals-title", HTMLElement).focus();
  }

  /** @param {readonly Approval[]} all */
  function showRecent(all) {
    const settled = all.filter(({ status }) => status !== "pending");
    recent.replaceChildren(
      ...settled.map(({ tool, status, answered_at: at, input, remember, run_id: runId, asker }) =>
        element(
          "li",
          {},
          element("span", { class: "badge" }, STATUS_WORDS.get(status) ?? status),
          element("strong", {}, exactLine(tool)),
          element("code", {}, exactLine(JSON.stringify(input) ?? "null")),
          element(
            "span",
            { class: "hint" },
            `${at === null ? "" : formatTime(at)}${
              remember === null || remember === "once" ? "" : `, remembered: ${remember}`
            }`,
          ),
          // A call that was made without an agent has no run on record
          ...(asker?.direct === true ? [] : [element("a", { href: `#runs/${encodeURIComponent(runId)}` }, "Run")]),
        )
      ),
    );
    if (settled.length === 0) recent.append(element("li", { class: "empty" }, "Nothing was answered yet."));
  }

  async function load() {
    try {
      const [waiting, all, remembered] = await Promise.all([
        session.json(PENDING),
        session.json(`v1/approvals?limit=${RECENT}`),
        session.json("v1/approval-rules"),
      ]);
      showPending(waiting);
      showRecent(all.data);
      showRules(remembered.data);
    } catch (error) {
      lead.textContent = `The approvals cannot be shown: ${messageOf(error)}`;
    }
  }

  return {
    load,
    /** Shows what waits now. Does nothing for a token that may not see it. */
    async poll() {
      const waiting = await session.poll(PENDING).catch(() => undefined);
      if (waiting !== undefined) showPending(waiting);
    },
    /** Forgets everything, as on signing out. */
    reset() {
      showPending({ data: [], has_more: false });
      lead.textContent = "";
      rules.replaceChildren();
      recent.replaceChildren();
    },
  };
}
