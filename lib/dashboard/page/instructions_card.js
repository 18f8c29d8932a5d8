import { byId, element } from "./dom.js";
import { exactLine, exactText } from "./exact_text.js";
import { messageOf } from "./format.js";

const PATH = "v1/workspace-instructions";

/** @typedef {import("../../base/records/extension_views.ts").InstructionsInfo} Instructions */

/**
 * The instructions of the workspace: the file, what changed of it since it was trusted, to trust it and to take the trust back. Its text is
 * somebody else's: what cannot be seen is spelled out.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createInstructionsCard({ session }) {
  const card = byId("instructions", HTMLElement);
  const body = byId("instructions-body", HTMLElement);
  const note = byId("instructions-note", HTMLElement);

  async function load() {
    try {
      /** @type {Instructions} */
      const info = await session.json(PATH);
      card.hidden = info.file === null && !info.enabled;
      body.replaceChildren(...toFacts(info), toButtons(info));
    } catch (error) {
      // A token without the right to see them is shown no card
      card.hidden = true;
      body.replaceChildren();
      note.textContent = messageOf(error);
    }
  }

  /**
   * Does a change, says what came of it, and shows the instructions as they are now.
   * @param {string} label
   * @param {() => Promise<unknown>} work
   */
  async function change(label, work) {
    try {
      await work();
      note.textContent = `${label}: done.`;
    } catch (error) {
      note.textContent = `${label}: ${messageOf(error)}`;
    }
    await load();
    byId("instructions-title", HTMLElement).focus();
  }

  /** @param {Instructions} info */
  function toButtons({ state, digest, trusted_digest: before }) {
    const trust = () =>
      change("Trust", () => session.request(`${PATH}/trust`, { method: "POST", body: { digest, before } }));
    const untrust = () => change("Stop trusting", () => session.request(`${PATH}/untrust`, { method: "POST" }));
    return element(
      "div",
      { class: "ask-buttons" },
      ...(state === "untrusted" || state === "changed" ? [button("Trust this content", trust)] : []),
      ...(before === null ? [] : [button("Stop trusting", untrust)]),
    );
  }

  return {
    load,
    /** Forgets everything, as on signing out. */
    reset() {
      card.hidden = true;
      note.textContent = "";
      body.replaceChildren();
    },
  };
}

/**
 * @param {string} label
 * @param {() => Promise<void>} work
 */
function button(label, work) {
  const made = element("button", {
    type: "button",
    onclick: () => {
      made.disabled = true;
      void work();
    },
  }, label);
  return made;
}

/** @param {Instructions} info */
function toFacts({ file, state, on, reason, bytes, used_bytes: used, text, difference, digest }) {
  const cut = used !== null && bytes !== null && used < bytes
    ? ` Runs are told of the first ${used} of ${bytes} bytes.`
    : "";
  const says = on ? "Runs are told of it." : `Runs are not told of it: ${exactLine(reason ?? state)}.`;
  const shown = difference ?? text;
  return [
    element("p", { class: "hint" }, `${file ?? "No file"}: ${state}. ${says}${cut}`),
    ...(shown === null ? [] : [
      element("p", { class: "tool-label" }, difference === null ? "Text" : "Changed since it was trusted"),
      element("pre", { tabIndex: 0, "aria-label": "Instructions" }, exactText(shown)),
    ]),
    element("p", { class: "ask-rule hint" }, digest === null ? "" : `SHA-256 ${digest}`),
  ];
}
