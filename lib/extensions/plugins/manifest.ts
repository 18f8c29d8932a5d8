import * as v from "valibot";
import { isShallow } from "../../base/json.ts";
import { compareVersions, isSemanticVersion } from "../../base/semantic_version.ts";
import { exactText } from "../../base/text.ts";
import { VERSION } from "../../base/version.ts";
import { BUILTIN_TOOLS } from "../../tools/builtin.ts";
import { compileSchema, SchemaError } from "../../tools/runtime/json_schema.ts";
import { ExtensionError } from "../extension_error.ts";
import { PLUGIN_KINDS } from "../../base/records/extension_views.ts";

/** Name of the manifest in a plugin's folder and package. */
export const MANIFEST_NAME = "plugin.json";
/** Bytes of a manifest. */
export const MAX_MANIFEST_BYTES = 262_144;
/** Deepest nesting of a manifest. */
const MAX_DEPTH = 40;
const MAX_TOOLS = 64;
const MAX_SCHEMA_CHARACTERS = 32_768;
const MAX_ARGUMENTS = 64;
const MAX_HOSTS = 64;
const MAX_HOST_FUNCTIONS = 64;
/** Most fuel that a manifest may ask for, as `[runtime.wasm] max_fuel` may be at most. */
const MAX_FUEL = 1_000_000_000_000;

