import { byId, element } from "./dom.js";
import { messageOf } from "./format.js";

/** Time after which a button that asks forgets that it was pressed. Milliseconds */
const ASKING_MS = 5000;

/**
 * The button of every page that halts all work, and the line that says what is halted, with the button that lets it go on.
 * @param {{ session: import("./session.js").Session, onChange: () => void }} options `onChange` is called once the gateway has taken it
 */
export function createHaltButton({ session, onChange }) {
  const button = byId("halt", HTMLButtonElement);
  const line = byId("halted", HTMLElement);
  const problem = element("span", { role: "alert" });
  const resume = element("button", { type: "button", class: "quiet" }, "Resume");
  /** @type {string | undefined} */
  let shown;

  asking(button, {
    asks: "Halt all work?",
    does: () => session.request("v1/halts", { method: "POST", body: { kind: "all" } }),
  });
  asking(resume, { asks: "Let it go on?", does: () => session.request("v1/halts", { method: "DELETE" }) });

  /**
   * Makes a button ask once: the second press counts.
   * @param {HTMLButtonElement} pressed
   * @param {{ asks: string, does: () => Promise<unknown> }} options
   */
  function asking(pressed, { asks, does }) {
    const words = pressed.textContent ?? "";
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const rest = () => {
      clearTimeout(timer);
      timer = undefined;
      pressed.textContent = words;
    };
    pressed.addEventListener("click", () => {
      problem.textContent = "";
      if (timer === undefined) {
        pressed.textContent = asks;
        timer = setTimeout(rest, ASKING_MS);
        return;
      }
      rest();
      does().then(onChange, (error) => {
        problem.textContent = messageOf(error);
        line.hidden = false;
        if (!line.contains(problem)) line.append(problem);
      });
    });
  }

  return {
    /** @param {{ halted?: string } | undefined} health of the gateway @param {boolean} isEntered whether somebody is signed in */
    show(health, isEntered) {
      button.hidden = !isEntered || health?.halted === "all";
      const halted = isEntered ? health?.halted : undefined;
      if (halted === shown) return;
      shown = halted;
      line.hidden = halted === undefined;
      problem.textContent = "";
      const words = halted === "all"
        ? "All work is halted: nothing begins."
        : "Some work is halted; the status names it.";
      line.replaceChildren(...(halted === undefined ? [] : [element("p", {}, `${words} `, resume, " ", problem)]));
    },
  };
}
