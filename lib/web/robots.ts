/** Rule of a robots.txt. */
export interface RobotsRule {
  readonly allow: boolean;
  /** Path with `*` for any characters and `$` for the end, percent-encoded alike */
  readonly pattern: string;
  /** Line of the file, from 1 */
  readonly line: number;
}

/** Bytes of a robots.txt that are read. */
export const MAX_ROBOTS_BYTES = 512_000;
/** UTF-16 units of a rule and of a path that are compared, and rules that are kept. */
const MAX_PATTERN = 2000;
const MAX_RULES = 20_000;

/**
 * Returns the rules of a robots.txt for an agent: those of all groups that name it, else those of the groups for `*`.
 * @param agent product token in lower case, such as `postern`
 * Source: RFC 9309
 */
export function parseRobots(text: string, agent: string): readonly RobotsRule[] {
  const own: RobotsRule[] = [];
  const others: RobotsRule[] = [];
  let isNamed = false;
  let groups = { own: false, others: false };
  let inAgents = false;
  for (const [at, written] of text.replace(/^\ufeff/, "").split(/\r\n|[\r\n]/).entries()) {
    const [, name = "", value = ""] = /^\s*([a-z-]+)\s*:\s*([^#]*)/i.exec(written.slice(0, MAX_PATTERN + 100)) ?? [];
    switch (name.toLowerCase()) {
      case "user-agent": {
        if (!inAgents) groups = { own: false, others: false };
        inAgents = true;
        const token = /^[a-z_-]+/i.exec(value)?.[0]?.toLowerCase();
        if (token === agent) groups.own = isNamed = true;
        if (value.trim() === "*") groups.others = true;
        break;
      }
      case "allow":
      case "disallow": {
        inAgents = false;
        const pattern = value.trim();
        // An empty rule says nothing
        if (!/^[/*]/.test(pattern) || pattern.length > MAX_PATTERN) break;
        const rule = { allow: name.toLowerCase() === "allow", pattern: encoded(pattern), line: at + 1 };
        if (groups.own && own.length < MAX_RULES) own.push(rule);
        if (groups.others && others.length < MAX_RULES) others.push(rule);
      }
    }
  }
  return isNamed ? own : others;
}

/** Returns the rule that forbids a path with its query. undefined: it may be fetched. The longest rule decides, and an allow over a disallow. */
export function forbiddenBy(rules: readonly RobotsRule[], path: string): RobotsRule | undefined {
  const wanted = encoded(path).slice(0, MAX_PATTERN);
  if (wanted === "/robots.txt") return undefined;
  let best: RobotsRule | undefined;
  for (const rule of rules) {
    const longer = rule.pattern.length - (best?.pattern.length ?? -1);
    if (longer < 0 || (longer === 0 && !rule.allow) || !matches(rule.pattern, wanted)) continue;
    best = rule;
  }
  return best === undefined || best.allow ? undefined : best;
}

/** Takes the first place for each piece between the stars, which finds a match where there is one. */
function matches(pattern: string, path: string): boolean {
  const isAnchored = pattern.endsWith("$");
  const [first = "", ...rest] = (isAnchored ? pattern.slice(0, -1) : pattern).split("*");
  if (!path.startsWith(first)) return false;
  let at = first.length;
  for (const [index, piece] of rest.entries()) {
    if (isAnchored && index === rest.length - 1) return path.length - piece.length >= at && path.endsWith(piece);
    const found = path.indexOf(piece, at);
    if (found === -1) return false;
    at = found + piece.length;
  }
  return !isAnchored || at === path.length;
}

/** Percent-encodes alike what may be written in two ways: other characters than ASCII, and the case of escapes. */
function encoded(path: string): string {
  return path.replace(/[^\x21-\x7e]+/g, (characters) => encodeURIComponent(characters.toWellFormed())).replace(
    /%([0-9a-f]{2})/gi,
    (escape, hex: string) => {
      const character = String.fromCharCode(Number.parseInt(hex, 16));
      return /[\w~.-]/.test(character) ? character : escape.toUpperCase();
    },
  );
}
