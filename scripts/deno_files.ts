/**
 * Chooses the test files that `npm test` runs on Deno too. Most of the code is the same on both runtimes, so that Node's run tells all
 * about it; where the code reaches the runtime itself, the two differ.
 */
import { readFileSync } from "node:fs";
import { basename, dirname, join, normalize } from "node:path";
import { importsOf, PROJECT_ROOT, sourceFiles } from "../test/support/source_files.ts";

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
const NAMED_IMPORT = /^import \{([^}]*)\} from "(\.[^"]*)";/gm;
/** Tests of the floors whose sources exist to reach the runtime */
const OF_FLOORS = /^test\/(?:system|storage)\//;

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
  cli: "test/cli/doctor/doctor.test.ts",
};

/**
 * Returns the journeys and, for each source that reaches the runtime, the tests that import it: all in the floors of the system and the
 * storage, elsewhere its own, which have its name, or stand in a folder of its name. A source that no chosen test imports is left to the nearest.
 * `npm run test:deno` runs all.
 * @param files paths relative to the project's folder
 */
export function chooseForDeno(files: readonly string[]): readonly string[] {
  const paths = files.map((file) => file.replaceAll("\\", "/"));
  const importers = new Map<string, string[]>();
  for (const path of paths) {
    for (const source of importedBy(path)) importers.set(source, [...importers.get(source) ?? [], path]);
  }
  const doors = runtimeDoors().map((door) => ({ door, tests: importers.get(door) ?? [] }));
  const chosen = new Set([...Object.values(JOURNEYS), ...doors.flatMap(ownTests)]);
  for (const { door, tests } of doors) {
    const [nearest] = tests.toSorted((one, other) => sharedFolders(other, door) - sharedFolders(one, door));
    if (nearest !== undefined && !tests.some((path) => chosen.has(path))) chosen.add(nearest);
  }
  return files.filter((_, index) => chosen.has(paths[index] ?? ""));
}

function ownTests({ door, tests }: { readonly door: string; readonly tests: readonly string[] }): readonly string[] {
  const [name] = namesOf(door);
  const named = tests.filter((path) => OF_FLOORS.test(path) || namesOf(path)[0] === name);
  return named.length > 0 ? named : tests.filter((path) => namesOf(path)[1] === name);
}

function runtimeDoors(): readonly string[] {
  return sourceFiles(["cli", "handlers", "lib"]).filter(({ text }) => RUNTIME_DOOR.test(text)).map(({ path }) => path);
}

/** Returns the sources whose code a test calls itself, and that of its own name. */
export function importedBy(path: string): readonly string[] {
  const sourceOf = (specifier: string) => normalize(join(dirname(path), specifier)).replaceAll("\\", "/");
  const loaded = readFileSync(join(PROJECT_ROOT, path), "utf8").replaceAll(TYPES_ALONE, "")
    .replaceAll(NAMED_IMPORT, (found, names: string, specifier: string) => {
      const source = sourceOf(specifier);
      return namesOf(source)[0] !== namesOf(path)[0] && takesPlainValues(names, source) ? "" : found;
    });
  return importsOf(loaded).map(sourceOf);
}

/** Tells whether an import takes types, numbers and texts alone, such as `MAX_BYTES` and `type Limits`: those are the same on each runtime. */
function takesPlainValues(names: string, source: string): boolean {
  const text = readFileSync(join(PROJECT_ROOT, source), "utf8");
  return names.split(",").map((name) => name.trim()).filter((name) => name !== "").every((name) =>
    name.startsWith("type ") || new RegExp(`^export const ${name} = (?:[\\d_.]+|"[^"]*");`, "m").test(text)
  );
}

/** Names of a file and its folder, without endings: `test/system/net/relay.test.ts` has `relay` and `net`. */
function namesOf(path: string): readonly [string, string] {
  return [basename(path).replace(/\..*$/, ""), basename(dirname(path))];
}

/** Counts the folders that a test has in common with a source, from `lib/`, `cli/` and `test/` on. */
function sharedFolders(test: string, source: string): number {
  const [, ...ofTest] = test.split("/").slice(0, -1);
  const ofSource = source.replace(/^lib\//, "").split("/").slice(0, -1);
  const differs = ofTest.findIndex((name, index) => name !== ofSource[index]);
  return differs === -1 ? ofTest.length : differs;
}
