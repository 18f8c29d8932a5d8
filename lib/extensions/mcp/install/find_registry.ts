import type { GuardedFetch } from "../../../system/net/guarded_fetch.ts";
import type { UrlRules } from "../../../system/net/url_rules.ts";
import { McpInstallError, type PackageRegistry, pythonName } from "./package_spec.ts";

/** Registries of the person, and the way to ask them. */
export interface RegistryLookup {
  readonly fetch: GuardedFetch;
  readonly rules: UrlRules;
  /** Environment of the person: `npm_config_registry`, `UV_DEFAULT_INDEX` and `PIP_INDEX_URL` name other registries */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
}

const TIMEOUT_MS = 20_000;
const NPM = "https://registry.npmjs.org/";
const PYPI = "https://pypi.org/simple/";

/**
 * Finds which of the two registries has a package, since the same name may belong to different people in each of them.
 * @throws {McpInstallError} `package_ambiguous` where both have it, or one cannot be asked; `package_not_found` where none has it
 */
export async function findRegistry(name: string, lookup: RegistryLookup): Promise<PackageRegistry> {
  const [npm, pypi] = await Promise.all([
    has(`${base(named(lookup.env, "npm_config_registry") ?? NPM)}${name}`, lookup),
    has(`${base(lookup.env["UV_DEFAULT_INDEX"] ?? lookup.env["PIP_INDEX_URL"] ?? PYPI)}${pythonName(name)}/`, lookup),
  ]);
  if (npm === true && pypi === false) return "npm";
  if (pypi === true && npm === false) return "pypi";
  if (npm === false && pypi === false) {
    throw new McpInstallError("package_not_found", `Cannot add "${name}": neither npm nor PyPI has it`);
  }
  const unknown = npm === undefined ? "npm" : "PyPI";
  const reason = npm === true && pypi === true
    ? "npm and PyPI both have a package of this name, which may be of different people"
    : `${unknown} could not be asked whether it has a package of this name too`;
  throw new McpInstallError(
    "package_ambiguous",
    `Cannot add "${name}": ${reason}; say which one: "npm:${name}" or "pypi:${name}"`,
  );
}

/** @returns undefined where the registry gives no answer that says */
async function has(url: string, lookup: RegistryLookup): Promise<boolean | undefined> {
  const { rules, signal } = lookup;
  const guard = { rules, fromConfig: true };
  const request = { method: "HEAD", url, guard, maxBytes: 1024, timeoutMs: TIMEOUT_MS } as const;
  const reply = await lookup.fetch({ ...request, signal }).catch((error: unknown) => {
    if (signal.aborted) throw error;
    return undefined;
  });
  if (reply?.status === 404) return false;
  return reply !== undefined && reply.status >= 200 && reply.status < 300 ? true : undefined;
}

/** Returns a variable of npm, whose names count in any case. */
function named(env: RegistryLookup["env"], name: string): string | undefined {
  return Object.entries(env).find(([key, value]) => key.toLowerCase() === name && value !== undefined)?.[1];
}

function base(url: string): string {
  return url.endsWith("/") ? url : `${url}/`;
}
