import { byId, element } from "./dom.js";
import { messageOf } from "./format.js";

/** Milliseconds after which a button that asks forgets that it was pressed */
const ASKING_MS = 5000;

/**
 * The button of every page that halts all work, and the line that says what is halted, with the button that lets it go on.
 * @param {{ session: import("./session.js").Session, onChange: () => void }} options `onChange` is called once the gateway has taken it
 */
export function createHaltButton({ session, onChange }) {
  const button = byId("halt", HTMLButtonElement);
  const line = byId("halted", HTMLElement);
  const words = element("p", {});
  const resume = element("button", { type: "button", class: "quiet" }, "Resume");
  asking(button, "Halt all work?", () => session.request("v1/halts", { method: "POST", body: { kind: "all" } }));
  asking(resume, "Let it go on?", () => session.request("v1/halts", { method: "DELETE" }));

  /**
   * Makes a button ask once: the second press counts.
   * @param {HTMLButtonElement} pressed
   * @param {string} question
   * @param {() => Promise<unknown>} does
   */
  function asking(pressed, question, does) {
    const label = pressed.textContent;
    pressed.addEventListener("click", () => {
      const isAnswer = pressed.textContent === question;
      pressed.textContent = isAnswer ? label : question;
      if (!isAnswer) return void setTimeout(() => (pressed.textContent = label), ASKING_MS);
      does().then(onChange, (error) => {
        line.hidden = false;
        line.replaceChildren(element("p", { role: "alert" }, messageOf(error)));
      });
    });
  }

  return {
    /** @param {{ halted?: string } | undefined} health of the gateway; undefined: nobody is signed in */
    show(health) {
      const halted = health?.halted;
      button.hidden = health === undefined || halted === "all";
      line.hidden = halted === undefined;
      if (halted === undefined || words.dataset["halted"] === halted && line.contains(words)) return;
      words.dataset["halted"] = halted;
      words.replaceChildren(halted === "all" ? "All work is halted. " : "Some work is halted. ", resume);
      line.replaceChildren(words);
    },
  };
}
