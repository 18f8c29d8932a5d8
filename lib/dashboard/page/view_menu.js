import { byId } from "./dom.js";

/** As in style.css: from here on the bar has room for all views. */
const WIDE = "(min-width: 1190px)";

/**
 * The views behind one button, which names the one that is shown, where the bar has no room for all of them. Keys, focus and the press
 * beside it are the browser's: the list is a popover.
 */
export function createViewMenu() {
  const button = byId("menu", HTMLButtonElement);
  const list = byId("nav", HTMLElement);
  list.addEventListener("beforetoggle", () => {
    list.style.top = `${button.getBoundingClientRect().bottom + 4}px`;
    list.style.left = `${button.getBoundingClientRect().left}px`;
  });
  list.addEventListener("toggle", () => button.setAttribute("aria-expanded", String(list.matches(":popover-open"))));
  list.addEventListener("click", () => list.hidePopover());
  matchMedia(WIDE).addEventListener("change", () => list.hidePopover());

  return {
    /** @param {string} view to mark as the one that is shown @param {boolean} isHidden true while nobody is signed in */
    show(view, isHidden) {
      list.hidden = button.hidden = isHidden;
      for (const link of list.querySelectorAll("a")) {
        const isShown = link.hash === `#${view}`;
        if (isShown) byId("menu-view", HTMLElement).textContent = link.firstChild?.textContent ?? "";
        if (isShown) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
    },
  };
}
