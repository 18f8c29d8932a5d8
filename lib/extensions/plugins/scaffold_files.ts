import { MANIFEST_NAME } from "./manifest.ts";

/** Kinds of plugins that `postern plugin new` writes. */
export const SCAFFOLD_KINDS = [
  "wasm-rust",
  "wasm-go",
  "wasm-assemblyscript",
  "process-node",
  "process-python",
  "ffi-c",
] as const;
/** Kind of a plugin that `postern plugin new` writes. */
export type ScaffoldKind = typeof SCAFFOLD_KINDS[number];

/** Names in the files of a scaffold. */
export interface ScaffoldNames {
  /** Id of the plugin, as `word-count` */
  readonly id: string;
  /** Name of its tool, and of its C function, as `word_count` */
  readonly tool: string;
}

/** Texts of files by their paths in the plugin's folder. */
export type ScaffoldFiles = Readonly<Record<string, string>>;

/** `plugin package` and `plugin test` put the digest of the built file here. */
const NO_DIGEST = "0".repeat(64);

function manifest({ id, tool }: ScaffoldNames, part: Readonly<Record<string, unknown>>): string {
  const document = {
    id,
    version: "0.1.0",
    description: "Says what it was given",
    ...part,
    tools: [{
      name: tool,
      description: "Returns the text in capital letters.",
      input_schema: {
        type: "object",
        properties: { text: { type: "string", description: "Text to write in capital letters" } },
        required: ["text"],
        additionalProperties: false,
      },
    }],
    capabilities: { workspace: "none", hosts: [] },
  };
  return `${JSON.stringify(document, null, 2)}\n`;
}

/** Returns the README of a plugin. @param build commands that build it, none where nothing is built */
function readme(
  { id, tool }: ScaffoldNames,
  { build = [], allow, needs, notes }: {
    readonly build?: readonly string[];
    /** Key that allows plugins of this kind */
    readonly allow?: string;
    readonly needs: string;
    readonly notes: readonly string[];
  },
): string {
  const allowed = allow === undefined ? [] : [`postern config set ${allow} true`];
  const main = [...build, ...allowed, `postern plugin test --manifest plugin.json --execute '{"text": "hello"}'`];
  return `# ${id}

A plugin of Postern with the tool \`${tool}\`. It needs ${needs}.

\`\`\`sh
${main.join("\n")}
postern plugin package --manifest plugin.json
postern plugin install --package ${id}-0.1.0.tar
postern plugin enable ${id}
\`\`\`

While you work on it, \`postern plugin dev .\` serves each change at once.

${notes.join("\n\n")}
`;
}

const LINES =
  'A call is one line of JSON on the input, `{"tool", "input", "context"}`; the answer is one line on the output, `{"output", "is_error"?, "data"?}`. ' +
  "Everything else goes to the error output, which is shown when a call fails.";
const RIGHTS =
  "`capabilities` in `plugin.json` says what the program may see: `workspace` is `none`, `read` or `write`, and `hosts` lists what it may reach. " +
  "Where bubblewrap works it sees nothing else.";

