/**
 * New WASM plugins in Rust, Go and AssemblyScript, built by the commands of their READMEs with the registries of their languages, and changed
 * to read, list and write the workspace. A test whose toolchain or registry is missing is skipped, and says so.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { writeScaffold } from "../../lib/extensions/plugins/write_scaffold.ts";
import { cannotRun } from "../support/built_plugins.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { withModule } from "../support/wasm_bench.ts";

/** Change of a scaffold that makes it write the text in capital letters to `out.txt` and say what it read from there. */
const LANGUAGES = [
  {
    kind: "wasm-rust",
    needs: [["cargo", "--version"]],
    file: "src/lib.rs",
    from: "    Ok(Json(Answer { output: call.input.text.to_uppercase() }))",
    to: `    workspace::write("out.txt", &call.input.text.to_uppercase())?;
    let files: Vec<String> = workspace::list(".")?.into_iter().map(|f| format!("{} {}", f.path, f.size)).collect();
    Ok(Json(Answer { output: format!("{} in {}", workspace::read("out.txt")?, files.join(", ")) }))`,
  },
  {
    kind: "wasm-go",
    needs: [["go", "version"]],
    file: "main.go",
    from: "	text, err := json.Marshal(answer{Output: strings.ToUpper(called.Input.Text)})",
    to: `	if _, err := writeFile("out.txt", strings.ToUpper(called.Input.Text)); err != nil {
		return fail(err.Error())
	}
	files, err := listFiles(".")
	if err != nil {
		return fail(err.Error())
	}
	read, err := readFile("out.txt")
	if err != nil {
		return fail(err.Error())
	}
	said := read + " in"
	for _, file := range files {
		size, _ := json.Marshal(file.Size)
		said += " " + file.Path + " " + string(size)
	}
	text, err := json.Marshal(answer{Output: said})`,
  },
  {
    kind: "wasm-assemblyscript",
    needs: [["npm", "--version"]],
    file: "assembly/index.ts",
    from: "  return answer(text.valueOf().toUpperCase());",
    to: `  writeWorkspace("out.txt", text.valueOf().toUpperCase());
  return answer(readWorkspace("out.txt") + " in " + listWorkspace(".").join(", ") + " 4");`,
  },
] as const;

/** Returns the commands of a README that build the plugin: those before the first of Postern. */
function buildCommands(readme: string): string {
  const [, block = ""] = /```sh\n([^]*?)```/.exec(readme) ?? [];
  return block.slice(0, block.indexOf("postern "));
}

for (const { kind, needs, file, from, to } of LANGUAGES) {
  const skip = needs.map(([command, ...args]) => cannotRun(command, ...args)).find((reason) => reason !== false) ??
    false;
  test(
    `a new plugin of the kind ${kind} is built by its README, and reaches the workspace`,
    { skip },
    (context) =>
      withTemporaryFolder(async (root) => {
        const folder = join(root, "made-by-me");
        await writeScaffold({ id: "made-by-me", kind, folder });
        const source = readFileSync(join(folder, file), "utf8");
        assert.ok(source.includes(from), `${file} is another`);
        const imports = kind === "wasm-assemblyscript"
          ? 'import { listWorkspace, readWorkspace, writeWorkspace } from "./workspace";\n'
          : "";
        writeFileSync(join(folder, file), imports + source.replace(from, to));
        try {
          const commands = buildCommands(readFileSync(join(folder, "README.md"), "utf8"));
          execFileSync("sh", ["-ec", commands], { cwd: folder, stdio: "pipe", env: process.env });
        } catch (error) {
          const { stderr = "" } = error as { readonly stderr?: Uint8Array | string };
          if (/network|registry|resolve host|ENOTFOUND|can't find crate for `core`/i.test(String(stderr))) {
            return context.skip(`it cannot be built here: ${String(stderr).slice(0, 300)}`);
          }
          throw error;
        }
        const bytes = readFileSync(join(folder, "plugin.wasm"));
        await withModule(bytes, async ({ call, workspace }) => {
          assert.equal((await call("hä!")).output, "HÄ! in out.txt 4");
          assert.equal(readFileSync(workspace.path("out.txt"), "utf8"), "HÄ!");
        }, { capabilities: { workspace: "write" }, config: { security: { write_file: { enabled: true } } } });
      }),
  );
}
