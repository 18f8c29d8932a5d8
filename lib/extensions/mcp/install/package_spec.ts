import { CodedError } from "../../../base/errors.ts";
import { withoutEnd } from "../../../base/text.ts";

/** Registry that packages of programs come from. */
export type PackageRegistry = "npm" | "pypi";

/** Package as a person names it. */
export interface PackageSpec {
  /** Undefined: both registries may have a package of this name */
  readonly registry: PackageRegistry | undefined;
  readonly name: string;
  /** Exact version, or a tag of npm such as `next`. Undefined: the newest release */
  readonly version: string | undefined;
}

/** Target of `postern mcp add`: a package to install, or the address of a server that runs already. */
export type AddTarget =
  | { readonly kind: "package"; readonly spec: PackageSpec }
  | { readonly kind: "url"; readonly url: string };

/** Code of a refusal to install a server. */
export type McpInstallErrorCode =
  | "package_name_invalid"
  | "package_not_found"
  | "package_ambiguous"
  | "package_refused"
  | "package_tampered"
  | "installer_missing"
  | "installer_failed"
  | "server_name_invalid";

/** Refusal to install or enter a server. The message names the package, the reason and the way out. */
export class McpInstallError extends CodedError<McpInstallErrorCode> {
  override readonly name = "McpInstallError";
}

const MAX_NAME = 214;
const MAX_VERSION = 64;
/** Source: npm "package.json", name: lower case, at most 214 characters, begins with a letter or digit */
const NPM_NAME = /^(?:@[a-z0-9][a-z0-9._-]*\/)?[a-z0-9][a-z0-9._-]*$/;
/** Source: PEP 508, "Names" */
const PYPI_NAME = /^[A-Z0-9](?:[A-Z0-9._-]*[A-Z0-9])?$/i;
/** Source: Semantic Versioning 2.0.0 */
const NPM_VERSION = /^\d{1,10}\.\d{1,10}\.\d{1,10}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$/;
const NPM_TAG = /^[a-z][a-z0-9._-]*$/i;
/** Source: PEP 440, in the forms that PyPI has */
const PYPI_VERSION = /^(?:\d{1,10}!)?\d{1,10}(?:\.\d{1,10})*(?:(?:a|b|rc|\.post|\.dev)\d{1,10})*(?:\+[a-z0-9.]+)?$/i;

/**
 * Reads what a person wants to add: `https://...`, `npm:<name>[@<version>]`, `pypi:<name>[==<version>]`, `@scope/name[@<version>]`,
 * `<name>==<version>` or `<name>[@<version>]`. Flags, paths, addresses of archives and ranges of versions are refused.
 * @throws {McpInstallError} `package_name_invalid`
 */
