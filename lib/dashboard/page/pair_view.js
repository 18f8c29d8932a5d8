import { browserName } from "./browser_name.js";
import { byId } from "./dom.js";
import { ApiError } from "./session.js";

const IDLE_DAYS = 30;

/**
 * The pairing form. A code in the address (`#pair=ABCD-EFGH`) is put into the field, and taken out of the address at once. That of
 * `postern open` (`#open=ABCD-EFGH`) is used at once too, unless this browser is signed in.
 * @param {object} options
 * @param {import("./session.js").Session} options.session
 * @param {() => void} options.onPaired
 */
export function createPairView({ session, onPaired }) {
  const code = byId("pair-code", HTMLInputElement);
  const submit = byId("pair-submit", HTMLButtonElement);
  const tokenInput = byId("token-input", HTMLInputElement);

  /** @param {string} message */
  const showError = (message) => {
    byId("pair-error", HTMLElement).textContent = message;
    code.setAttribute("aria-invalid", String(message !== ""));
  };

  const pair = async () => {
    const entered = code.value.trim();
    if (entered === "") return refuse("Enter the code first");
    submit.disabled = true;
    try {
      const { token, token_id: id } = await session.json("pair", {
        method: "POST",
        headers: { "x-pairing-code": entered },
        body: { label: browserName(navigator.userAgent), idle_ttl_seconds: IDLE_DAYS * 24 * 60 * 60 },
      });
      code.value = "";
      showError("");
      session.setToken(token, id);
      onPaired();
    } catch (error) {
      refuse(toSentence(error));
    } finally {
      submit.disabled = false;
    }
  };

  /** @param {string} message */
  const refuse = (message) => {
    showError(message);
    code.focus();
    code.select();
  };

  const [, way, given = ""] = /^#(pair|open)=([\w-]{1,32})$/.exec(location.hash) ?? [];
  if (way !== undefined) {
    code.value = given;
    history.replaceState(null, "", location.pathname + location.search);
  }

  byId("pair-form", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    void pair();
  });
  byId("token-form", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    const token = tokenInput.value.trim();
    tokenInput.value = "";
    if (token === "") return;
    showError("");
    session.setToken(token);
    onPaired();
  });

  return {
    /** @param {string} [reason] why pairing is needed again */
    open(reason = "") {
      showError(reason);
      code.focus();
      if (way === "open" && code.value === given) void pair();
    },
  };
}

/** @param {unknown} error */
function toSentence(error) {
  if (!(error instanceof ApiError)) return String(error);
  switch (error.code) {
    case "pairing_code_invalid":
      return "This code is wrong, used or expired: take the newest one, or a fresh one from postern pair.";
    case "pairing_locked":
      return `Too many wrong codes: try again in ${
        Math.ceil(error.retryAfterSeconds / 60)
      } min, or take a code from postern pair.`;
    default:
      return error.message;
  }
}
