import { element } from "./dom.js";
import { formatTime } from "./format.js";

/** Operations that are shown, the newest. */
const SHOWN = 20;

/**
 * Creates the view of a run's browser for a person who watches: the last picture of the page, and what was done there. Nothing is shown
 * before the first poll that finds a browser.
 * @param {string} path of the run, such as `v1/runs/run_1`
 */
export function createBrowserWatch(path) {
  const picture = element("img", { class: "browser-picture", alt: "" });
  const caption = element("figcaption", {});
  const figure = element("figure", { hidden: true }, picture, caption);
  const actions = element("ol", { class: "browser-actions", reversed: true });
  const root = element(
    "section",
    { class: "browser-watch", hidden: true },
    element("h3", {}, "Browser"),
    figure,
    actions,
  );

  /** @param {any} view */
  function show(view) {
    root.hidden = false;
    const newest = view.actions.slice(-SHOWN).reverse();
    actions.setAttribute("start", String(view.actions_dropped + view.actions.length));
    actions.replaceChildren(...newest.map(actionItem));
    if (view.picture === null) return;
    picture.src = `data:${view.picture.media_type};base64,${view.picture.data}`;
    const address = newest.find((/** @type {any} */ action) => action.url !== "")?.url ?? "";
    picture.alt = `The page that the browser shows: ${address}`;
    caption.textContent = `${address} ${view.open ? "at" : "when it was closed, at"} ${
      formatTime(view.picture.taken_at)
    }`;
    figure.hidden = false;
  }

  return {
    root,
    /** @param {(path: string) => Promise<any>} read gives undefined where there is nothing new to show */
    async poll(read) {
      const view = await read(`${path}/browser`).catch(() => undefined);
      if (view !== undefined) show(view);
    },
  };
}

/** @param {{ op: string, target: string, error: string | null }} action */
function actionItem({ op, target, error }) {
  return element(
    "li",
    {},
    element("code", {}, op),
    ` ${target}`,
    ...(error === null ? [] : [element("span", { class: "field-error" }, ` ${error}`)]),
  );
}
