import { createChatFiles } from "./chat_files.js";
import { createChatSocket } from "./chat_socket.js";
import { byId, element } from "./dom.js";
import { messageOf } from "./format.js";
import { pastTurns, question } from "./past_messages.js";
import { createPastView } from "./past_view.js";
import { createReply } from "./reply.js";

const MAX_ANNOUNCED = 30;
/** Stored messages that are shown at once */
const PAGE = 100;
const NOTHING_STORED = "Nothing is stored under this address.";
const READING_ON = "The connection was lost. The reply goes on, and is shown here once the gateway is reached";
const RETRY_MS = 1500;
/** Statuses of a refusal that no other try changes */
const FINAL = new Set([400, 401, 403, 404]);
/** Messages that a person may begin with */
const STARTERS = ["What files are here?"];
const OFFLINE_STARTERS = [...STARTERS, "/tools", "/help"];

/** @typedef {{ id: string, owned_by: string }} Model */

/**
 * The chat: one conversation over one socket, one reply at a time. The address names the conversation, so that it is there again when
 * the page is reloaded.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createChatView({ session }) {
  const conversation = byId("conversation", HTMLElement);
  const turns = byId("turns", HTMLOListElement);
  const announcer = byId("announcer", HTMLElement);
  const message = byId("message", HTMLTextAreaElement);
  const model = byId("model", HTMLSelectElement);
  const sendButton = byId("send", HTMLButtonElement);
  const stopButton = byId("stop", HTMLButtonElement);
  const steerButton = byId("steer", HTMLButtonElement);
  /** @type {ReturnType<typeof createReply> | undefined} */
  let reply;
  /** The run that gives the reply, and how far it is shown @type {{ id: string, seq: number } | undefined} */
  let run;
  let asked = "";
  /** Files of that question @type {readonly import("./chat_files.js").SentFile[]} */
  let askedFiles = [];
  /** True while the reply is by the model that answers where none is chosen */
  let isDefault = false;
  let stopping = false;
  /** Messages that wait behind the reply, or to be taken into it @type {{ id: string, text: string, root: HTMLElement }[]} */
  let waiting = [];
  /** Messages that the reply took in, whose acceptance may reach this page later @type {Set<string>} */
  const taken = new Set();
  /** The reply was joined in its middle: others may wait behind it that this page did not send */
  let joined = false;
  let atEnd = true;
  /** @type {string | undefined} */
  let conversationId;
  /** Id of a new conversation that files were sent for before its first message: they go when it is deleted @type {string | undefined} */
  let newId;
  /** Models that may be chosen @type {readonly Model[]} */
  let known = [];
  /** Place of the oldest message that is shown: those before it are there to be asked for */
  let firstShown = 0;
  const earlier = byId("earlier", HTMLElement);
  const note = byId("chat-note", HTMLElement);
  const past = createPastView({
    session,
    onDeleted: () => beginNew(),
  });

  const files = createChatFiles({ session, conversationId: () => conversationId ?? (newId ??= makeId()) });

  const socket = createChatSocket({
    session,
    onFrame,
    onClosed: () => void readOn(),
  });

  /** @param {string} text */
  function announce(text) {
    announcer.append(element("p", {}, text));
    while (announcer.childElementCount > MAX_ANNOUNCED) announcer.firstElementChild?.remove();
  }

  /** Keeps the newest line in sight, unless the reader has scrolled up. @param {() => void} change */
  function following(change) {
    change();
    // After the frame's own drawing, which was asked for before
    if (atEnd) requestAnimationFrame(scrollToEnd);
  }

  function scrollToEnd() {
    conversation.scrollTop = conversation.scrollHeight;
  }
  // A composer that grows, or a keyboard on the screen, would come to lie where the newest line was
  new ResizeObserver(() => atEnd && scrollToEnd()).observe(conversation);

  /** @param {any} frame */
  function onFrame(frame) {
    if (frame.type === "run_start" && typeof frame.conversation_id === "string") isIn(frame.conversation_id);
    if (frame.type === "run_start" && isDefault) showDefault(frame.model);
    if (reply === undefined) return;
    const shown = reply;
    shown.waits();
    if (typeof frame.run_id === "string") run = { id: frame.run_id, seq: frame.seq };
    if (frame.type === "message_taken") {
      taken.add(frame.message_id);
      forgetWaiting(frame.message_id);
    }
    if (frame.type === "error") {
      if (frame.code === "taken_in") return end(() => dropReply(shown));
      // The gateway stops, and the run with it until the next start: the socket is closed next
      if (frame.code === "shutdown" && run !== undefined) return;
      return frame.code === "cancelled" || stopping ? end(() => shown.stopped()) : fail(frame.message);
    }
    if (frame.type === "done") return end(() => shown.done(frame));
    following(() => shown.show(frame));
  }

  /** @param {() => void} finish */
  function end(finish) {
    following(finish);
    forgetReply();
    showRunning();
    void past.load();
    const [next] = waiting;
    if (next !== undefined) {
      forgetWaiting(next.id);
      follow(next.id, next.text);
    } else if (joined) void rejoinNext();
  }

  /** @param {string} id */
  function forgetWaiting(id) {
    waiting.find((one) => one.id === id)?.root.remove();
    waiting = waiting.filter((one) => one.id !== id);
  }

  /** Takes away the place of a reply that another one gave. @param {ReturnType<typeof createReply>} shown */
  function dropReply(shown) {
    shown.root.previousElementSibling?.remove();
    shown.root.remove();
  }

  /** Follows a run that was accepted before, from its beginning. @param {string} id @param {string} text */
  function follow(id, text) {
    begin(text);
    run = { id, seq: 0 };
    void readOn();
  }

  /** Shows what waited behind a reply that was joined. */
  async function rejoinNext() {
    joined = false;
    const id = conversationId ?? "";
    const { run_id: runId } = await session.json(`${pathOf(id)}?limit=1`).catch(() => ({}));
    if (conversationId === id && reply === undefined && typeof runId === "string") await rejoin(runId);
  }

  /**
   * Says something while a reply is at work. The gateway keeps it: it has its turn whatever becomes of this page.
   * @param {"queue" | "steer"} mode
   */
  async function sayMore(mode) {
    const text = message.value;
    const id = run?.id;
    const place = conversationId;
    // Before the run is known there is nothing to write to
    if (id === undefined || text.trim() === "") return;
    clearMessage();
    const root = question(text);
    root.classList.add("waits");
    root.append(element("p", { class: "hint" }, mode === "steer" ? "Steers at the next step" : "Waits for its turn"));
    turns.append(root);
    scrollToEnd();
    try {
      const accepted = await session.json(`v1/runs/${encodeURIComponent(id)}/messages`, {
        method: "POST",
        body: { message: text, mode, ...(model.value === "" ? {} : { model: model.value }) },
      });
      // Another conversation is shown by now: the gateway has the message
      if (conversationId !== place) return;
      if (taken.has(accepted.id)) return root.remove();
      waiting.push({ id: accepted.id, text, root });
      // The reply may have ended meanwhile
      if (reply === undefined) end(() => {});
    } catch (error) {
      root.remove();
      if (conversationId !== place) return;
      message.value = message.value === "" ? text : message.value;
      showNote(`It was not sent: ${messageOf(error)}`);
      showRunning();
    }
  }

  /** The address says which conversation this is. @param {string} id */
  function isIn(id) {
    conversationId = id;
    history.replaceState(null, "", `#chat/${encodeURIComponent(id)}`);
    past.mark(id);
  }

  /** @param {string} reason */
  function fail(reason) {
    const failed = reply;
    if (failed === undefined) return;
    const [text, sent] = [asked, askedFiles];
    end(() => failed.failed(reason, () => void send(text, sent)));
  }

  function forgetReply() {
    isDefault = false;
    reply = undefined;
    run = undefined;
    stopping = false;
    taken.clear();
  }

  /** Reads on where the connection was lost, for as long as the reply is wanted. */
  async function readOn() {
    const reading = run;
    if (reading === undefined) return fail("The connection was lost before the reply began");
    reply?.waits(READING_ON);
    while (run === reading) {
      try {
        await socket.send({ type: "resume", run_id: reading.id, after: reading.seq });
        if (stopping) await socket.send({ type: "cancel" });
        return;
      } catch (error) {
        const { status = 0 } = /** @type {{ status?: number }} */ (error);
        if (run === reading && FINAL.has(status)) return fail(messageOf(error));
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  function showRunning() {
    const running = reply !== undefined;
    const hadFocus = document.activeElement === stopButton;
    stopButton.hidden = !running;
    stopButton.disabled = stopping;
    const hasMore = running && message.value.trim() !== "";
    sendButton.hidden = running && !hasMore;
    sendButton.textContent = running ? "Queue" : "Send";
    steerButton.hidden = !hasMore;
    byId("steer-hint", HTMLElement).hidden = !hasMore;
    byId("composer-hint", HTMLElement).hidden = hasMore;
    if (!running && hadFocus) message.focus();
  }

  /** Shows a question, and the place of its reply. @param {string} text @param {typeof askedFiles} [sent] */
  function begin(text, sent = []) {
    asked = text;
    askedFiles = sent;
    byId("welcome", HTMLElement).hidden = true;
    reply = createReply({
      announce,
      linksRun: true,
      onAnswer: (id, answer) =>
        session.json(`v1/approvals/${encodeURIComponent(id)}`, { method: "POST", body: answer }),
      onTurnOn: (tool) => session.json(`v1/tools/${encodeURIComponent(tool)}/enable`, { method: "POST" }),
    });
    showNote("");
    turns.append(question(text, sent.map(({ name }) => name)), reply.root);
    atEnd = true;
    scrollToEnd();
    showRunning();
  }

  /** @param {string} text @param {typeof askedFiles} [sent] */
  async function send(text, sent = []) {
    if (reply !== undefined || text.trim() === "") return;
    begin(text, sent);
    isDefault = model.value === "";
    const place = conversationId ?? newId;
    try {
      await socket.send({
        type: "message",
        text,
        ...(sent.length === 0 ? {} : { files: sent.map(({ id }) => id) }),
        ...(model.value === "" ? {} : { model: model.value }),
        ...(place === undefined ? {} : { conversation_id: place }),
      });
    } catch (error) {
      fail(messageOf(error));
    }
  }

  function stop() {
    if (reply === undefined || stopping) return;
    stopping = true;
    showRunning();
    // Without a connection the reply is read on, and stopped then
    socket.send({ type: "cancel" }).catch(() => run === undefined && fail("The connection was lost"));
  }

  function startAnew() {
    socket.close();
    files.clear();
    forgetReply();
    waiting = [];
    joined = false;
    conversationId = newId = undefined;
    firstShown = 0;
    earlier.hidden = true;
    showNote("");
    past.mark("");
    turns.replaceChildren();
    announcer.replaceChildren();
    byId("welcome", HTMLElement).hidden = false;
    showRunning();
  }

  function beginNew() {
    startAnew();
    history.replaceState(null, "", "#chat");
    message.focus();
  }

  /** @param {string} text */
  function showNote(text) {
    note.textContent = text;
    note.hidden = text === "";
  }

  /** @param {string} id of a stored conversation */
  async function open(id) {
    startAnew();
    isIn(id);
    byId("welcome", HTMLElement).hidden = true;
    message.focus();
    try {
      const { message_count: count, run_id: runId } = await session.json(`${pathOf(id)}?limit=1`);
      if (conversationId !== id) return;
      firstShown = count + 1;
      await showEarlier();
      atEnd = true;
      scrollToEnd();
      if (typeof runId === "string") await rejoin(runId);
    } catch (error) {
      if (conversationId !== id) return;
      const isUnknown = /** @type {{ status?: number }} */ (error).status === 404;
      showNote(isUnknown ? NOTHING_STORED : `It cannot be shown: ${messageOf(error)}`);
    }
  }

  /** Shows the reply that is at work, from its beginning. @param {string} runId */
  async function rejoin(runId) {
    const id = conversationId;
    const { message } = await session.json(`v1/runs/${encodeURIComponent(runId)}`);
    if (conversationId !== id || reply !== undefined) return;
    joined = true;
    follow(runId, message ?? "");
  }

  async function showEarlier() {
    const id = conversationId ?? "";
    const after = Math.max(0, firstShown - 1 - PAGE);
    const limit = firstShown - 1 - after;
    if (limit < 1) return;
    const { messages } = await session.json(`${pathOf(id)}?limit=${limit}&after=${after}`);
    if (conversationId !== id) return;
    firstShown = after + 1;
    earlier.hidden = after === 0;
    turns.prepend(...pastTurns(messages.data));
  }

  /** @param {"queue" | "steer"} [mode] of a message to a reply at work */
  function submit(mode = "queue") {
    const text = message.value;
    const taken = files.take({ text, isBusy: reply !== undefined });
    if (taken === undefined) return;
    if (reply !== undefined) return void sayMore(mode);
    if (text.trim() === "") return;
    clearMessage();
    void send(text, taken);
  }

  function clearMessage() {
    message.value = "";
    fitHeight();
    showRunning();
    message.focus();
  }

  function fitHeight() {
    message.style.height = "auto";
    message.style.height = `${Math.min(message.scrollHeight, 200)}px`;
  }

  byId("composer", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  conversation.addEventListener("scroll", () => {
    atEnd = conversation.scrollHeight - conversation.scrollTop - conversation.clientHeight < 60;
  });
  message.addEventListener("input", () => {
    fitHeight();
    showRunning();
  });
  steerButton.addEventListener("click", () => submit("steer"));
  message.addEventListener("keydown", (event) => {
    // While an input method composes, Enter belongs to it. Safari says so by the key code 229 alone
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    submit(event.ctrlKey || event.metaKey ? "steer" : "queue");
  });
  byId("chat", HTMLElement).addEventListener("keydown", (event) => {
    if (event.key === "Escape") stop();
  });
  stopButton.addEventListener("click", stop);
  byId("new-chat", HTMLButtonElement).addEventListener("click", () => {
    beginNew();
  });
  byId("earlier-show", HTMLButtonElement).addEventListener("click", () => {
    const height = conversation.scrollHeight;
    showEarlier().then(
      () => void (conversation.scrollTop += conversation.scrollHeight - height),
      (error) => showNote(messageOf(error)),
    );
  });
  /** @param {readonly string[]} texts */
  function offerStarters(texts) {
    byId("chips", HTMLElement).replaceChildren(
      ...texts.map((text) =>
        element("button", { type: "button", class: "chip", onclick: () => void send(text) }, text)
      ),
    );
  }

  /** Shows which model answers where none is chosen. @param {string | undefined} id undefined: the gateway has not said */
  function showDefault(id) {
    const [option] = model.options;
    const name = id ?? (known.length === 1 ? known[0]?.id : undefined);
    if (option === undefined || name !== undefined && option.dataset["model"] === name) return;
    if (name !== undefined) option.dataset["model"] = name;
    option.textContent = name === undefined ? "Default model" : known.length < 2 ? name : `${name} (default)`;
    showAbilities();
  }

  /** The commands are the offline assistant's: where a model answers, none is offered. */
  function showAbilities() {
    const id = model.value === "" ? model.options[0]?.dataset["model"] : model.value;
    const isOffline = known.some((each) => each.id === id && each.owned_by === "postern");
    message.placeholder = isOffline ? "Ask, or /tool_name to run a tool" : "Ask, or say what to do";
    offerStarters(isOffline ? OFFLINE_STARTERS : STARTERS);
  }
  model.addEventListener("change", showAbilities);

  return {
    showDefault,
    /** @param {{ models: readonly Model[], inUse: string | undefined, workspace: string | undefined, problem: string | undefined }} about */
    describe({ models, inUse, workspace, problem }) {
      const chosen = model.value;
      known = models;
      model.replaceChildren(
        element("option", { value: "" }),
        ...(models.length < 2 ? [] : models.map(({ id }) => element("option", { value: id }, id))),
      );
      model.value = models.some(({ id }) => id === chosen) ? chosen : "";
      showDefault(inUse);
      showAbilities();
      const place = workspace === undefined
        ? "The agent works in the gateway's workspace."
        : `The agent works in ${workspace}.`;
      byId("welcome-text", HTMLElement).textContent = problem ?? place;
    },
    /** @param {string} id of the conversation to show; empty: the one that is shown already, or a new one */
    open(id) {
      void past.load();
      if (id !== "" && id !== conversationId) return void open(id);
      if (id === "" && conversationId !== undefined) isIn(conversationId);
      message.focus();
    },
    /** Ends the conversation and the connection, as on signing out. */
    reset() {
      startAnew();
      past.reset();
    },
  };
}

/** @param {string} id */
function pathOf(id) {
  return `v1/conversations/${encodeURIComponent(id)}`;
}

/** Returns an id that nobody can guess. */
function makeId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `conv_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
