import { createPublicKey, verify as verifySignature } from "node:crypto";
import { open } from "node:fs/promises";
import { isAbsolute, join, normalize, sep } from "node:path";
import * as v from "valibot";
import { canonicalJson, isShallow } from "../../base/json.ts";
import { compareVersions, isSemanticVersion } from "../../base/semantic_version.ts";
import { messageOf, ToolError } from "../../base/errors.ts";
import { exactText } from "../../base/text.ts";
import type { UrlRules } from "../../system/net/url_rules.ts";
import type { GuardedFetch } from "../../system/net/guarded_fetch.ts";
import { PLUGIN_KINDS, type RegistryEntry } from "../../base/records/extension_views.ts";
import type { PluginCapabilities, PluginManifest } from "./manifest.ts";
import { ExtensionError } from "../extension_error.ts";
import { MAX_PACKAGE_BYTES, sha256Of } from "./plugin_package.ts";

/** Name of the index in a folder. */
const INDEX_NAME = "index.json";
const MAX_INDEX_BYTES = 4_194_304;
const MAX_PLUGINS = 10_000;
const MAX_VERSIONS = 1_000;
const TIMEOUT_MS = 60_000;
const PACKAGE_TIMEOUT_MS = 300_000;
/** Bytes of an Ed25519 public key in DER before the key itself. Source: RFC 8410 section 4 */
const KEY_PREFIX = Buffer.from("302a300506032b6570032100", "hex");

const shortText = (max: number) =>
  v.pipe(v.string(), v.maxLength(max), v.check((text) => exactText(text) === text && !text.includes("\n")));
const id = v.pipe(v.string(), v.regex(/^[a-z0-9][a-z0-9-]{0,63}$/));
const version = v.pipe(v.string(), v.check(isSemanticVersion));
const bytesOf = (count: number) =>
  v.pipe(
    v.string(),
    v.check((text) => /^[A-Za-z0-9+/]+={0,2}$/.test(text) && Buffer.from(text, "base64").length === count),
  );

const versionSchema = v.strictObject({
  version,
  kind: v.picklist(PLUGIN_KINDS),
  /** Address of the package, relative to the index */
  url: shortText(2_000),
  size: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(MAX_PACKAGE_BYTES)),
  sha256: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  capabilities: v.optional(
    v.strictObject({
      workspace: v.optional(v.picklist(["none", "read", "write"]), "none"),
      hosts: v.optional(v.pipe(v.array(shortText(300)), v.maxLength(64)), []),
      host_functions: v.optional(v.pipe(v.array(shortText(64)), v.maxLength(64)), []),
    }),
    {},
  ),
  /** Ed25519 signature by the publisher, both in base64 */
  signature: v.exactOptional(v.strictObject({ key: bytesOf(32), value: bytesOf(64) })),
});

const indexSchema = v.strictObject({
  format: v.literal("postern-plugins-1"),
  /** Counts the editions of the index: an older one is refused once a newer one was seen */
  serial: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(Number.MAX_SAFE_INTEGER)),
  expires_at: v.pipe(v.string(), v.isoTimestamp()),
  plugins: v.pipe(
    v.array(
      v.strictObject({
        id,
        description: shortText(1_024),
        versions: v.pipe(v.array(versionSchema), v.minLength(1), v.maxLength(MAX_VERSIONS)),
      }),
    ),
    v.maxLength(MAX_PLUGINS),
  ),
});

/** Index of a registry. */
export type RegistryIndex = v.InferOutput<typeof indexSchema>;
/** Version of a plugin in an index. */
export type RegistryVersion = v.InferOutput<typeof versionSchema>;

/** Key of a publisher that was pinned, and the newest edition of an index that it signed. */
export interface PinnedKey {
  /** Ed25519 public key in base64 */
  readonly key: string;
  readonly serial: number;
}

/** Ways of a registry to its files. */
export interface RegistryOptions {
  /** `[plugins] registry_url`: the address of an index or of its folder, or an absolute folder of this machine */
  readonly url: string;
  readonly guardedFetch: () => Promise<GuardedFetch>;
  /** `[url_access]` */
  readonly rules: UrlRules;
  /** Milliseconds since the epoch */
  readonly now: number;
  readonly signal: AbortSignal;
}

/**
 * Reads the index of a registry.
 * @throws {ExtensionError} `plugin_conflict`: no registry is configured; `registry_failed`: no or a wrong answer, an index that has expired
 */
export async function readIndex(options: RegistryOptions): Promise<RegistryIndex> {
  const { url, now } = options;
  if (url === "") {
    const reason = "no registry is configured; set [plugins] registry_url";
    throw new ExtensionError("plugin_conflict", `Cannot use the registry of plugins: ${reason}`);
  }
  const bytes = await readFileOf(options, { path: undefined, maxBytes: MAX_INDEX_BYTES });
  const index = parseIndex(bytes, url);
  if (Date.parse(index.expires_at) <= now) throw failed(`its index has expired at ${index.expires_at}`);
  return index;
}

