import { byId, element } from "./dom.js";
import { formatSize, messageOf } from "./format.js";

/** Files that the gateway takes with one message */
const MAX_FILES = 20;
/** Media type of what is neither a picture nor a document: no model is shown it */
const UNKNOWN = "application/octet-stream";
const KINDS = "pictures (PNG, JPEG, WebP, GIF), PDF, Word documents (.docx) and plain text";

/** A file that the gateway has. @typedef {{ id: string, name: string }} SentFile */

/** A file that was chosen; without an id it is on its way. @typedef {{ name: string, id?: string, root: HTMLElement, stop: () => void }} Chosen */

/**
 * Files that go with the next message: each is sent to the gateway as soon as it is chosen, dropped or pasted.
 * @param {object} options
 * @param {import("./session.js").Session} options.session
 * @param {() => string} options.conversationId of the conversation that they are for
 */
export function createChatFiles({ session, conversationId }) {
  const list = byId("files", HTMLUListElement);
  const note = byId("files-note", HTMLElement);
  const picker = byId("files-input", HTMLInputElement);
  const message = byId("message", HTMLTextAreaElement);
  const chat = byId("chat", HTMLElement);
  /** @type {Chosen[]} */
  let chosen = [];

  /** @param {string} text */
  function say(text) {
    note.textContent = text;
    note.hidden = text === "";
  }

  /** @param {Iterable<File>} files */
  function add(files) {
    say("");
    for (const file of files) {
      if (chosen.length < MAX_FILES) void send(file);
      else say(`At most ${MAX_FILES} files go with a message: "${file.name}" and what came after it was left out.`);
    }
  }

  /** @param {File} file */
  async function send(file) {
    const { name } = file;
    const leaving = new AbortController();
    const state = element("span", { class: "hint" }, "is being sent");
    const button = element("button", { type: "button", class: "quiet", "aria-label": `Remove ${name}` }, "×");
    const root = element(
      "li",
      { class: "file" },
      element("span", { class: "file-name", title: name }, name),
      state,
      button,
    );
    /** @type {Chosen} */
    const one = { name, root, stop: () => leaving.abort() };
    button.addEventListener("click", () => remove(one));
    chosen.push(one);
    list.append(root);
    list.hidden = false;
    const form = new FormData();
    form.append("purpose", "user_data");
    form.append("conversation_id", conversationId());
    form.append("file", file);
    try {
      const reply = await session.request("v1/files", { method: "POST", form, signal: leaving.signal });
      const { id, bytes, content_type: type } = await reply.json();
      if (!chosen.includes(one)) return forget(id);
      one.id = id;
      state.textContent = formatSize(bytes);
      if (type !== UNKNOWN) return;
      remove(one);
      say(`"${name}" was left out: the agent is shown ${KINDS}.`);
    } catch (error) {
      if (!chosen.includes(one)) return;
      remove(one);
      say(`"${name}" was left out: ${messageOf(error)}`);
    }
  }

  /** Takes a file out of the message, and from the gateway. @param {Chosen} one */
  function remove(one) {
    const at = chosen.indexOf(one);
    const hadFocus = one.root.contains(document.activeElement);
    chosen = chosen.filter((each) => each !== one);
    one.root.remove();
    one.stop();
    if (one.id !== undefined) forget(one.id);
    list.hidden = chosen.length === 0;
    if (hadFocus) (chosen[Math.min(at, chosen.length - 1)]?.root.querySelector("button") ?? message).focus();
  }

  /** @param {string} id */
  function forget(id) {
    // A gateway that does not answer keeps the file, until a person deletes it
    session.request(`v1/files/${encodeURIComponent(id)}`, { method: "DELETE" }).catch(() => {});
  }

  byId("files-add", HTMLButtonElement).addEventListener("click", () => picker.click());
  picker.addEventListener("change", () => {
    add(picker.files ?? []);
    picker.value = "";
    message.focus();
  });
  message.addEventListener("paste", (event) => {
    const { files, types } = event.clipboardData ?? new DataTransfer();
    // Office programs copy a text, and a picture of it beside
    if (files.length === 0 || types.includes("text/plain")) return;
    event.preventDefault();
    add(files);
  });
  chat.addEventListener("dragover", (event) => {
    if (event.dataTransfer?.types.includes("Files") !== true) return;
    event.preventDefault();
    chat.dataset["drop"] = "";
  });
  chat.addEventListener("dragleave", (event) => {
    if (!(event.relatedTarget instanceof Node && chat.contains(event.relatedTarget))) delete chat.dataset["drop"];
  });
  chat.addEventListener("drop", (event) => {
    delete chat.dataset["drop"];
    if (event.dataTransfer === null || event.dataTransfer.files.length === 0) return;
    event.preventDefault();
    add(event.dataTransfer.files);
    message.focus();
  });

  return {
    /**
     * Takes the files for a message.
     * @param {{ text: string, isBusy: boolean }} about the message, and whether a reply is at work
     * @returns {readonly SentFile[] | undefined} undefined: they cannot go now, and the page says why
     */
    take({ text, isBusy }) {
      /** @type {SentFile[]} */
      const ready = chosen.flatMap(({ id, name }) => id === undefined ? [] : [{ id, name }]);
      const why = chosen.length === 0
        ? ""
        : isBusy
        ? "Files go with the next message: send it when the reply has ended, or remove them."
        : ready.length < chosen.length
        ? "The files are still being sent: wait a moment, or remove them."
        : text.trim() === ""
        ? "Say what to do with the files."
        : "";
      say(why);
      if (why !== "") return undefined;
      for (const { root } of chosen) root.remove();
      chosen = [];
      list.hidden = true;
      return ready;
    },
    /** Takes all files out of the message, as for another conversation. */
    clear() {
      for (const one of chosen) remove(one);
      say("");
    },
  };
}