/** Names that lists of tools accept for built-in tools (docs/design/policy.md "Autonomy"), and those of tools of other machines. */
const TAKEN = /^(glob|search|memory_read|(node|mcp)__.*)$/;
/** Path of a file in the package: each part is 1-100 letters, digits, `.`, `_`, `-`, `+`, and is not `.` or `..` */
const FILE = /^(?!.*(?:^|\/)\.{1,2}(?:\/|$))[A-Za-z0-9._+-]{1,100}(?:\/[A-Za-z0-9._+-]{1,100}){0,15}$/;
const PROGRAM = /^[A-Za-z0-9._+-]{1,100}$/;
const HOST =
  /^(?:\*\.)?(?=.{1,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?::[1-9]\d{0,4})?$/;
const SYMBOL = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;

const matching = (pattern: RegExp, wanted: string) =>
  v.pipe(v.string(), v.check((text) => pattern.test(text), `must be ${wanted}`));
const shown = (max: number) =>
  v.pipe(
    v.string(),
    v.nonEmpty("must not be empty"),
    v.maxLength(max, `must have at most ${max} characters`),
    v.check((text) => exactText(text) === text, "must not hold characters that a person cannot see"),
  );
const version = v.pipe(v.string(), v.check(isSemanticVersion, "must be a semantic version, such as 1.2.0"));
const list = <const S extends v.GenericSchema>(item: S, max: number) =>
  v.pipe(v.array(item), v.maxLength(max, `must have at most ${max} entries`));
const file = matching(FILE, "the path of a file in the package, as bin/plugin.wasm");
const sha256 = matching(/^[0-9a-f]{64}$/, "a SHA-256 of 64 lower-case hexadecimal digits");

const toolSchema = v.strictObject({
  name: matching(
    /^[a-z][a-z0-9_-]{0,63}$/,
    'a name of 1-64 lower-case letters, digits, "_" or "-" that begins with a letter',
  ),
  description: shown(4_096),
  input_schema: v.record(v.string(), v.unknown()),
});

const wasmSchema = v.strictObject({
  file,
  sha256,
  /** Way of the host and the module to each other */
  abi: v.optional(v.picklist(["extism1"]), "extism1"),
  /** Exported function that answers calls */
  entrypoint: v.optional(matching(SYMBOL, "the name of an exported function"), "execute"),
  /** Units of fuel that one call asks for. Default: `[runtime.wasm] fuel_limit` */
  fuel: v.exactOptional(
    v.pipe(
      v.number(),
      v.integer("must be a whole number"),
      v.minValue(1, "must be at least 1"),
      v.maxValue(MAX_FUEL, `must be at most ${MAX_FUEL}`),
    ),
  ),
});

const processSchema = v.strictObject({
  /** A file of the package, such as `./bin/tool`, or a program of the machine, such as `node` */
  command: v.pipe(
    v.string(),
    v.check(
      (text) => text.startsWith("./") ? FILE.test(text.slice(2)) : PROGRAM.test(text),
      "must be a file of the package, as ./bin/tool, or the name of a program, as node",
    ),
  ),
  args: v.optional(
    list(
      v.pipe(v.string(), v.maxLength(4_096), v.check((text) => !text.includes("\0"), "must not hold a NUL")),
      MAX_ARGUMENTS,
    ),
    [],
  ),
  /** Digest of a command that is a file of the package */
  sha256: v.exactOptional(sha256),
  /** `one_shot`: a process for each call. `pooled`: processes that answer one call after the other */
  mode: v.optional(v.picklist(["one_shot", "pooled"]), "one_shot"),
});

const ffiSchema = v.strictObject({
  library: file,
  sha256,
  /** C function `char *<symbol>(const char *json)`; `<symbol>_free` frees its answer */
  symbol: matching(SYMBOL, "the name of a C function"),
});

const capabilitiesSchema = v.strictObject({
  workspace: v.optional(v.picklist(["none", "read", "write"]), "none"),
  hosts: v.optional(list(matching(HOST, "a host, such as api.example.com or *.example.com"), MAX_HOSTS), []),
  host_functions: v.optional(list(matching(SYMBOL, "the name of a host function"), MAX_HOST_FUNCTIONS), []),
});

const shared = {
  id: matching(
    /^[a-z0-9][a-z0-9-]{0,63}$/,
    '1-64 lower-case letters, digits or "-", and begin with a letter or a digit',
  ),
  version,
  description: shown(1_024),
  tools: v.pipe(list(toolSchema, MAX_TOOLS), v.minLength(1, "must have an entry")),
  capabilities: v.optional(capabilitiesSchema, {}),
  /** Versions of Postern that the plugin works with */
  runtime: v.optional(v.strictObject({ min: v.exactOptional(version), max: v.exactOptional(version) }), {}),
};

const SCHEMAS = {
  wasm: v.strictObject({ ...shared, kind: v.literal("wasm"), wasm: wasmSchema }),
  process: v.strictObject({ ...shared, kind: v.literal("process"), process: processSchema }),
  ffi: v.strictObject({ ...shared, kind: v.literal("ffi"), ffi: ffiSchema }),
} as const;

/** Way in which a plugin runs. */
export type PluginKind = keyof typeof SCHEMAS;
/** Checked content of a `plugin.json`, with its defaults. */
export type PluginManifest = { readonly [K in PluginKind]: v.InferOutput<typeof SCHEMAS[K]> }[PluginKind];
/** Manifest of a plugin of one kind. */
export type ManifestOf<K extends PluginKind> = Extract<PluginManifest, { readonly kind: K }>;
/** Rights that a plugin asks for. */
export type PluginCapabilities = v.InferOutput<typeof capabilitiesSchema>;
/** Tool as the manifest declares it. */
export type PluginToolManifest = v.InferOutput<typeof toolSchema>;

/**
 * Parses a `plugin.json`: a strict object with bounds on everything. Input schemas are checked by the compiler that calls of the tools
 * use, so a schema that is taken here checks all that it says.
 * @param content text, or its bytes in UTF-8
 * @throws {ExtensionError} `manifest_invalid` with the field at fault, `tool_name_taken` for the name of a built-in tool
 */
export function parsePluginManifest(content: string | Uint8Array): PluginManifest {
  const document = readJson(content);
  const kind = Object.hasOwn(document, "kind") ? document["kind"] : undefined;
  if (typeof kind !== "string" || !isKind(kind)) throw invalid("kind", `must be one of ${PLUGIN_KINDS.join(", ")}`);
  const parsed = v.safeParse(SCHEMAS[kind], document, { abortEarly: true });
  if (!parsed.success) throw toError(parsed.issues[0]);
  checkTools(parsed.output.tools);
  checkProgram(parsed.output);
  checkRange(parsed.output.runtime);
  return parsed.output;
}

/** Digest of a file that is not built yet: `plugin package` and `plugin test` put the true one in its place. */
export const NO_DIGEST = "0".repeat(64);

/** Tells whether a text names a kind of plugins. */
function isKind(text: string): text is PluginKind {
  return Object.hasOwn(SCHEMAS, text);
}

/** Tells whether a name belongs to a built-in tool, or would be taken for such a name. */
export function isTakenToolName(name: string): boolean {
  const plain = name.replaceAll("-", "_");
  return TAKEN.test(name) || TAKEN.test(plain) || BUILTIN_TOOLS.some((tool) => tool.name === plain);
}

/** Returns the path of the file that the plugin runs, in its folder. Undefined for a program of the machine. */
export function mainFile(manifest: PluginManifest): { readonly path: string; readonly sha256: string } | undefined {
  switch (manifest.kind) {
    case "wasm":
      return { path: manifest.wasm.file, sha256: manifest.wasm.sha256 };
    case "ffi":
      return { path: manifest.ffi.library, sha256: manifest.ffi.sha256 };
    case "process": {
      const { command, sha256 } = manifest.process;
      return sha256 === undefined ? undefined : { path: command.slice(2), sha256 };
    }
  }
}

/** Returns why a plugin does not work with this version of Postern; undefined when it does. */
export function versionMisfit({ runtime }: Pick<PluginManifest, "runtime">, running = VERSION): string | undefined {
  const { min, max } = runtime;
  if (min !== undefined && compareVersions(running, min) < 0) {
    return `it needs Postern ${min} or newer, and this is ${running}`;
  }
  if (max !== undefined && compareVersions(running, max) > 0) {
    return `it needs Postern ${max} or older, and this is ${running}`;
  }
  return undefined;
}

/** Returns the fields of `next` that grant more than `before` does, each as a line for a person. Empty: nothing more. */
export function widened(before: PluginCapabilities, next: PluginCapabilities): readonly string[] {
  const levels = ["none", "read", "write"];
  const lines = next.hosts.filter((host) => !before.hosts.includes(host)).map((host) => `reaches the host ${host}`);
  if (levels.indexOf(next.workspace) > levels.indexOf(before.workspace)) {
    lines.unshift(next.workspace === "write" ? "reads and writes the workspace" : "reads the workspace");
  }
  const functions = next.host_functions.filter((name) => !before.host_functions.includes(name));
  return [...lines, ...functions.map((name) => `calls the host function ${name}`)];
}

/** Capabilities of a plugin that has none. */
export const NO_CAPABILITIES: PluginCapabilities = { workspace: "none", hosts: [], host_functions: [] };

function readJson(content: string | Uint8Array): Readonly<Record<string, unknown>> {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  if (bytes.length > MAX_MANIFEST_BYTES) throw invalid("", `is larger than ${MAX_MANIFEST_BYTES} bytes`);
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (cause) {
    throw invalid("", "is no JSON in UTF-8", cause);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw invalid("", "must be a JSON object");
  if (!isShallow(value, MAX_DEPTH)) throw invalid("", `is nested deeper than ${MAX_DEPTH} levels`);
  // A JSON object that is no list
  return value as Readonly<Record<string, unknown>>;
}

function checkTools(tools: readonly PluginToolManifest[]): void {
  const names = new Set<string>();
  for (const [index, { name, input_schema: schema }] of tools.entries()) {
    const path = `tools[${index}]`;
    if (names.has(name)) throw invalid(`${path}.name`, `is "${name}", which another tool of the plugin has`);
    names.add(name);
    if (isTakenToolName(name)) {
      throw new ExtensionError(
        "tool_name_taken",
        `Cannot use ${MANIFEST_NAME}: "${path}.name" is "${name}", the name of a built-in tool; give the tool another one`,
      );
    }
    if (JSON.stringify(schema).length > MAX_SCHEMA_CHARACTERS) {
      throw invalid(`${path}.input_schema`, `is longer than ${MAX_SCHEMA_CHARACTERS} characters`);
    }
    checkSchema(schema, `${path}.input_schema`);
  }
}

function checkSchema(schema: unknown, path: string): void {
  try {
    compileSchema(schema);
  } catch (cause) {
    if (cause instanceof SchemaError) throw invalid(path, `is no schema that tools can have: ${cause.message}`, cause);
    throw cause;
  }
}

function checkProgram(manifest: PluginManifest): void {
  if (manifest.kind !== "process") return;
  const { command, sha256, mode } = manifest.process;
  if (mode === "pooled" && manifest.capabilities.workspace === "write") {
    // Nobody could tell what it does to the workspace between two calls
    throw invalid("process.mode", 'must be "one_shot" for a plugin that writes to the workspace');
  }
  if (command.startsWith("./") === (sha256 !== undefined)) return;
  throw invalid(
    "process.sha256",
    sha256 === undefined
      ? "is missing: the command is a file of the package"
      : "is for a command that is a file of the package",
  );
}

function checkRange({ min, max }: PluginManifest["runtime"]): void {
  if (min === undefined || max === undefined || compareVersions(min, max) <= 0) return;
  throw invalid("runtime", `must have a "min" that is not above its "max"`);
}

function toError(issue: v.BaseIssue<unknown>): ExtensionError {
  const path = pathOf(issue);
  if (issue.type === "strict_object") {
    return invalid(
      path,
      issue.expected === "never"
        ? "is not one of its fields"
        : issue.received === "undefined"
        ? "is missing"
        : "must be an object",
    );
  }
  switch (issue.type) {
    case "picklist":
      return invalid(path, `must be one of ${String(issue.expected).replace(/[()"]/g, "").replaceAll(" | ", ", ")}`);
    case "string":
    case "number":
      return invalid(path, `must be a ${issue.type === "string" ? "text" : "number"}`);
    case "array":
      return invalid(path, "must be a list");
    case "record":
      return invalid(path, "must be an object");
    default:
      return invalid(path, issue.message);
  }
}

function pathOf(issue: v.BaseIssue<unknown>): string {
  let path = "";
  for (const { key } of issue.path ?? []) {
    path += typeof key === "number" ? `[${key}]` : `${path === "" ? "" : "."}${String(key)}`;
  }
  return path;
}

/** Returns the error of a field. Its name may be the package's own text: what nobody can see is spelled out. */
function invalid(path: string, reason: string, cause?: unknown): ExtensionError {
  const field = path === "" ? "it" : exactText(JSON.stringify(path.slice(0, 200)));
  return new ExtensionError("manifest_invalid", `Cannot use ${MANIFEST_NAME}: ${field} ${reason}`, { cause });
}
