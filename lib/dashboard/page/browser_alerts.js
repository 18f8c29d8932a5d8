import { byId } from "./dom.js";
import { exactLine } from "./exact_text.js";

/** Questions that are named one by one; more of them are told as one. */
const MAX_NAMED = 3;

/**
 * @typedef {{ id: string, tool: string, kind?: string | undefined, description?: { title?: string | undefined } | undefined }} Waiting
 * an approval that waits for its answer
 */

/**
 * Tells the person who looks elsewhere: the number of approvals that wait goes into the title of the tab and onto the badge of an installed
 * page, and new ones are told through the browser once the person has allowed it by the button. Nothing is told while the page is closed.
 */
export function createBrowserAlerts() {
  const button = byId("notify-me", HTMLButtonElement);
  const canTell = "Notification" in globalThis;
  /** Ids that the person has seen or was told of @type {Set<string>} */
  let known = new Set();
  let title = document.title;
  let count = 0;

  const showButton = () => {
    button.hidden = !canTell || Notification.permission !== "default";
  };

  const showTitle = () => {
    document.title = count === 0 ? title : `(${count}) ${title}`;
  };

  /**
   * @param {string} text
   * @param {string} tag a later one of the same tag takes its place
   */
  const tell = (text, tag) => {
    const alert = new Notification("Postern", { body: text, tag });
    alert.onclick = () => {
      focus();
      location.hash = "#approvals";
      alert.close();
    };
  };

  button.addEventListener("click", () => void Notification.requestPermission().then(showButton));
  showButton();

  return {
    /** @param {string} text title of the page without a number */
    setTitle(text) {
      title = text;
      showTitle();
    },
    /** @param {readonly Waiting[]} waiting all that wait */
    show(waiting) {
      count = waiting.length;
      showTitle();
      // A browser without badges has none of these
      void (count === 0 ? navigator.clearAppBadge?.() : navigator.setAppBadge?.(count));
      const news = waiting.filter(({ id }) => !known.has(id));
      known = new Set(waiting.map(({ id }) => id));
      if (!document.hidden || !canTell || Notification.permission !== "granted" || news.length === 0) return;
      if (news.length > MAX_NAMED) return tell(`${news.length} approvals wait for your answer`, "approvals");
      for (const { id, tool, kind, description } of news) {
        const title = description?.title ?? `The agent wants to use ${exactLine(tool)}`;
        tell(kind === "elicitation" ? "A question waits for you" : title, id);
      }
    },
  };
}
