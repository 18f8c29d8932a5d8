import { byId, element } from "./dom.js";
import { formatTime, messageOf } from "./format.js";

/** @typedef {import("../../base/records/conversation.ts").Conversation} Conversation */

const SHOWN = 50;

/**
 * The list of conversations beside the chat, and the name of the one that is open, which can be changed there, or the whole deleted.
 * @param {object} options
 * @param {import("./session.js").Session} options.session
 * @param {() => void} options.onDeleted called when the open conversation is gone
 */
export function createPastView({ session, onDeleted }) {
  const list = byId("past-list", HTMLElement);
  const note = byId("past-note", HTMLElement);
  const more = byId("past-more", HTMLButtonElement);
  const toggle = byId("past-toggle", HTMLButtonElement);
  const panel = byId("past", HTMLElement);
  const head = byId("talk-head", HTMLElement);
  /** @type {Conversation[]} */
  let known = [];
  let openId = "";
  /** Lists that were asked for: only the last one counts */
  let asked = 0;

  async function load(after = "") {
    const number = ++asked;
    try {
      const place = after === "" ? "" : `&after=${encodeURIComponent(after)}`;
      // A token that may not see them is refused once, and not after each reply
      const found = await session.poll(`v1/conversations?limit=${SHOWN}${place}`);
      if (number !== asked || found === undefined) return;
      const { data, has_more: hasMore } = found;
      known = after === "" ? data : [...known, ...data];
      more.hidden = !hasMore;
      note.textContent = known.length === 0 ? "None is stored yet." : "";
      show();
    } catch (error) {
      if (number !== asked) return;
      note.textContent = `They cannot be shown: ${messageOf(error)}`;
    }
  }

  function show() {
    list.replaceChildren(...known.map(({ id, title, updated_at: time }) => {
      const link = element("a", { href: `#chat/${encodeURIComponent(id)}`, title: formatTime(time) }, title ?? id);
      if (id === openId) link.setAttribute("aria-current", "true");
      return element("li", {}, link);
    }));
    const conversation = known.find(({ id }) => id === openId);
    head.hidden = conversation === undefined;
    if (conversation !== undefined && head.dataset["shown"] !== headKey(conversation)) showHead(conversation);
  }

  /** @param {Conversation} conversation */
  function headKey({ id, title }) {
    return `${id} ${title}`;
  }

  /** @param {Conversation} conversation */
  function showHead(conversation) {
    const { id, title } = conversation;
    head.dataset["shown"] = headKey(conversation);
    const rename = element(
      "button",
      { type: "button", class: "quiet", onclick: () => showForm(conversation) },
      "Rename",
    );
    const remove = element("button", { type: "button", class: "quiet", onclick: () => askAgain(id, remove) }, "Delete");
    head.replaceChildren(element("strong", { id: "talk-title" }, title ?? id), rename, remove);
  }

  /** @param {Conversation} conversation */
  function showForm(conversation) {
    const { id, title } = conversation;
    const field = element("input", {
      id: "talk-name",
      type: "text",
      maxLength: 200,
      value: title ?? "",
      required: true,
    });
    const cancel = element(
      "button",
      { type: "button", class: "quiet", onclick: () => showHead(conversation) },
      "Cancel",
    );
    const form = element(
      "form",
      {},
      element("label", { class: "hidden", htmlFor: "talk-name" }, "Name of this conversation"),
      field,
      element("button", { type: "submit" }, "Save"),
      cancel,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim() !== "") {
        void change(`v1/conversations/${encodeURIComponent(id)}`, "POST", { title: field.value.trim() });
      }
    });
    head.replaceChildren(form);
    field.focus();
    field.select();
  }

  /**
   * @param {string} id
   * @param {HTMLButtonElement} button
   */
  function askAgain(id, button) {
    const sure = element(
      "button",
      { type: "button", onclick: () => void change(`v1/conversations/${encodeURIComponent(id)}`, "DELETE") },
      "Delete for good",
    );
    button.replaceWith(sure);
    sure.focus();
  }

  /**
   * @param {string} path
   * @param {string} method
   * @param {unknown} [body]
   */
  async function change(path, method, body) {
    delete head.dataset["shown"];
    try {
      await session.json(path, { method, ...(body === undefined ? {} : { body }) });
      if (method === "DELETE") onDeleted();
      note.textContent = "";
    } catch (error) {
      show();
      head.append(
        element("p", { class: "field-error", role: "alert" }, messageOf(error)),
      );
      return;
    }
    await load();
  }

  more.addEventListener("click", () => void load(known.at(-1)?.id));
  toggle.addEventListener("click", () => {
    const opens = panel.dataset["open"] !== "true";
    panel.dataset["open"] = String(opens);
    toggle.setAttribute("aria-expanded", String(opens));
  });

  return {
    load,
    /** @param {string} id of the conversation that is open, empty for a new one */
    mark(id) {
      openId = id;
      panel.dataset["open"] = "false";
      toggle.setAttribute("aria-expanded", "false");
      show();
    },
    /** Forgets everything, as on signing out. */
    reset() {
      asked++;
      known = [];
      openId = "";
      note.textContent = "";
      more.hidden = true;
      show();
    },
  };
}
