/** Brands in the order they are looked for: most browsers also call themselves Chrome or Safari. @type {readonly (readonly [RegExp, string])[]} */
const BRANDS = [
  [/\bEdgA?\//, "Edge"],
  [/\bOPR\//, "Opera"],
  [/\b(?:Firefox|FxiOS)\//, "Firefox"],
  [/\b(?:HeadlessChrome|Chrome|CriOS)\//, "Chrome"],
  [/\bSafari\//, "Safari"],
];

/** @type {readonly (readonly [RegExp, string])[]} */
const SYSTEMS = [
  [/\bAndroid\b/, "Android"],
  [/\biPhone\b/, "iPhone"],
  [/\biPad\b/, "iPad"],
  [/\bWindows\b/, "Windows"],
  [/\bMac OS X\b/, "macOS"],
  [/\bCrOS\b/, "ChromeOS"],
  [/\bLinux\b/, "Linux"],
];

/**
 * Returns a browser's name for the list of tokens, for example "Firefox on Linux".
 * @param {string} userAgent
 */
export function browserName(userAgent) {
  const brand = find(BRANDS, userAgent) ?? "Browser";
  const system = find(SYSTEMS, userAgent);
  return system === undefined ? brand : `${brand} on ${system}`;
}

/**
 * @param {readonly (readonly [RegExp, string])[]} names
 * @param {string} userAgent
 */
function find(names, userAgent) {
  return names.find(([pattern]) => pattern.test(userAgent))?.[1];
}
