import { element } from "./dom.js";
import { messageOf } from "./format.js";

/**
 * A button that turns a tool on for good, and what came of it.
 * @param {{ tool: string, turn_on: { key: string, value: boolean | string } }} offer
 * @param {(tool: string) => Promise<unknown>} onTurnOn what it rejects with is shown
 */
export function createToolOffer({ tool, turn_on: { key, value } }, onTurnOn) {
  const note = element("span", { role: "status" }, `sets ${key} = ${value}`);
  const button = element("button", { type: "button" }, `Turn on ${tool}`);
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await onTurnOn(tool);
      button.remove();
      note.textContent = `${tool} is on from your next message.`;
    } catch (error) {
      button.disabled = false;
      note.textContent = messageOf(error);
    }
  });
  return element("p", { class: "hint tool-offer" }, button, " ", note);
}

/**
 * Turns a tool on at the gateway.
 * @param {import("./session.js").Session} session
 * @param {string} tool
 */
export function turnOn(session, tool) {
  return session.json(`v1/tools/${encodeURIComponent(tool)}/enable`, { method: "POST" });
}