/** Returns the plugins whose id or description has every word of a query, by id. An empty query finds all. */
export function searchIndex({ plugins }: RegistryIndex, query: string): readonly RegistryEntry[] {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== "");
  return plugins.filter(({ id, description }) => {
    const text = `${id} ${description}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }).map(({ id, description, versions }) => {
    const { version, kind, size, capabilities, signature } = newestOf(versions);
    return { id, description, version, kind, size, capabilities, key: signature?.key ?? null };
  }).sort((a, b) => (a.id < b.id ? -1 : 1));
}

/**
 * Chooses a version of a plugin and checks its signature.
 * @param options.version Default: the newest one; a pre-release only where there is no other
 * @param options.pinned key of the publisher that was accepted before. Undefined: the first one is accepted
 * @throws {ExtensionError} `plugin_not_found`, `signature_invalid`
 */
export function chooseVersion(
  index: RegistryIndex,
  { id, version, pinned }: {
    readonly id: string;
    readonly version: string | undefined;
    readonly pinned: PinnedKey | undefined;
  },
): RegistryVersion {
  const entries = index.plugins.filter((plugin) => plugin.id === id);
  const [entry] = entries;
  if (entry === undefined) throw notThere(`Cannot find the plugin "${id}" in the registry: see postern plugin search`);
  if (entries.length > 1) throw failed(`its index has the plugin "${id}" twice`);
  const chosen = version === undefined
    ? newestOf(entry.versions)
    : entry.versions.find((one) => one.version === version);
  if (chosen === undefined) throw notThere(`Cannot find version ${version} of "${id}" in the registry`);
  checkSignature(chosen, { id, index, pinned });
  return chosen;
}

/**
 * Fetches the package of a version and compares it with the index.
 * @throws {ExtensionError} `registry_failed`, `hash_mismatch`
 */
export async function fetchPackage(chosen: RegistryVersion, options: RegistryOptions): Promise<Uint8Array> {
  // A byte more than the index says is read, so that a longer package shows
  const bytes = await readFileOf(options, { path: chosen.url, maxBytes: chosen.size + 1 });
  if (bytes.length !== chosen.size) {
    const found = bytes.length > chosen.size ? `more than ${chosen.size}` : String(bytes.length);
    throw new ExtensionError(
      "hash_mismatch",
      `Cannot use the package: it has ${found} bytes, and the registry says ${chosen.size}`,
    );
  }
  const sha256 = sha256Of(bytes);
  if (sha256 === chosen.sha256) return bytes;
  throw new ExtensionError(
    "hash_mismatch",
    `Cannot use the package: its SHA-256 is ${sha256}, and the registry says ${chosen.sha256}`,
  );
}

/** Refuses a package whose manifest says something else than the index, which was shown and signed. @throws {ExtensionError} */
export function compareManifest(
  manifest: PluginManifest,
  { id, chosen }: { readonly id: string; readonly chosen: RegistryVersion },
): void {
  const { capabilities } = chosen;
  const sorted = ({ workspace, hosts, host_functions: functions }: PluginCapabilities) =>
    canonicalJson([workspace, [...hosts].sort(), [...functions].sort()]);
  const other = manifest.id !== id
    ? "id"
    : manifest.version !== chosen.version
    ? "version"
    : manifest.kind !== chosen.kind
    ? "kind"
    : sorted(manifest.capabilities) !== sorted(capabilities)
    ? "capabilities"
    : undefined;
  if (other === undefined) return;
  throw new ExtensionError(
    "package_invalid",
    `Cannot use the package of "${id}": its manifest has another "${other}" than the registry says`,
  );
}

/** Returns the text that a publisher signs: canonical JSON (RFC 8785) in UTF-8. */
export function signedText(
  chosen: Pick<RegistryVersion, "version" | "sha256" | "capabilities">,
  { id, index }: { readonly id: string; readonly index: Pick<RegistryIndex, "serial" | "expires_at"> },
): Uint8Array {
  const { version, sha256, capabilities } = chosen;
  const { serial, expires_at } = index;
  return new TextEncoder().encode(canonicalJson({ id, version, sha256, capabilities, serial, expires_at }));
}

/** Tells whether a text is an Ed25519 public key in base64. */
export function isPublisherKey(text: string): boolean {
  return v.is(bytesOf(32), text);
}

function checkSignature(
  chosen: RegistryVersion,
  { id, index, pinned }: { readonly id: string; readonly index: RegistryIndex; readonly pinned: PinnedKey | undefined },
): void {
  const { signature } = chosen;
  const wrong = (reason: string) =>
    new ExtensionError("signature_invalid", `Cannot use "${id}" ${chosen.version}: ${reason}`);
  if (signature === undefined) {
    if (pinned === undefined) return;
    throw wrong("it is not signed, and versions before it were");
  }
  if (pinned !== undefined && signature.key !== pinned.key) {
    const wayOut = `postern plugin trust-key ${id} ${signature.key}, once the publisher has told you so, accepts it`;
    throw wrong(`it is signed by another key than the versions before it; ${wayOut}`);
  }
  if (pinned !== undefined && index.serial < pinned.serial) {
    throw wrong(
      `the index of the registry is older (${index.serial}) than one that was seen before (${pinned.serial})`,
    );
  }
  const key = createPublicKey({
    key: Buffer.concat([KEY_PREFIX, Buffer.from(signature.key, "base64")]),
    format: "der",
    type: "spki",
  });
  if (verifySignature(null, signedText(chosen, { id, index }), key, Buffer.from(signature.value, "base64"))) return;
  throw wrong("its signature is wrong");
}

function newestOf(versions: readonly RegistryVersion[]): RegistryVersion {
  const stable = versions.filter(({ version }) => !version.includes("-"));
  const [first, ...others] = stable.length > 0 ? stable : versions;
  if (first === undefined) throw failed("a plugin of its index has no version");
  return others.reduce((best, one) => (compareVersions(one.version, best.version) > 0 ? one : best), first);
}

function parseIndex(bytes: Uint8Array, url: string): RegistryIndex {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (cause) {
    throw failed(`the index at "${url}" is no JSON in UTF-8`, cause);
  }
  const parsed = isShallow(value, 16) ? v.safeParse(indexSchema, value, { abortEarly: true }) : undefined;
  if (parsed?.success) return parsed.output;
  const place = parsed === undefined
    ? "it is nested too deep"
    : `"${v.getDotPath(parsed.issues[0]) ?? ""}" is missing or wrong`;
  throw failed(`the index at "${url}" cannot be used: ${exactText(place)}`);
}

/** Reads a file of a registry. @param path as the index names it; undefined: the index itself */
async function readFileOf(
  options: RegistryOptions,
  { path, maxBytes }: { readonly path: string | undefined; readonly maxBytes: number },
): Promise<Uint8Array> {
  return isAbsolute(options.url)
    ? await readFromFolder(options.url, { path: path ?? INDEX_NAME, maxBytes })
    : await download(options, { path, maxBytes });
}

async function readFromFolder(
  folder: string,
  { path, maxBytes }: { readonly path: string; readonly maxBytes: number },
): Promise<Uint8Array> {
  const place = normalize(join(folder, path));
  if (!place.startsWith(`${normalize(folder).replace(/[\\/]$/, "")}${sep}`)) {
    throw failed(`"${exactText(path)}" lies outside of its folder`);
  }
  try {
    const file = await open(place, "r");
    try {
      const { size } = await file.stat();
      if (size > maxBytes) throw new Error(`it is larger than ${maxBytes} bytes`);
      return await file.readFile();
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw failed(`"${place}" cannot be read: ${messageOf(cause)}`, cause);
  }
}

async function download(
  { url, guardedFetch, rules, signal }: RegistryOptions,
  { path, maxBytes }: { readonly path: string | undefined; readonly maxBytes: number },
): Promise<Uint8Array> {
  const index = new URL(url.endsWith("/") ? `${url}${INDEX_NAME}` : url);
  const address = path === undefined ? index : URL.parse(path, index.href);
  if (address === null) throw failed(`"${exactText(path ?? "")}" is no address`);
  const parts: Uint8Array[] = [];
  try {
    const guarded = await guardedFetch();
    const { status, truncated } = await guarded({
      method: "GET",
      url: address.href,
      // The operator named the registry. What it leads to elsewhere is as any other address
      guard: { rules, fromConfig: address.origin === index.origin },
      maxBytes,
      sink: ({ status }) =>
        Promise.resolve(
          status === 200 ? { write: (bytes) => void parts.push(Uint8Array.from(bytes)), close: () => {} } : undefined,
        ),
      timeoutMs: path === undefined ? TIMEOUT_MS : PACKAGE_TIMEOUT_MS,
      signal,
    });
    if (status !== 200) throw failed(`"${address.href}" answered with status ${status}`);
    if (truncated && path === undefined) throw failed(`"${address.href}" is larger than ${maxBytes} bytes`);
  } catch (cause) {
    if (cause instanceof ToolError) throw failed(cause.message, cause);
    throw cause;
  }
  return Buffer.concat(parts);
}

function failed(reason: string, cause?: unknown): ExtensionError {
  return new ExtensionError("registry_failed", `Cannot use the registry of plugins: ${reason}`, { cause });
}

function notThere(message: string): ExtensionError {
  return new ExtensionError("plugin_not_found", message);
}