/** Files of a new plugin by its kind. */
export const SCAFFOLDS: Readonly<Record<ScaffoldKind, (names: ScaffoldNames) => ScaffoldFiles>> = {
  "process-node": (names) => ({
    [MANIFEST_NAME]: manifest(names, { kind: "process", process: { command: "node", args: ["main.mjs"] } }),
    "README.md": readme(names, { allow: "plugins.allow_process", needs: "Node", notes: [LINES, RIGHTS] }),
    "main.mjs": `import { createInterface } from "node:readline";

const tools = {
  ${names.tool}: ({ text }) => ({ output: text.toUpperCase() }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { tool, input } = JSON.parse(line);
  console.log(JSON.stringify(await tools[tool](input)));
}
`,
  }),
  "process-python": (names) => ({
    [MANIFEST_NAME]: manifest(names, { kind: "process", process: { command: "python3", args: ["main.py"] } }),
    "README.md": readme(names, { allow: "plugins.allow_process", needs: "Python 3", notes: [LINES, RIGHTS] }),
    "main.py": `import json
import sys


def ${names.tool}(text):
    return {"output": text.upper()}


TOOLS = {"${names.tool}": ${names.tool}}

for line in sys.stdin:
    call = json.loads(line)
    print(json.dumps(TOOLS[call["tool"]](**call["input"])), flush=True)
`,
  }),
  "ffi-c": (names) => ({
    [MANIFEST_NAME]: manifest(names, {
      kind: "ffi",
      ffi: { library: "plugin.so", sha256: NO_DIGEST, symbol: names.tool },
    }),
    "README.md": readme(names, {
      build: ["make"],
      allow: "plugins.allow_ffi",
      needs: "a C compiler and make, and for Postern on Node the package koffi (`npm install -g koffi`)",
      notes: [
        `\`char *${names.tool}(const char *json)\` gets a call, \`{"tool", "input", "context"}\`, and returns the answer, \`{"output", "is_error"?, "data"?}\`, which \`${names.tool}_free\` gets back. What the library prints goes to the error output.`,
        "The example finds its text by hand; use a JSON library, as cJSON or yyjson, for more than that.",
        "A library is machine code: it runs in a process of its own, contained where bubblewrap works.",
      ],
    }),
    "Makefile": `plugin.so: plugin.c
\tcc -O2 -Wall -Wextra -shared -fPIC -o $@ $<
`,
    "plugin.c": `#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define BEFORE "{\\"output\\":\\""
#define AFTER "\\"}"

/* Finds the end of a JSON string that begins at text. */
static const char *string_end(const char *text) {
  while (*text != '\\0' && *text != '"') text += text[0] == '\\\\' && text[1] != '\\0' ? 2 : 1;
  return text;
}

/* Returns the answer to a call: its text in capital letters. Escapes of JSON, as \\n and \\u00e4, stay as they are. */
char *${names.tool}(const char *json) {
  const char *field = strstr(json, "\\"text\\":\\"");
  const char *from = field == NULL ? "" : field + strlen("\\"text\\":\\"");
  size_t length = (size_t)(string_end(from) - from);
  char *answer = malloc(sizeof BEFORE + length + sizeof AFTER);
  if (answer == NULL) return NULL;
  char *to = stpcpy(answer, BEFORE);
  for (size_t i = 0; i < length; i++) {
    if (from[i] == '\\\\') {
      *to++ = from[i++];
      size_t digits = from[i] == 'u' ? 5 : 1;
      while (digits-- > 0 && i < length) *to++ = from[i++];
      i--;
    } else {
      *to++ = (char)toupper((unsigned char)from[i]);
    }
  }
  strcpy(to, AFTER);
  return answer;
}

void ${names.tool}_free(char *answer) { free(answer); }
`,
  }),
  "wasm-go": (names) => ({
    [MANIFEST_NAME]: manifest(names, { kind: "wasm", wasm: { file: "plugin.wasm", sha256: NO_DIGEST } }),
    "README.md": readme(names, {
      build: ["GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o plugin.wasm ."],
      needs: "Go 1.24 or newer",
      notes: [
        "`extism.go` is the part of Extism's interface that the example needs; the module `github.com/extism/go-pdk` has all of it.",
      ],
    }),
    "go.mod": `module ${names.id}\n\ngo 1.24\n`,
    "main.go": `package main

import (
	"encoding/json"
	"strings"
)

type call struct {
	Tool  string \`json:"tool"\`
	Input struct {
		Text string \`json:"text"\`
	} \`json:"input"\`
}

type answer struct {
	Output  string \`json:"output"\`
	IsError bool   \`json:"is_error,omitempty"\`
}

//go:wasmexport execute
func execute() int32 {
	var called call
	if err := json.Unmarshal(input(), &called); err != nil {
		return fail(err.Error())
	}
	text, err := json.Marshal(answer{Output: strings.ToUpper(called.Input.Text)})
	if err != nil {
		return fail(err.Error())
	}
	output(text)
	return 0
}

func main() {}
`,
    "extism.go": `package main

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoad(offset uint64) uint32

//go:wasmimport extism:host/env alloc
func alloc(length uint64) uint64

//go:wasmimport extism:host/env store_u8
func store(offset uint64, value uint32)

//go:wasmimport extism:host/env output_set
func outputSet(offset uint64, length uint64)

//go:wasmimport extism:host/env error_set
func errorSet(offset uint64)

// input returns the call.
func input() []byte {
	bytes := make([]byte, inputLength())
	for i := range bytes {
		bytes[i] = byte(inputLoad(uint64(i)))
	}
	return bytes
}

// output makes bytes the answer.
func output(bytes []byte) {
	outputSet(keep(bytes), uint64(len(bytes)))
}

// fail makes a text the error of the call.
func fail(text string) int32 {
	errorSet(keep([]byte(text)))
	return 1
}

func keep(bytes []byte) uint64 {
	offset := alloc(uint64(len(bytes)))
	for i, value := range bytes {
		store(offset+uint64(i), uint32(value))
	}
	return offset
}
`,
  }),
  "wasm-rust": (names) => ({
    [MANIFEST_NAME]: manifest(names, { kind: "wasm", wasm: { file: "plugin.wasm", sha256: NO_DIGEST } }),
    "README.md": readme(names, {
      build: [
        "cargo build --release --target wasm32-unknown-unknown",
        `cp target/wasm32-unknown-unknown/release/${names.tool}.wasm plugin.wasm`,
      ],
      needs: "Rust with the target wasm32-unknown-unknown (`rustup target add wasm32-unknown-unknown`)",
      notes: ["The crate `extism-pdk` is the interface to the host."],
    }),
    "Cargo.toml": `[package]
name = "${names.tool}"
version = "0.1.0"
edition = "2021"

[lib]
crate-type = ["cdylib"]

[dependencies]
extism-pdk = "1"
serde = { version = "1", features = ["derive"] }

[profile.release]
opt-level = "s"
lto = true
strip = true
`,
    "src/lib.rs": `use extism_pdk::*;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Call {
    input: Input,
}

#[derive(Deserialize)]
struct Input {
    text: String,
}

#[derive(Serialize)]
struct Answer {
    output: String,
}

#[plugin_fn]
pub fn execute(Json(call): Json<Call>) -> FnResult<Json<Answer>> {
    Ok(Json(Answer { output: call.input.text.to_uppercase() }))
}
`,
  }),
  "wasm-assemblyscript": (names) => ({
    [MANIFEST_NAME]: manifest(names, { kind: "wasm", wasm: { file: "plugin.wasm", sha256: NO_DIGEST } }),
    "README.md": readme(names, {
      build: ["npm install", "npm run build"],
      needs: "Node and npm",
      notes: ["The package `@extism/as-pdk` is the interface to the host."],
    }),
    "package.json": `${
      JSON.stringify(
        {
          name: names.id,
          private: true,
          scripts: { build: "asc assembly/index.ts --outFile plugin.wasm --optimize --use abort=assembly/index/abort" },
          devDependencies: { "@extism/as-pdk": "^1.0.0", "assemblyscript": "^0.28.0", "assemblyscript-json": "^1.1.0" },
        },
        null,
        2,
      )
    }\n`,
    "assembly/index.ts": `import { Host, Memory } from "@extism/as-pdk";
import { JSON, JSONEncoder } from "assemblyscript-json/assembly";

// @ts-ignore: decorator
@external("extism:host/env", "error_set")
declare function error_set(offset: u64): void;

export function execute(): i32 {
  const call = <JSON.Obj>JSON.parse(Host.inputString());
  const input = call.getObj("input");
  if (input == null) return fail("The call has no input");
  const text = input.getString("text");
  if (text == null) return fail("The input has no text");
  const answer = new JSONEncoder();
  answer.pushObject("");
  answer.setString("output", text.valueOf().toUpperCase());
  answer.popObject();
  Host.output(bytesOf(answer.toString()));
  return 0;
}

// Host.outputString and Memory.allocateString count characters for bytes
function bytesOf(text: string): Uint8Array {
  return Uint8Array.wrap(String.UTF8.encode(text));
}

function fail(reason: string): i32 {
  error_set(Memory.allocateBytes(bytesOf(reason)).offset);
  return 1;
}

export function abort(message: string | null, _file: string | null, _line: u32, _column: u32): void {
  fail(message === null ? "The plugin stopped" : message);
  unreachable();
}
`,
  }),
};
