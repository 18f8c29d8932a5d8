import { MANIFEST_NAME } from "./manifest.ts";
import {
  type MakeScaffold,
  NO_DIGEST,
  scaffoldManifest,
  type ScaffoldNames,
  scaffoldReadme as readme,
} from "./scaffold_files.ts";

const manifest = (names: ScaffoldNames) =>
  scaffoldManifest(names, { kind: "wasm", wasm: { file: "plugin.wasm", sha256: NO_DIGEST } });

/** Returns the notes of a README about what the module may import. @param file file of the plugin with the functions of the workspace */
const notesOf = (pdk: string, file: string) => [
  `${pdk} is the interface to the host. A call is JSON, \`{"tool", "input", "context"}\`; the answer is JSON, \`{"output", "is_error"?, "data"?}\`.`,
  `\`${file}\` has the functions of the workspace. Each takes and returns the offset of JSON in Extism's memory:

| function of \`extism:host/user\` | request | answer |
|---|---|---|
| \`workspace_read(i64) -> i64\` | \`{"path", "encoding"?}\` | \`{"content"}\` |
| \`workspace_list(i64) -> i64\` | \`{"path"}\` | \`{"entries": [{"path", "size"}], "truncated"}\` |
| \`workspace_write(i64) -> i64\` | \`{"path", "content", "encoding"?}\` | \`{"bytes"}\` |

\`encoding\` is \`utf8\` (the default) or \`base64\`. Instead of an answer there may be \`{"error": {"code", "message"}}\`.`,
  "`capabilities` in `plugin.json` says what the module gets: `workspace` is `none`, `read` or `write`, and `hosts` lists what it may reach by " +
  "Extism's HTTP. A module that imports more is not loaded. A capability counts only where the configuration grants it too:",
  "```sh\npostern config set runtime.wasm.allow_workspace_read true\npostern config set runtime.wasm.allow_workspace_write true\n" +
  `postern config set runtime.wasm.allowed_hosts '["api.example.com"]'\n\`\`\``,
];

