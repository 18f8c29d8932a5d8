import assert from "node:assert/strict";
import { test } from "node:test";
import {
  isTakenToolName,
  mainFile,
  NO_CAPABILITIES,
  parsePluginManifest,
  versionMisfit,
  widened,
} from "../../../lib/extensions/plugins/manifest.ts";
import { ExtensionError } from "../../../lib/extensions/extension_error.ts";
import { BUILTIN_TOOLS } from "../../../lib/tools/builtin.ts";

const SHA = "ab".repeat(32);
const SCHEMA = {
  type: "object",
  properties: { text: { type: "string" } },
  required: ["text"],
  additionalProperties: false,
};
const TOOL = { name: "count_words", description: "Counts the words of a text", input_schema: SCHEMA };
const WASM = {
  id: "words",
  version: "1.2.0",
  description: "Counts words",
  kind: "wasm",
  tools: [TOOL],
  wasm: { file: "words.wasm", sha256: SHA },
};
const { wasm: _, ...PLAIN } = WASM;
const PROCESS = { ...PLAIN, kind: "process", process: { command: "node", args: ["main.js"] } };
const FFI = { ...PLAIN, kind: "ffi", ffi: { library: "libwords.so", sha256: SHA, symbol: "words" } };

const parse = (value: unknown) => parsePluginManifest(JSON.stringify(value));

/** Returns a copy with another value at a dotted path; undefined takes the field away. */
function having(base: object, path: string, value: unknown): unknown {
  const copy = structuredClone(base) as Record<string, unknown>;
  const names = path.split(".");
  const last = names.pop() ?? "";
  let place = copy;
  for (const name of names) place = (place[name] ??= {}) as Record<string, unknown>;
  if (value === undefined) delete place[last];
  else place[last] = value;
  return copy;
}

test("parsePluginManifest() takes each kind and fills in the defaults", () => {
  const wasm = parse(WASM);
  assert.equal(wasm.kind === "wasm" && wasm.wasm.entrypoint, "execute");
  assert.equal(wasm.kind === "wasm" && wasm.wasm.abi, "extism1");
  assert.deepEqual(wasm.capabilities, NO_CAPABILITIES);
  const { kind, ...rest } = parse(PROCESS);
  assert.equal(kind, "process");
  assert.deepEqual("process" in rest && rest.process, { command: "node", args: ["main.js"], mode: "one_shot" });
  assert.equal(parse(FFI).kind, "ffi");
  assert.deepEqual(mainFile(wasm), { path: "words.wasm", sha256: SHA });
  assert.equal(mainFile(parse(PROCESS)), undefined);
  const own = parse(having(PROCESS, "process", { command: "./bin/tool", sha256: SHA }));
  assert.deepEqual(mainFile(own), { path: "bin/tool", sha256: SHA });
});

/** Manifests that are refused: what is changed in the first, and the field that the error names. */
const REFUSED: readonly (readonly [base: object, path: string, value: unknown, names: string])[] = [
  [WASM, "extra", 1, '"extra" is not one'],
  [WASM, "wasm.extra", 1, '"wasm.extra" is not one'],
  [WASM, "capabilities.root", true, '"capabilities.root" is not one'],
  [WASM, "__proto__x", {}, "is not one"],
  [WASM, "process", { command: "sh" }, '"process" is not one'],
  [WASM, "id", undefined, '"id" is missing'],
  [WASM, "id", "", '"id"'],
  [WASM, "id", "Words", '"id"'],
  [WASM, "id", "../x", '"id"'],
  [WASM, "id", "a\n", '"id"'],
  [WASM, "id", "a".repeat(65), '"id"'],
  [WASM, "version", "1.2", '"version"'],
  [WASM, "version", "01.2.3", '"version"'],
  [WASM, "version", `1.2.3-${"a".repeat(80)}`, '"version"'],
  [WASM, "description", "", '"description"'],
  [WASM, "description", "a\u202eb", '"description"'],
  [WASM, "description", "a\u001b[2J", '"description"'],
  [WASM, "description", "x".repeat(1_025), '"description"'],
  [WASM, "kind", "native", '"kind"'],
  [WASM, "kind", "constructor", '"kind"'],
  [WASM, "kind", undefined, '"kind"'],
  [WASM, "wasm", undefined, '"wasm" is missing'],
  [WASM, "wasm.file", "../words.wasm", '"wasm.file"'],
  [WASM, "wasm.file", "/etc/passwd", '"wasm.file"'],
  [WASM, "wasm.file", "a//b.wasm", '"wasm.file"'],
  [WASM, "wasm.file", "a\\b.wasm", '"wasm.file"'],
  [WASM, "wasm.file", "C:words.wasm", '"wasm.file"'],
  [WASM, "wasm.sha256", SHA.toUpperCase(), '"wasm.sha256"'],
  [WASM, "wasm.sha256", undefined, '"wasm.sha256" is missing'],
  [WASM, "wasm.abi", "component", '"wasm.abi" must be one of extism1'],
  [WASM, "wasm.entrypoint", "", '"wasm.entrypoint"'],
  [WASM, "wasm.fuel", 0, '"wasm.fuel"'],
  [WASM, "wasm.fuel", 1.5, '"wasm.fuel"'],
  [WASM, "wasm.fuel", 1e13, '"wasm.fuel"'],
  [WASM, "tools", [], '"tools"'],
  [WASM, "tools", Array(65).fill(TOOL), '"tools"'],
  [WASM, "tools", [TOOL, TOOL], '"tools[1].name"'],
  [WASM, "tools", [{ ...TOOL, name: "Count" }], '"tools[0].name"'],
  [WASM, "tools", [{ ...TOOL, name: "a".repeat(65) }], '"tools[0].name"'],
  [WASM, "tools", [{ ...TOOL, access: "read" }], '"tools[0].access" is not one'],
  [WASM, "tools", [{ ...TOOL, input_schema: { type: "string" } }], '"tools[0].input_schema"'],
  [WASM, "tools", [{ ...TOOL, input_schema: { ...SCHEMA, $ref: "#" } }], "$ref"],
  [WASM, "tools", [{ ...TOOL, input_schema: { ...SCHEMA, description: "x".repeat(40_000) } }], "longer than"],
  [WASM, "capabilities.workspace", "all", '"capabilities.workspace"'],
  [WASM, "capabilities.hosts", ["*"], '"capabilities.hosts[0]"'],
  [WASM, "capabilities.hosts", ["http://a.b"], '"capabilities.hosts[0]"'],
  [WASM, "capabilities.hosts", ["a.*.b"], '"capabilities.hosts[0]"'],
  [WASM, "capabilities.hosts", Array(65).fill("a.example"), '"capabilities.hosts"'],
  [WASM, "capabilities.host_functions", ["a b"], '"capabilities.host_functions[0]"'],
  [WASM, "runtime.min", "latest", '"runtime.min"'],
  [WASM, "runtime", { min: "2.0.0", max: "1.0.0" }, '"runtime"'],
  [PROCESS, "process.command", "../node", '"process.command"'],
  [PROCESS, "process.command", "/bin/sh", '"process.command"'],
  [PROCESS, "process.command", "./../x", '"process.command"'],
  [PROCESS, "process.command", "./bin/tool", '"process.sha256" is missing'],
  [PROCESS, "process.sha256", SHA, '"process.sha256"'],
  [PROCESS, "process.args", ["a\0b"], '"process.args[0]"'],
  [PROCESS, "process.args", Array(65).fill("a"), '"process.args"'],
  [PROCESS, "process.mode", "daemon", '"process.mode"'],
  [FFI, "ffi.symbol", "a-b", '"ffi.symbol"'],
  [FFI, "ffi.library", "/usr/lib/libc.so.6", '"ffi.library"'],
];

