import { createApprovalCard } from "./approval_card.js";
import { element } from "./dom.js";
import { formatMs, formatNumber } from "./format.js";
import { createMarkdown } from "./markdown.js";
import { createToolCard } from "./tool_card.js";
import { createToolOffer } from "./tool_offer.js";

const WORKING = "Working";
const REVIEWED = new Map([
  ["done", "A person said: the call that was cut off took effect."],
  ["not_done", "A person said: the call that was cut off did not take effect. It is made again."],
  ["unknown", "A person said: whether the call that was cut off took effect cannot be told."],
]);

/**
 * A reply of the agent: text, folded tool calls and notices in the order they came.
 * @param {object} options
 * @param {(text: string) => void} options.announce tells a screen reader
 * @param {(approvalId: string, answer: import("./approval_card.js").Answer) => Promise<unknown>} options.onAnswer
 * @param {(tool: string) => Promise<unknown>} [options.onTurnOn] turns a tool on that the reply missed; default: none is offered
 */
export function createReply({ announce, onAnswer, onTurnOn }) {
  const started = performance.now();
  const parts = element("div", { class: "parts" });
  const working = element("span", { class: "typing" }, WORKING);
  const foot = element("p", { class: "turn-foot" }, working);
  const root = element("li", { class: "turn reply", "aria-label": "Reply" }, parts, foot);
  /** @type {Map<string, ReturnType<typeof createToolCard>>} */
  const cards = new Map();
  /** @type {Map<string, HTMLElement>} */
  const asks = new Map();
  /** Calls that were denied on this page @type {Set<string>} */
  const denied = new Set();
  /** Tools that are offered to be turned on @type {Set<string>} */
  const offered = new Set();
  /** @type {{ fromSeq: number, nodes: HTMLElement }[]} */
  const placed = [];
  let text = createText(announce);
  let unplaced = true;

  /**
   * @param {HTMLElement} node
   * @param {number} fromSeq
   */
  const place = (node, fromSeq) => {
    parts.append(node);
    placed.push({ fromSeq, nodes: node });
  };
  const newText = () => {
    text.finish();
    text = createText(announce);
    unplaced = true;
  };
  /**
   * @param {string} delta
   * @param {number} seq
   */
  const addText = (delta, seq) => {
    if (unplaced) place(text.root, seq);
    unplaced = false;
    text.add(delta);
  };
  /** @param {string} message */
  const finish = (message) => {
    text.finish();
    for (const card of cards.values()) card.abandon();
    for (const ask of asks.values()) ask.remove();
    foot.textContent = message;
  };

  return {
    root,
    /** @param {any} event an agent event; unknown types are left out, so that a newer gateway can add some */
    show(event) {
      const seq = event.seq ?? 0;
      switch (event.type) {
        case "text_delta":
        case "refusal_delta":
          return addText(event.delta, seq);
        case "tool_start": {
          newText();
          const card = createToolCard(event);
          cards.set(event.call_id, card);
          announce(`Tool ${event.tool} runs.`);
          return place(card.root, seq);
        }
        case "tool_progress":
          return cards.get(event.call_id)?.progress(event.message);
        case "tool_end": {
          if (!cards.has(event.call_id)) {
            cards.set(event.call_id, createToolCard({ tool: event.tool, input: "" }));
            place(/** @type {HTMLElement} */ (cards.get(event.call_id)?.root), seq);
          }
          cards.get(event.call_id)?.end(denied.has(event.call_id) ? { ...event, denied_by: "you" } : event);
          announce(
            `Tool ${event.tool} ${
              event.denied_by !== undefined ? "was denied" : event.is_error ? "failed" : "is done"
            }.`,
          );
          if (event.turn_on === undefined || onTurnOn === undefined || offered.has(event.tool)) return;
          offered.add(event.tool);
          newText();
          return place(createToolOffer(event, onTurnOn), seq);
        }
        case "approval_needed": {
          newText();
          const id = event.approval_id;
          /** @param {import("./approval_card.js").Answer} answer */
          const send = async (answer) => {
            // The end of the call may come before the reply to the answer
            if (answer.decision === "deny") denied.add(event.call_id);
            try {
              await onAnswer(id, answer);
            } catch (error) {
              denied.delete(event.call_id);
              throw error;
            }
          };
          const { root: ask } = createApprovalCard({ question: event, onAnswer: send });
          asks.set(id, ask);
          announce(`${event.tool} ${event.kind === "elicitation" ? "asks you something" : "needs your approval"}.`);
          return place(ask, seq);
        }
        case "approval_answered":
          asks.get(event.approval_id)?.remove();
          asks.delete(event.approval_id);
          return;
        case "review_answered":
          newText();
          return place(
            element("p", { class: "notice" }, REVIEWED.get(event.outcome) ?? "A person reviewed the run."),
            seq,
          );
        case "turn_restart":
          newText();
          for (const { fromSeq, nodes } of placed) if (fromSeq >= event.from_seq) nodes.remove();
          return;
        case "notice":
          newText();
          return place(element("p", { class: "notice" }, event.message), seq);
      }
    },
    /** @param {{ finish_reason?: string, usage?: { total_tokens: number, estimated?: boolean, estimated_by?: string } }} done */
    done(done) {
      // A count that was estimated from bytes alone helps nobody and is not shown
      const tokens = done.usage === undefined || done.usage.estimated_by === "bytes"
        ? ""
        : `, ${done.usage.estimated ? "about " : ""}${formatNumber(done.usage.total_tokens)} tokens`;
      const cut = done.finish_reason === "length" ? "Cut at the token limit, " : "";
      finish(`${cut}${formatMs(performance.now() - started)}${tokens}`);
    },
    stopped: () => finish("Stopped"),
    /** @param {string} [words] that stand under it while it is at work */
    waits: (words = WORKING) => void (working.textContent = words),
    /** @param {string} words that stand under it; empty: none */
    ended: (words) => finish(words),
    /**
     * @param {string} message
     * @param {() => void} retry
     */
    failed(message, retry) {
      finish("");
      const again = element("button", { type: "button", onclick: retry }, "Try again");
      root.append(element("div", { class: "failure", role: "alert" }, element("p", {}, message), again));
    },
  };
}

/**
 * Text that grows. Drawn once a frame; spoken by whole sentences, since a screen reader stumbles over single words.
 * @param {(text: string) => void} announce
 */
function createText(announce) {
  const markdown = createMarkdown();
  let all = "";
  let spoken = 0;
  let waiting = false;
  const draw = () => {
    waiting = false;
    markdown.show(all);
  };
  /** @param {number} end */
  const speak = (end) => {
    const sentence = all.slice(spoken, end).trim();
    spoken = end;
    if (sentence !== "") announce(sentence);
  };
  return {
    root: markdown.root,
    /** @param {string} delta */
    add(delta) {
      all += delta;
      const end = Math.max(all.lastIndexOf(". "), all.lastIndexOf("\n"), all.lastIndexOf("? "), all.lastIndexOf("! "));
      if (end >= spoken) speak(end + 1);
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(draw);
    },
    finish() {
      draw();
      speak(all.length);
    },
  };
}
