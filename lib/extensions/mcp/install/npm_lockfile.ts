import * as v from "valibot";
import { McpInstallError } from "./package_spec.ts";

/** Source: npm "package-lock.json", lockfileVersion 3 */
const lockfileSchema = v.object({
  lockfileVersion: v.literal(3),
  packages: v.record(
    v.string(),
    v.object({
      version: v.optional(v.string()),
      resolved: v.optional(v.string()),
      integrity: v.optional(v.string()),
      link: v.optional(v.boolean(), false),
      inBundle: v.optional(v.boolean(), false),
      hasInstallScript: v.optional(v.boolean(), false),
      bin: v.optional(v.record(v.string(), v.string()), {}),
      dependencies: v.optional(v.record(v.string(), v.string()), {}),
      optionalDependencies: v.optional(v.record(v.string(), v.string()), {}),
      peerDependencies: v.optional(v.record(v.string(), v.string()), {}),
    }),
  ),
});

/** Package that npm has resolved with all that it needs. */
export interface LockedPackage {
  readonly version: string;
  /** `sha512-...` of the registry's metadata */
  readonly integrity: string;
  /** Programs of the package by name: paths in its folder */
  readonly programs: Readonly<Record<string, string>>;
  /** Packages whose install scripts do not run, each once */
  readonly withScripts: readonly string[];
  /** Packages in all, the named one included */
  readonly count: number;
}

const MAX_PACKAGES = 5000;
/** SHA-1 and MD5 can be forged. */
const STRONG = /(?:^|\s)sha(?:512|384|256)-[A-Za-z0-9+/]{43,88}={0,2}(?:\s|$)/;

/**
 * Reads a lockfile of npm, and refuses what the registry's metadata do not vouch for: packages from git, from other addresses and from
 * folders, and packages without a strong digest.
 * @throws {McpInstallError} `package_refused`, with the package that is at fault
 */
export function checkLockfile(text: string, name: string): LockedPackage {
  const packages = parse(text, name);
  const entries = Object.entries(packages).filter(([path]) => path !== "");
  if (entries.length > MAX_PACKAGES) throw refuse(name, `it needs more than ${MAX_PACKAGES} packages`);
  for (const [path, entry] of entries) {
    const shown = JSON.stringify(nameOf(path));
    if (entry.link || !path.startsWith("node_modules/")) throw refuse(name, `it needs ${shown}, which is a folder`);
    const needs = [entry.dependencies, entry.optionalDependencies, entry.peerDependencies].flatMap(
      Object.entries<string>,
    );
    for (const [needed, range] of needs) {
      if (isFromRegistry(range)) continue;
      const reason = `${shown} needs ${JSON.stringify(needed)} from ${JSON.stringify(range.slice(0, 80))}`;
      throw refuse(name, `${reason}, and only packages of the registry have a digest that can be checked`);
    }
    // A bundled package lies in the tarball of another, whose digest counts for it
    if (entry.inBundle) continue;
    if (!/^https?:\/\//.test(entry.resolved ?? "")) throw refuse(name, `${shown} does not come from a registry`);
    if (!STRONG.test(entry.integrity ?? "")) throw refuse(name, `the registry has no strong digest of ${shown}`);
  }
  const own = packages[`node_modules/${name}`];
  if (own?.version === undefined || own.integrity === undefined) throw refuse(name, "npm did not resolve it");
  const withScripts = entries.filter(([, entry]) => entry.hasInstallScript).map(([path]) => nameOf(path));
  return {
    version: own.version,
    integrity: own.integrity,
    programs: own.bin,
    withScripts: [...new Set(withScripts)],
    count: entries.length,
  };
}

function parse(text: string, name: string): v.InferOutput<typeof lockfileSchema>["packages"] {
  try {
    return v.parse(lockfileSchema, JSON.parse(text)).packages;
  } catch (cause) {
    const reason = "npm wrote a lockfile that cannot be read; npm 7 or newer is needed";
    throw new McpInstallError("package_refused", `Cannot install "${name}": ${reason}`, { cause });
  }
}

/** Ranges of versions, tags and aliases name packages of the registry. Addresses, folders and `owner/repository` do not. */
function isFromRegistry(range: string): boolean {
  const aliased = range.replace(/^npm:(?:@[^/@]+\/)?[^/@]+@?/, "");
  return !/[:/]/.test(aliased);
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
}

function refuse(name: string, reason: string): McpInstallError {
  return new McpInstallError("package_refused", `Cannot install "${name}": ${reason}`);
}
