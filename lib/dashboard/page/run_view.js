import { createBrowserWatch } from "./browser_watch.js";
import { element } from "./dom.js";
import { readEvents } from "./event_reader.js";
import { formatNumber, formatTime, messageOf } from "./format.js";
import { createReply } from "./reply.js";
import { createReviewCard } from "./review_card.js";
import { isAtWork, runName, statusBadge, statusWords } from "./run_status.js";
import { createWrittenFiles } from "./written_files.js";

/** @typedef {import("./run_status.js").Run} Run */

/**
 * The view of a run: its state, its events as they come, and what a person can do about it.
 * @param {object} options
 * @param {import("./session.js").Session} options.session
 * @param {string} options.id
 * @param {(text: string) => void} options.announce tells a screen reader
 */
export function createRunView({ session, id, announce }) {
  const path = `v1/runs/${encodeURIComponent(id)}`;
  const reading = new AbortController();
  const name = element("span", {}, "Run");
  const title = element("h2", { tabIndex: -1 }, name, " ", element("code", {}, id));
  const facts = element("dl", { class: "facts" });
  const actions = element("div", { class: "ask-buttons" });
  const review = element("div", {});
  const problem = element("p", { class: "field-error", role: "alert" });
  const turns = element("ol", { class: "turns" });
  const browser = createBrowserWatch(path);
  const files = createWrittenFiles({ session, path });
  const root = element(
    "div",
    { class: "run" },
    element("p", {}, element("a", { href: "#runs" }, "All runs")),
    title,
    facts,
    review,
    actions,
    problem,
    browser.root,
    turns,
    files.root,
  );
  /** @type {Map<string, import("./review_card.js").Call>} */
  const calls = new Map();
  let reply = newReply();
  let shownStatus = "";
  /** True once the run has used its browser */
  let hasBrowser = false;
  /** True when all events of the run are shown, so that open calls were cut off */
  let isWhole = false;

  function newReply() {
    const made = createReply({
      announce,
      onAnswer: (approvalId, answer) =>
        session.json(`v1/approvals/${encodeURIComponent(approvalId)}`, { method: "POST", body: answer }),
      onTurnOn: (tool) => session.json(`v1/tools/${encodeURIComponent(tool)}/enable`, { method: "POST" }),
    });
    turns.replaceChildren(made.root);
    return made;
  }

  /** @param {any} event */
  function show(event) {
    if (event.type === "tool_start") calls.set(event.call_id, { tool: event.tool, input: event.input });
    if (event.type === "tool_end") {
      if (calls.get(event.call_id)?.tool === "browser") hasBrowser = true;
      files.show(event);
      calls.delete(event.call_id);
    }
    if (event.type === "done") reply.ended("");
    else if (event.type === "error") {
      reply.ended("");
      isWhole = true;
      showReview();
      problem.textContent = `${event.message} (${event.code})`;
    } else reply.show(event);
    if (["done", "error", "approval_needed", "approval_answered", "run_start"].includes(event.type)) void refresh();
  }

  function follow() {
    return readEvents({
      session,
      runId: id,
      signal: reading.signal,
      onEvent: show,
      onProblem: (text) => void (problem.textContent = text === "" ? "" : `The events cannot be shown: ${text}`),
    });
  }

  /** @param {(path: string) => Promise<any>} [read] */
  async function refresh(read = session.json) {
    try {
      const run = await read(path);
      if (run !== undefined) showRun(run);
    } catch (error) {
      problem.textContent = `The run cannot be shown: ${messageOf(error)}`;
    }
  }

  async function poll() {
    await Promise.all([refresh(session.poll), ...(hasBrowser ? [browser.poll(session.poll)] : [])]);
  }

  /** @param {Run} run */
  function showRun(run) {
    name.textContent = runName(run);
    facts.replaceChildren(
      fact("Status", statusBadge(run)),
      ...(typeof run.message === "string" ? [fact("Message", run.message)] : []),
      fact("Kind", run.kind),
      fact("Model", run.model),
      fact("Accepted", formatTime(run.created_at)),
      ...(run.ended_at === null ? [] : [fact("Ended", formatTime(run.ended_at))]),
      ...(run.conversation_id === null ? [] : [fact("Conversation", link("chat", run.conversation_id))]),
      fact("Log", link("logs", id, "Lines that name this run")),
      fact("Tokens", `${run.usage.estimated ? "about " : ""}${formatNumber(run.usage.total_tokens)}`),
    );
    if (run.status === shownStatus) return;
    shownStatus = run.status;
    announce(`The run: ${statusWords(run.status)}.`);
    actions.replaceChildren(...(isAtWork(run.status) ? [cancelButton()] : []));
    showReview();
  }

  function showReview() {
    const isOpen = isWhole && shownStatus === "needs_review";
    review.replaceChildren(
      ...(isOpen ? [createReviewCard({ calls: [...calls.values()], onDecide: decide })] : []),
    );
  }

  function cancelButton() {
    const button = element("button", { type: "button", onclick: () => void cancel() }, "Cancel this run");
    const cancel = async () => {
      button.disabled = true;
      try {
        showRun(await session.json(`${path}/cancel`, { method: "POST" }));
        title.focus();
      } catch (error) {
        problem.textContent = messageOf(error);
        button.disabled = false;
      }
    };
    return button;
  }

  /** @param {import("./review_card.js").Decision} decision */
  async function decide(decision) {
    showRun(await session.json(`${path}/resolve`, { method: "POST", body: decision }));
    title.focus();
    problem.textContent = "";
    // Read again: what was shown as its end is taken back where the run goes on
    calls.clear();
    files.clear();
    isWhole = false;
    reply = newReply();
    void follow();
  }

  void refresh();
  void follow();
  return {
    root,
    poll,
    focus: () => title.focus(),
    /** Ends the reading; the run goes on. */
    close: () => reading.abort(),
  };
}

/**
 * @param {string} view
 * @param {string} id
 * @param {string} [words] Default: the id
 */
function link(view, id, words = id) {
  return element("a", { href: `#${view}/${encodeURIComponent(id)}` }, words);
}

/**
 * @param {string} name
 * @param {Node | string} value
 */
function fact(name, value) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value));
}