test("parsePluginManifest() refuses everything that is unknown, missing or over a bound, and names the field", () => {
  for (const [base, path, value, names] of REFUSED) {
    const told = `${path} = ${JSON.stringify(value)?.slice(0, 80)}`;
    assert.throws(() => parse(having(base, path, value)), (error) => {
      assert.ok(error instanceof ExtensionError, told);
      assert.equal(error.code, "manifest_invalid", told);
      assert.ok(error.message.includes(names), `${told}: ${error.message}`);
      return true;
    }, told);
  }
});

test("parsePluginManifest() refuses what is no JSON object in UTF-8 within its bounds", () => {
  const deep = `{"id":${"[".repeat(60)}${"]".repeat(60)}}`;
  const own = '{"__proto__": {"id": "words"}}';
  for (const text of ["", "null", "[]", "{", '"x"', deep, own, " ".repeat(262_145)]) {
    assert.throws(() => parsePluginManifest(text), ExtensionError, text.slice(0, 40));
  }
  assert.throws(() => parsePluginManifest(new Uint8Array([0x7b, 0xff, 0x7d])), /UTF-8/);
});

test("no tool of a plugin takes the name of a built-in one, nor one that is read as it", () => {
  const names = BUILTIN_TOOLS.map(({ name }) => name);
  const alike = names.map((name) => name.replaceAll("_", "-"));
  for (const name of [...names, ...alike, "glob", "search", "memory_read", "node__pi__shell", "mcp__x__y"]) {
    assert.throws(() => parse({ ...WASM, tools: [{ ...TOOL, name }] }), { code: "tool_name_taken" }, name);
  }
  assert.equal(isTakenToolName("count_words"), false);
});

test("versionMisfit() says which version a plugin needs", () => {
  const runtime = { min: "1.2.0", max: "2.0.0" };
  assert.equal(versionMisfit({ runtime }, "1.2.0"), undefined);
  assert.equal(versionMisfit({ runtime }, "2.0.0"), undefined);
  assert.match(versionMisfit({ runtime }, "1.2.0-rc.1") ?? "", /1\.2\.0 or newer/);
  assert.match(versionMisfit({ runtime }, "2.0.1") ?? "", /2\.0\.0 or older/);
  assert.equal(versionMisfit({ runtime: {} }, "0.0.1"), undefined);
});

test("widened() names what a new version may do and the old one may not", () => {
  const some = { workspace: "read", hosts: ["a.example"], host_functions: ["log"] } as const;
  assert.deepEqual(widened({ ...some, hosts: [...some.hosts], host_functions: ["log"] }, NO_CAPABILITIES), []);
  assert.deepEqual(
    widened(NO_CAPABILITIES, { workspace: "write", hosts: ["a.example"], host_functions: ["log"] }),
    ["reads and writes the workspace", "reaches the host a.example", "calls the host function log"],
  );
  assert.deepEqual(
    widened(
      { workspace: "read", hosts: ["a.example"], host_functions: [] },
      { workspace: "read", hosts: ["b.example"], host_functions: [] },
    ),
    ["reaches the host b.example"],
  );
});
