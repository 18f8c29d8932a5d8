/**
 * Chooses the test files that `npm test` runs on Deno too. Most of the code is the same on both runtimes, so that Node's run tells all
 * about it; where the code reaches the runtime itself, the two differ.
 */
import { readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { importsOf, sourceFiles } from "../test/support/source_files.ts";

/** Modules and globals in which the runtimes differ: files, sockets, processes, threads, storage, cryptography, streams. */
const RUNTIME_DOOR = new RegExp(
  [
    String
      .raw`"node:(?:fs|net|http|https|tls|dns|dgram|child_process|worker_threads|crypto|stream|zlib|sqlite|readline|tty)(?:/promises)?"`,
    String.raw`"(?:undici|pg|koffi|playwright-core|unstorage|@extism/extism)"`,
    String.raw`"(?:crossws|srvx)(?:/[a-z/]+)?"`,
    String.raw`\bcrypto\.subtle\b`,
    String.raw`\bnew (?:Worker|WebSocket|(?:Readable|Writable|Transform|Compression|Decompression)Stream)\(`,
    String.raw`"Deno" in globalThis|\bversions\.deno\b`,
  ].join("|"),
);
/** An import of types loads nothing */
const TYPES_ALONE = /^import type [^;]*;/gm;

/** A way of a user through each wing, from its request to its reply. */
export const JOURNEYS: Readonly<Record<string, string>> = {
  access: "test/journeys/entry_paths.test.ts",
  agent: "test/journeys/client_tool_rounds.test.ts",
  automation: "test/journeys/schedules.test.ts",
  base: "test/journeys/unknown_fields.test.ts",
  cluster: "test/cluster/gateway_drain.test.ts",
  config: "test/journeys/reload.test.ts",
  dashboard: "test/dashboard/dashboard.test.ts",
  documents: "test/journeys/pictures.test.ts",
  extensions: "test/journeys/skills.test.ts",
  guard: "test/journeys/approvals.test.ts",
  hardware: "test/tools/hardware/stubs.test.ts",
  host: "test/cli/daemon/daemon_status.test.ts",
  memory: "test/journeys/agents_ipc.test.ts",
  providers: "test/journeys/openai_client.test.ts",
  runs: "test/journeys/long_conversation.test.ts",
  storage: "test/journeys/damaged_records.test.ts",
  system: "test/journeys/git.test.ts",
  tools: "test/journeys/web_tools.test.ts",
  web: "test/web/read_page.test.ts",
  handlers: "test/journeys/websocket.test.ts",
  cli: "test/journeys/doctor.test.ts",
};

/** Returns the test files that import a source which reaches the runtime, and the journeys. @param files paths relative to the project's folder */
export function chooseForDeno(files: readonly string[]): readonly string[] {
  const doors = new Set(
    sourceFiles(["cli", "handlers", "lib"]).filter(({ text }) => RUNTIME_DOOR.test(text)).map(({ path }) => path),
  );
  const journeys = new Set(Object.values(JOURNEYS));
  return files.filter((file) => {
    const path = file.replaceAll("\\", "/");
    const loaded = readFileSync(file, "utf8").replaceAll(TYPES_ALONE, "");
    const imported = importsOf(loaded).map((specifier) =>
      normalize(join(dirname(path), specifier)).replaceAll("\\", "/")
    );
    return journeys.has(path) || imported.some((one) => doors.has(one));
  });
}