/** Files of new WASM plugins, by their kinds. */
export const WASM_SCAFFOLDS: Readonly<Record<"wasm-rust" | "wasm-go" | "wasm-assemblyscript", MakeScaffold>> = {
  "wasm-rust": (names) => ({
    [MANIFEST_NAME]: manifest(names),
    "README.md": readme(names, {
      build: [
        "cargo build --release --target wasm32-unknown-unknown",
        `cp target/wasm32-unknown-unknown/release/${names.tool}.wasm plugin.wasm`,
      ],
      needs: "Rust with the target wasm32-unknown-unknown (`rustup target add wasm32-unknown-unknown`)",
      notes: notesOf("The crate `extism-pdk`", "src/workspace.rs"),
    }),
    ".gitignore": "/target\n*.wasm\n*.tar\n",
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

mod workspace;

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
    "src/workspace.rs": `//! Functions of the workspace, for a plugin whose capabilities name it.
#![allow(dead_code)]

use extism_pdk::*;
use serde::{Deserialize, Serialize};

/// File of the workspace, with its size in bytes.
#[derive(Deserialize)]
pub struct Entry {
    pub path: String,
    pub size: u64,
}

/// Returns the text of a file, by its path relative to the workspace.
pub fn read(path: &str) -> Result<String, Error> {
    let answer: Content = answer_of(unsafe { workspace_read(Json(Place { path: path.into() })) }?)?;
    Ok(answer.content)
}

/// Returns the files in a folder and in the folders below it, "." for the workspace itself.
pub fn list(path: &str) -> Result<Vec<Entry>, Error> {
    let answer: Entries = answer_of(unsafe { workspace_list(Json(Place { path: path.into() })) }?)?;
    Ok(answer.entries)
}

/// Writes a text to a file. Returns its size in bytes.
pub fn write(path: &str, content: &str) -> Result<u64, Error> {
    let text = Text { path: path.into(), content: content.into() };
    let answer: Written = answer_of(unsafe { workspace_write(Json(text)) }?)?;
    Ok(answer.bytes)
}

#[host_fn]
extern "ExtismHost" {
    fn workspace_read(request: Json<Place>) -> Vec<u8>;
    fn workspace_list(request: Json<Place>) -> Vec<u8>;
    fn workspace_write(request: Json<Text>) -> Vec<u8>;
}

#[derive(Serialize)]
struct Place {
    path: String,
}

#[derive(Serialize)]
struct Text {
    path: String,
    content: String,
}

#[derive(Deserialize)]
struct Content {
    content: String,
}

#[derive(Deserialize)]
struct Entries {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Written {
    bytes: u64,
}

#[derive(Deserialize)]
struct Refused {
    error: Refusal,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

fn answer_of<T: serde::de::DeserializeOwned>(bytes: Vec<u8>) -> Result<T, Error> {
    if let Ok(Json(Refused { error })) = Json::<Refused>::from_bytes_owned(&bytes) {
        return Err(Error::msg(error.message));
    }
    let Json(answer) = Json::<T>::from_bytes_owned(&bytes)?;
    Ok(answer)
}
`,
  }),
  "wasm-go": (names) => ({
    [MANIFEST_NAME]: manifest(names),
    "README.md": readme(names, {
      build: ["GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o plugin.wasm ."],
      needs: "Go 1.24 or newer",
      notes: notesOf(
        "`extism.go` is the part of Extism's interface that the example needs, and the module `github.com/extism/go-pdk` has all of it. It",
        "workspace.go",
      ),
    }),
    ".gitignore": "*.wasm\n*.tar\n",
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

//go:wasmimport extism:host/env length
func lengthOf(offset uint64) uint64

//go:wasmimport extism:host/env load_u8
func load(offset uint64) uint32

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

// keep puts bytes into Extism's memory and returns their offset.
func keep(bytes []byte) uint64 {
	offset := alloc(uint64(len(bytes)))
	for i, value := range bytes {
		store(offset+uint64(i), uint32(value))
	}
	return offset
}

// kept returns the bytes at an offset of Extism's memory.
func kept(offset uint64) []byte {
	bytes := make([]byte, lengthOf(offset))
	for i := range bytes {
		bytes[i] = byte(load(offset + uint64(i)))
	}
	return bytes
}
`,
    "workspace.go": `package main

import (
	"encoding/json"
	"errors"
)

//go:wasmimport extism:host/user workspace_read
func workspaceRead(request uint64) uint64

//go:wasmimport extism:host/user workspace_list
func workspaceList(request uint64) uint64

//go:wasmimport extism:host/user workspace_write
func workspaceWrite(request uint64) uint64

type place struct {
	Path string \`json:"path"\`
}

// entry is a file of the workspace, with its size in bytes.
type entry struct {
	Path string \`json:"path"\`
	Size int64  \`json:"size"\`
}

// readFile returns the text of a file, by its path relative to the workspace.
func readFile(path string) (string, error) {
	var answer struct {
		Content string \`json:"content"\`
	}
	err := ask(workspaceRead, place{path}, &answer)
	return answer.Content, err
}

// listFiles returns the files in a folder and in the folders below it, "." for the workspace itself.
func listFiles(path string) ([]entry, error) {
	var answer struct {
		Entries []entry \`json:"entries"\`
	}
	err := ask(workspaceList, place{path}, &answer)
	return answer.Entries, err
}

// writeFile writes a text to a file and returns its size in bytes.
func writeFile(path, content string) (int64, error) {
	request := struct {
		Path    string \`json:"path"\`
		Content string \`json:"content"\`
	}{path, content}
	var answer struct {
		Bytes int64 \`json:"bytes"\`
	}
	err := ask(workspaceWrite, request, &answer)
	return answer.Bytes, err
}

func ask(host func(uint64) uint64, request any, answer any) error {
	question, err := json.Marshal(request)
	if err != nil {
		return err
	}
	bytes := kept(host(keep(question)))
	var refusal struct {
		Error *struct {
			Message string \`json:"message"\`
		} \`json:"error"\`
	}
	if err := json.Unmarshal(bytes, &refusal); err != nil {
		return err
	}
	if refusal.Error != nil {
		return errors.New(refusal.Error.Message)
	}
	return json.Unmarshal(bytes, answer)
}
`,
  }),
  "wasm-assemblyscript": (names) => ({
    [MANIFEST_NAME]: manifest(names),
    "README.md": readme(names, {
      build: ["npm install", "npm run build"],
      needs: "Node and npm",
      notes: notesOf("The package `@extism/as-pdk`", "assembly/workspace.ts"),
    }),
    ".gitignore": "node_modules\n*.wasm\n*.tar\n",
    "package.json": `${
      JSON.stringify(
        {
          name: names.id,
          private: true,
          scripts: {
            build:
              "asc assembly/index.ts --outFile plugin.wasm --optimize --use abort=assembly/index/abort --disableWarning 210",
          },
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
  return answer(text.valueOf().toUpperCase());
}

function answer(output: string): i32 {
  const encoder = new JSONEncoder();
  encoder.pushObject("");
  encoder.setString("output", output);
  encoder.popObject();
  // Host.outputString counts characters for bytes
  Host.outputMemory(Memory.allocateString(encoder.toString()));
  return 0;
}

function fail(reason: string): i32 {
  error_set(Memory.allocateString(reason).offset);
  return 1;
}

export function abort(message: string | null, _file: string | null, _line: u32, _column: u32): void {
  fail(message === null ? "The plugin stopped" : message);
  unreachable();
}
`,
    "assembly/workspace.ts": `import { Memory } from "@extism/as-pdk";
import { JSON, JSONEncoder } from "assemblyscript-json/assembly";

// @ts-ignore: decorator
@external("extism:host/env", "length")
declare function length(offset: u64): u64;
// @ts-ignore: decorator
@external("extism:host/user", "workspace_read")
declare function workspace_read(request: u64): u64;
// @ts-ignore: decorator
@external("extism:host/user", "workspace_list")
declare function workspace_list(request: u64): u64;
// @ts-ignore: decorator
@external("extism:host/user", "workspace_write")
declare function workspace_write(request: u64): u64;

/** Returns the text of a file, by its path relative to the workspace. */
export function readWorkspace(path: string): string {
  const content = answerOf(workspace_read(request(path))).getString("content");
  return content == null ? "" : content.valueOf();
}

/** Returns the paths of the files in a folder and in the folders below it, "." for the workspace itself. */
export function listWorkspace(path: string): string[] {
  const paths: string[] = [];
  const entries = answerOf(workspace_list(request(path))).getArr("entries");
  if (entries == null) return paths;
  const list = entries.valueOf();
  for (let i = 0; i < list.length; i++) {
    const name = (<JSON.Obj>list[i]).getString("path");
    if (name != null) paths.push(name.valueOf());
  }
  return paths;
}

/** Writes a text to a file. */
export function writeWorkspace(path: string, content: string): void {
  answerOf(workspace_write(request(path, content)));
}

function request(path: string, content: string | null = null): u64 {
  const encoder = new JSONEncoder();
  encoder.pushObject("");
  encoder.setString("path", path);
  if (content !== null) encoder.setString("content", content);
  encoder.popObject();
  return Memory.allocateString(encoder.toString()).offset;
}

/** Stops the call when the host refuses. */
function answerOf(offset: u64): JSON.Obj {
  const answer = <JSON.Obj>JSON.parse(new Memory(offset, length(offset)).toString());
  const error = answer.getObj("error");
  if (error != null) {
    const message = error.getString("message");
    throw new Error(message == null ? "The host refused" : message.valueOf());
  }
  return answer;
}
`,
  }),
};
