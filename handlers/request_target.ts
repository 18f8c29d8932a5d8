/** The parts of an absolute request URL, cut and not normalised: a path that needs normalising is refused, not repaired. */
export interface RequestTarget {
  /** Lower case, without the scheme's default port */
  readonly authority: string;
  /** Still percent-encoded, starts with `/` */
  readonly path: string;
  /** With its `?`, empty without one */
  readonly search: string;
}

/** Cuts `http://host/path?query#fragment`; `new URL` costs ten times as much and repairs what must be seen. */
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

/** A `Host` value or URL authority in the form it is compared in. */
export function toAuthority(host: string, secure: boolean): string {
  const lower = host.toLowerCase();
  const port = secure ? ":443" : ":80";
  return lower.endsWith(port) ? lower.slice(0, -port.length) : lower;
}

/** The host name of an authority, `[::1]` with its brackets. */
export function hostNameOf(authority: string): string {
  if (authority.startsWith("[")) return authority.slice(0, authority.indexOf("]") + 1);
  const colon = authority.indexOf(":");
  return colon < 0 ? authority : authority.slice(0, colon);
}

const VISIBLE = /^\/[!-~]*$/;
const DOT_SEGMENT = /\/(?:\.|%2e){1,2}(?:[/?#]|$)/i;

/**
 * Whether a path can name a route at all: visible ASCII, and none of what other software would read as another path
 * (empty and dot segments, encoded ones too, a backslash, a trailing slash).
 */
export function isCleanPath(path: string): boolean {
  if (!VISIBLE.test(path) || path.includes("//") || path.includes("\\")) return false;
  if (path.length > 1 && path.endsWith("/")) return false;
  return !hasDotSegment(path);
}

/** Whether a path has a segment `.` or `..`, plain or percent-encoded. */
export function hasDotSegment(path: string): boolean {
  return DOT_SEGMENT.test(path);
}
