import { MANIFEST_NAME } from "./manifest.ts";
import { type MakeScaffold, scaffoldReadme as readme, wasmManifest, wasmNotes } from "./scaffold_files.ts";

/** Makes a WASM plugin in AssemblyScript. */
export const assemblyscriptScaffold: MakeScaffold = (names) => ({
  [MANIFEST_NAME]: wasmManifest(names),
  "README.md": readme(names, {
    build: ["npm install", "npm run build"],
    needs: "Node and npm",
    notes: wasmNotes("The package `@extism/as-pdk`", "assembly/workspace.ts"),
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
});
