/** The parts of an absolute request URL as they came. A path that needs normalising is refused, not repaired. */
export interface RequestTarget {
  /** Lower case, without the scheme's default port */
  readonly authority: string;
  /** Still percent-encoded, starts with `/` */
  readonly path: string;
  /** With its `?`, empty without one */
  readonly search: string;
}

/** Cuts `http://host/path?query#fragment` into its parts. `new URL` costs ten times as much, and repairs the paths that must be refused. */
export function parseRequestTarget(url: string): RequestTarget {
  const authorityStart = url.indexOf("://") + 3;
  let end = url.indexOf("#", authorityStart);
  if (end < 0) end = url.length;
  let searchStart = url.indexOf("?", authorityStart);
  if (searchStart < 0 || searchStart > end) searchStart = end;
  let pathStart = url.indexOf("/", authorityStart);
  if (pathStart < 0 || pathStart > searchStart) pathStart = searchStart;
  return {
    authority: toAuthority(url.slice(authorityStart, pathStart), url.startsWith("https:")),
    path: pathStart === searchStart ? "/" : url.slice(pathStart, searchStart),
    search: url.slice(searchStart, end),
  };
}

/** Returns a `Host` value or URL authority in lower case, without the scheme's default port, for comparing. */
export function toAuthority(host: string, secure: boolean): string {
  const lower = host.toLowerCase();
  const port = secure ? ":443" : ":80";
  return lower.endsWith(port) ? lower.slice(0, -port.length) : lower;
}

/** Returns the host name of an authority; an IPv6 address keeps its brackets, as `[::1]`. */
export function hostNameOf(authority: string): string {
  if (authority.startsWith("[")) return authority.slice(0, authority.indexOf("]") + 1);
  const colon = authority.indexOf(":");
  return colon < 0 ? authority : authority.slice(0, colon);
}

const VISIBLE = /^\/[!-~]*$/;
const DOT_SEGMENT = /\/(?:\.|%2e){1,2}(?:[/?#]|$)/i;

/**
 * Tells whether a path can name a route: visible ASCII without anything that other software would read as another path
 * (empty segments, dot segments, also percent-encoded ones, a backslash, a trailing slash).
 */
export function isCleanPath(path: string): boolean {
  if (!VISIBLE.test(path) || path.includes("//") || path.includes("\\")) return false;
  if (path.length > 1 && path.endsWith("/")) return false;
  return !hasDotSegment(path);
}

/** Tells whether a path has a segment `.` or `..`, plain or percent-encoded. */
export function hasDotSegment(path: string): boolean {
  return DOT_SEGMENT.test(path);
}