export function parseAddTarget(text: string): AddTarget {
  if (/^https?:\/\//i.test(text)) return { kind: "url", url: parseServerUrl(text) };
  const [, prefix, rest = ""] = /^(?:(npm|pypi):)?(.*)$/s.exec(text) ?? [];
  const named = prefix === "npm" || prefix === "pypi" ? prefix : undefined;
  if (named !== "npm" && rest.includes("==")) return { kind: "package", spec: readPython(text, rest) };
  if (named === "pypi") return { kind: "package", spec: readPython(text, rest.replace("@", "==")) };
  const at = rest.lastIndexOf("@");
  const [name, version] = at > 0 ? [rest.slice(0, at), rest.slice(at + 1)] : [rest, undefined];
  const isBoth = named === undefined && !name.startsWith("@");
  if (isBoth && PYPI_NAME.test(name) && name !== name.toLowerCase()) {
    return { kind: "package", spec: readPython(text, rest.replace("@", "==")) };
  }
  if (name.length > MAX_NAME || !NPM_NAME.test(name)) throw notAPackage(text);
  if (
    version !== undefined && (version.length > MAX_VERSION || !(NPM_VERSION.test(version) || NPM_TAG.test(version)))
  ) {
    throw notAVersion(text, version);
  }
  return { kind: "package", spec: { registry: isBoth ? undefined : "npm", name, version } };
}

/** Returns the form of a package that `postern mcp add` takes back, such as `npm:@scope/name@1.2.3`. */
export function shownPackage({ registry, name, version }: PackageSpec): string {
  const separator = registry === "pypi" ? "==" : "@";
  const prefix = registry === undefined ? "" : `${registry}:`;
  return `${prefix}${name}${version === undefined ? "" : `${separator}${version}`}`;
}

/** Tells whether a text is an exact version of npm, and no tag or range. */
export function isExactVersion(version: string): boolean {
  return NPM_VERSION.test(version);
}

/** Returns the name under which PyPI keeps a package. Source: PEP 503, "Normalized Names" */
export function pythonName(name: string): string {
  return name.replace(/[-_.]+/g, "-").toLowerCase();
}

/**
 * Returns a name for `[mcp.servers.<name>]` that says what a package is: `@modelcontextprotocol/server-memory` gives `memory`.
 * @returns undefined for a text without a letter or digit
 */
export function suggestServerName(text: string): string | undefined {
  const last = text.replace(/^@[^/]*\//, "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
  const short = last.replace(/^(?:mcp-)?server-/, "").replace(/-(?:mcp-server|mcp|server)$/, "").replace(/^mcp-/, "");
  const name = withoutEnd((short === "" ? last : short).slice(0, MAX_SERVER_NAME), "-");
  return isServerName(name) ? name : undefined;
}

const MAX_SERVER_NAME = 32;

/** Tells whether a text can name a server: tools are called `mcp__<server>__<tool>`. */
export function isServerName(text: string): boolean {
  return text.length <= MAX_SERVER_NAME && /^[a-z0-9]+(?:[_-][a-z0-9]+)*$/i.test(text);
}

/** Checks the name of a server. @throws {McpInstallError} `server_name_invalid` */
export function requireServerName(text: string): string {
  if (isServerName(text)) return text;
  const rule = `letters and digits with single "-" or "_" between them, at most ${MAX_SERVER_NAME} characters`;
  throw new McpInstallError(
    "server_name_invalid",
    `Cannot name a server ${JSON.stringify(text.slice(0, 64))}: it must be ${rule}; give another with --name`,
  );
}

/** @throws {McpInstallError} `package_name_invalid` */
function parseServerUrl(text: string): string {
  const url = URL.parse(text);
  if (url === null || text.length > 2048) throw invalid(text.slice(0, 64), "it is no address of a server");
  if (url.username !== "" || url.password !== "") {
    throw invalid(url.host, "the address holds a user or a password; give them as headers of the server instead");
  }
  if (url.hash !== "") throw invalid(url.host, 'the address of a server has no "#"');
  return url.href;
}

function readPython(text: string, rest: string): PackageSpec {
  const [name = "", version, ...more] = rest.split("==");
  if (name.length > MAX_NAME || !PYPI_NAME.test(name) || more.length > 0) throw notAPackage(text);
  if (version !== undefined && (version.length > MAX_VERSION || !PYPI_VERSION.test(version))) {
    throw notAVersion(text, version);
  }
  return { registry: "pypi", name, version };
}

function notAPackage(text: string): McpInstallError {
  return invalid(text, "it is no name of a package; give npm:<name>, pypi:<name>, or the address of a server");
}

function notAVersion(text: string, version: string): McpInstallError {
  const shown = JSON.stringify(version.slice(0, MAX_VERSION));
  return invalid(text, `${shown} is no exact version; give one such as 1.2.3, or none for the newest release`);
}

function invalid(text: string, reason: string): McpInstallError {
  return new McpInstallError(
    "package_name_invalid",
    `Cannot add ${JSON.stringify(text.slice(0, 100))}: ${reason}`,
  );
}
