import { createChatSocket } from "./chat_socket.js";
import { byId, element } from "./dom.js";
import { messageOf } from "./format.js";
import { pastTurns, question } from "./past_messages.js";
import { createPastView } from "./past_view.js";
import { createReply } from "./reply.js";

const MAX_ANNOUNCED = 30;
/** Stored messages that are shown at once */
const PAGE = 100;
const NOTHING_STORED = "Nothing is stored under this address. Its first reply may be at work still: see Runs.";
/** Messages that a person may begin with. The commands are the offline assistant's: a model knows none of them */
const STARTERS = ["What files are here?"];
const OFFLINE_STARTERS = [...STARTERS, "/tools", "/help"];

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
  /** @type {ReturnType<typeof createReply> | undefined} */
  let reply;
  let asked = "";
  let stopping = false;
  let atEnd = true;
  /** @type {string | undefined} */
  let conversationId;
  /** Place of the oldest message that is shown: those before it are there to be asked for */
  let firstShown = 0;
  const earlier = byId("earlier", HTMLElement);
  const note = byId("chat-note", HTMLElement);
  const past = createPastView({
    session,
    onDeleted: () => beginNew(),
  });

  const socket = createChatSocket({
    session,
    onFrame,
    onClosed: () => fail("The connection was lost before the reply ended"),
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

  /** @param {any} frame */
  function onFrame(frame) {
    if (frame.type === "run_start" && typeof frame.conversation_id === "string") isIn(frame.conversation_id);
    if (reply === undefined) return;
    const shown = reply;
    if (frame.type === "error") {
      return frame.code === "cancelled" || stopping ? end(() => shown.stopped()) : fail(frame.message);
    }
    if (frame.type === "done") return end(() => shown.done(frame));
    following(() => shown.show(frame));
  }

  /** @param {() => void} finish */
  function end(finish) {
    following(finish);
    reply = undefined;
    stopping = false;
    showRunning();
    void past.load();
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
    const text = asked;
    end(() => failed.failed(reason, () => void send(text)));
  }

  function showRunning() {
    const running = reply !== undefined;
    const hadFocus = document.activeElement === stopButton;
    stopButton.hidden = !running;
    stopButton.disabled = stopping;
    sendButton.hidden = running;
    if (!running && hadFocus) message.focus();
  }

  /** @param {string} text */
  async function send(text) {
    if (reply !== undefined || text.trim() === "") return;
    asked = text;
    byId("welcome", HTMLElement).hidden = true;
    reply = createReply({
      announce,
      onAnswer: (id, answer) =>
        session.json(`v1/approvals/${encodeURIComponent(id)}`, { method: "POST", body: answer }),
      onTurnOn: (tool) => session.json(`v1/tools/${encodeURIComponent(tool)}/enable`, { method: "POST" }),
    });
    showNote("");
    turns.append(question(text), reply.root);
    atEnd = true;
    scrollToEnd();
    showRunning();
    try {
      await socket.send({
        type: "message",
        text,
        ...(model.value === "" ? {} : { model: model.value }),
        ...(conversationId === undefined ? {} : { conversation_id: conversationId }),
      });
    } catch (error) {
      fail(messageOf(error));
    }
  }

  function stop() {
    if (reply === undefined || stopping) return;
    stopping = true;
    showRunning();
    socket.send({ type: "cancel" }).catch(() => fail("The connection was lost"));
  }

  function startAnew() {
    socket.close();
    reply = undefined;
    stopping = false;
    conversationId = undefined;
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
      const { message_count: count } = await session.json(`${pathOf(id)}?limit=1`);
      if (conversationId !== id) return;
      firstShown = count + 1;
      await showEarlier();
      atEnd = true;
      scrollToEnd();
    } catch (error) {
      if (conversationId !== id) return;
      const isUnknown = /** @type {{ status?: number }} */ (error).status === 404;
      showNote(isUnknown ? NOTHING_STORED : `It cannot be shown: ${messageOf(error)}`);
    }
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

  function submit() {
    const text = message.value;
    if (reply !== undefined || text.trim() === "") return;
    message.value = "";
    fitHeight();
    void send(text);
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
  message.addEventListener("input", fitHeight);
  message.addEventListener("keydown", (event) => {
    // While an input method composes, Enter belongs to it. Safari says so by the key code 229 alone
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    submit();
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

  return {
    /** @param {{ models: readonly { id: string, owned_by: string }[], workspace: string | undefined, problem: string | undefined }} about */
    describe({ models, workspace, problem }) {
      const chosen = model.value;
      model.replaceChildren(
        element("option", { value: "" }, models.length === 1 ? models[0]?.id ?? "" : "Default model"),
        ...(models.length < 2 ? [] : models.map(({ id }) => element("option", { value: id }, id))),
      );
      model.value = models.some(({ id }) => id === chosen) ? chosen : "";
      const isOffline = models.length > 0 && models.every(({ owned_by }) => owned_by === "postern");
      offerStarters(isOffline ? OFFLINE_STARTERS : STARTERS);
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
