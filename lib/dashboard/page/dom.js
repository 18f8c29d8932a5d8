/**
 * An element with properties and children. Text becomes text nodes: nothing here parses HTML, so data cannot become markup.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown>} [properties] `class` and names with a hyphen are attributes, `on*` listeners, the rest properties
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class" || name.includes("-")) made.setAttribute(name, String(value));
    else if (typeof value === "function") made.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else Reflect.set(made, name, value);
  }
  made.append(...children);
  return made;
}

/**
 * The element of the page with this id.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (found instanceof kind) return found;
  throw new TypeError(`The page has no ${kind.name} with id "${id}"`);
}
