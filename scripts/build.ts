/**
 * Builds `dist/`, or the folder named: types, JavaScript in few files, what is read at run time, and the manual page.
 *
 * A start that loads each module for itself takes three times as long as one that loads the same code in five files. The packages
 * of package.json stay outside, but for those that each start loads and that are the same on every runtime. There are no source maps: names
 * and lines of the code stay, and maps with the sources in them would double what is installed.
 */
import { chmodSync, cpSync, existsSync, globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { type Plugin, rolldown } from "rolldown";
import { minifySync } from "rolldown/utils";
import { manPage } from "../cli/man_page.ts";
import { declareTypes } from "./declarations.ts";

const FOLDER = process.argv[2] ?? "dist";
/** Everything but the ways in stands here, side by side: what code finds by its own address, it finds beside itself */
const CHUNKS = "chunks";

/** The ways in: the command line, the package, its handlers and its testing kit. */
const INPUT: Readonly<Record<string, string>> = {
  "cli/main": "cli/main",
  "handlers/mod": "handlers/mod",
  "handlers/handlers": "handlers/handlers",
  "handlers/testing/mod": "handlers/testing/mod",
};

/** Packages that go into the files: Node looks for each package, and for each of its files, which takes a start some milliseconds. */
const PACKED = [
  ...["valibot", "@valibot/to-json-schema", "citty", "confbox/toml", "consola/core", "itty-router", "diff"],
  ...["fast-string-width", "fast-string-truncated-width"],
];

/** Threads, and the program in front of a sandboxed command, which are started by address. They share no file with the ways in: a thread loads what it needs, and not the gateway. */
const THREADS: Readonly<Record<string, string>> = {
  [`${CHUNKS}/search_worker`]: "lib/tools/files/search_worker",
  [`${CHUNKS}/survey_worker`]: "lib/system/process/survey_worker",
  [`${CHUNKS}/document_worker`]: "lib/tools/documents/document_worker",
  [`${CHUNKS}/page_worker`]: "lib/tools/web/page_worker",
  [`${CHUNKS}/relay_forwarder`]: "lib/system/process/relay_forwarder",
  [`${CHUNKS}/ffi_library`]: "lib/extensions/plugins/ffi/ffi_library",
  [`${CHUNKS}/inspect_worker`]: "lib/extensions/plugins/wasm/inspect_worker",
  [`${CHUNKS}/wasm_worker`]: "lib/extensions/plugins/wasm/wasm_worker",
};

/**
 * Modules that always load together become one file, with all they import less what an earlier file has. What is
 * imported on first use gets a file of its own.
 */
const TOGETHER: Readonly<Record<string, readonly string[]>> = {
  main: ["cli/command"],
  command: ["cli/run_cli", "cli/process_io", "lib/base/version"],
  verb: [
    ...["cli/report_failure", "lib/config/load_config"],
    ...["lib/base/records/caller", "lib/base/records/run", "lib/base/records/agent_event"],
  ],
  services: [
    ...["lib/gateway", "handlers/router", "handlers/routes/health"],
    // Not with the server, which a program that imports the package does not load
    ...["handlers/node/node_body", "handlers/node/node_sockets", "handlers/node/unsound_request"],
  ],
  start_services: ["cli/serve/start_services"],
  gateway: ["cli/commands/gateway", "lib/system/process/sandbox"],
  provider: ["lib/providers/open_provider"],
  // Left until somebody asks for more than the health of the gateway
  work: ["handlers/routes", "lib/runs/supervisor/start_run"],
};

/** Files of TOGETHER that a start does not load. */
const LATER: readonly string[] = ["work"];
/** First words of names of functions that a start calls. A first word means the same everywhere */
const CALLED_AT_START = /^(?:create|define|guard|lazy|load|open|prepare|run|serve|start|watch)(?:[A-Z]|$)/;

interface Bundle {
  /** Modules to start from, by their files in the package */
  readonly input: Readonly<Record<string, string>>;
  /** As TOGETHER */
  readonly together: Readonly<Record<string, readonly string[]>>;
}

/** Id of the module that stands for `node:sqlite` in the package */
const SQLITE = resolve("sqlite.js");

/**
 * Returns the code of the module that stands for `node:sqlite`: an import of that is an error on an old Node before any line runs, which
 * would tell a program that imports the package nothing, and a warning on Node 22.
 */
function sqliteModule(): string {
  const { engines } = JSON.parse(readFileSync("package.json", "utf8"));
  const oldest = engines.node.replace(">=", "");
  const [major, minor] = oldest.split(".");
  return `import process from "node:process";
const [major, minor] = process.versions.node.split(".").map(Number);
if (major < ${major} || (major === ${major} && minor < ${minor})) {
  throw new Error(\`Cannot use Postern on Node \${process.versions.node}: it needs Node ${oldest} or newer; see https://nodejs.org\`);
}
// Loaded with the first database: Node 22 warns, and whoever imports the package may open none
export function DatabaseSync(...options) {
  return new (process.getBuiltinModule("node:sqlite").DatabaseSync)(...options);
}
`;
}

function fileOf(module: string): string {
  const file = resolve(`${module}.ts`);
  if (!existsSync(file)) throw new Error(`Cannot build: there is no module "${module}"`);
  return file;
}

/**
 * Takes the indentation away, and escapes every character beyond ASCII, which JavaScript without comments has in texts and patterns alone. A
 * single one of them beyond Latin-1 has V8 keep the whole file at two bytes for each character.
 * @throws {Error} a backslash before such a character, where an escape would mean another text
 */
function toPlain(code: string): string {
  const [found] = /^.*\\[^\0-\x7f].*$/m.exec(code) ?? [];
  if (found !== undefined) throw new Error(`Cannot build: an escape would change "${found}"`);
  // No line of a text begins with a tab: the sources are indented with spaces
  return code.replaceAll(/^\t+/gm, "").replace(
    /[^\0-\x7f]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const { peerDependencies } = JSON.parse(readFileSync("package.json", "utf8"));
const PEERS = Object.keys(peerDependencies).join("|");
/** Imports of packages that a project may leave out */
const PEER_IMPORT = new RegExp(`\\bimport\\(("(?:${PEERS})(?:/[\\w/]+)?")\\)`, "g");
/** Addresses of the package's own folders */
const FOLDER_ADDRESS = /\bnew URL\(("\.\/\w+\/"), ?import\.meta\.url\)/g;

/**
 * Has bundlers of a project leave those as they are. Not all of them know the mark of a comment, and none looks for what is computed.
 * Source: https://webpack.js.org/api/module-methods#webpackignore
 */
function leaveToProject(code: string): string {
  return code.replace(PEER_IMPORT, "import(/* webpackIgnore: true */ /* @vite-ignore */ String($1))")
    .replace(FOLDER_ADDRESS, "new URL($1, String(import.meta.url))");
}

/**
 * Takes the blanks away, and no name: 4 % of the package. Each statement of a module keeps a line of its own, since Node shows the line of an
 * error that nobody caught.
 */
const small: Plugin = {
  name: "small",
  renderChunk(code, { fileName }) {
    const { code: short } = minifySync(fileName, code, { compress: false, mangle: false });
    // The minifier puts each text between backticks, where bundlers of a project want quotes
    const packed = short.replaceAll(/\b(import|new URL)\(`((?:[^`$\\"]|\$(?!\{))*)`/g, '$1("$2"');
    let end = 0;
    const lines = this.parse(packed).body.map((node) => packed.slice(end, end = node.end));
    return { code: `${lines.join("\n")}${packed.slice(end)}\n`, map: null };
  },
};

/**
 * Puts parentheses around the functions that a start probably calls: those that a file calls as it loads, those with a name for it, and
 * what they call in the same file. V8 compiles them together with the file, and their code is kept for later starts; it compiles any
 * other function at its first call, in each process again. They stand at the top, since a declaration counts from there too.
 *
 * Measured: a start takes 5 % less processor time.
 */
function compileEarly(files: readonly string[]): Plugin {
  return {
    name: "compile early",
    renderChunk(code, { name }) {
      if (!files.includes(name)) return null;
      const { body } = this.parse(code);
      const functions = new Map(
        body.flatMap((node) => node.type === "FunctionDeclaration" && node.id ? [[node.id.name, node]] : []),
      );
      const others = body.filter((node) => node.type !== "FunctionDeclaration");
      const called = new Set(
        [...functions.keys()].filter((name) => CALLED_AT_START.test(name)).concat(callsOf(others)),
      );
      for (const name of called) for (const next of callsOf(functions.get(name)?.body)) called.add(next);
      const imports: string[] = [];
      const early: string[] = [];
      const rest: string[] = [];
      let end = 0;
      for (const node of body) {
        const text = code.slice(node.start, node.end);
        const name = node.type === "FunctionDeclaration" ? node.id?.name : undefined;
        const isEarly = name !== undefined && called.has(name);
        if (isEarly) early.push(`var ${name} = (${text});\n`);
        (node.type === "ImportDeclaration" ? imports : rest).push(code.slice(end, node.start), isEarly ? "" : text);
        end = node.end;
      }
      return { code: [...imports, "\n", ...early, ...rest, code.slice(end)].join(""), map: null };
    },
  };
}

/** Returns the names of the functions that a part of a syntax tree calls, less what functions inside of it call. */
function callsOf(part: unknown): readonly string[] {
  if (part === null || typeof part !== "object") return [];
  const { type, callee } = part as { readonly type?: string; readonly callee?: { readonly name?: string } };
  if (type?.includes("Function")) return [];
  const within = Object.values(part).flatMap(callsOf);
  return type === "CallExpression" && callee?.name !== undefined ? [callee.name, ...within] : within;
}

/** Names of an import or export list, by the names that the file itself has for them. */
function namesOf(list: string): ReadonlyMap<string, string> {
  return new Map(list.split(",").map((part) => part.trim().split(" as ")).map(([from = "", to = from]) => [to, from]));
}

/**
 * Has what loads a module on its first use load the file that the module is in: rolldown writes a file more for each, which passes its names on
 * and does nothing else.
 */
const withoutDetours: Plugin = {
  name: "without detours",
  generateBundle(_options, bundle) {
    const detours = new Map<string, { readonly to: string; readonly names: string }>();
    for (const file of Object.values(bundle)) {
      if (file.type !== "chunk" || file.isEntry) continue;
      const passes = /^import\s*\{([^}]*)\}\s*from\s*"\.\/([^"]+)";\s*export\s*\{([^}]*)\};\s*$/.exec(file.code);
      if (passes === null) continue;
      const [, taken = "", to = "", given = ""] = passes;
      const there = namesOf(taken);
      const names = [...namesOf(given)].map(([name, own]) => `${name}: n.${there.get(own)}`).join(", ");
      detours.set(file.fileName.slice(CHUNKS.length + 1), { to, names });
      delete bundle[file.fileName];
    }
    for (const file of Object.values(bundle)) {
      if (file.type !== "chunk") continue;
      file.code = file.code.replaceAll(/\bimport\("(\.[^"]*\/)([^"/]+)"\)/g, (whole, folder: string, name: string) => {
        const detour = detours.get(name);
        return detour === undefined ? whole : `import("${folder}${detour.to}").then((n) => ({ ${detour.names} }))`;
      });
    }
  },
};

async function bundle({ input, together }: Bundle): Promise<void> {
  const modules = await rolldown({
    input: Object.fromEntries(Object.entries(input).map(([name, module]) => [name, fileOf(module)])),
    platform: "node",
    external: (id) => !/^[./]/.test(id) && !PACKED.includes(id) && id !== "node:sqlite",
    transform: { target: "es2024" },
    checks: { ineffectiveDynamicImport: false, bundlerTimings: false },
    // No names of modules between their code
    experimental: { attachDebugInfo: "none" },
    plugins: [{
      name: "packages",
      resolveId: (id) =>
        id === "node:sqlite" ? SQLITE : PACKED.includes(id) ? fileURLToPath(import.meta.resolve(id)) : null,
      load: (id) => id === SQLITE ? sqliteModule() : null,
    }],
  });
  const { output } = await modules.write({
    dir: FOLDER,
    entryFileNames: "[name].js",
    chunkFileNames: `${CHUNKS}/[name]-[hash].js`,
    comments: false,
    // `small` does it before functions get their parentheses: it would take them away
    minify: false,
    codeSplitting: {
      groups: Object.entries(together).map(([name, modules], index) => {
        const wanted = modules.map(fileOf);
        return { name, priority: -index, test: (id) => wanted.includes(id) };
      }),
    },
    plugins: [
      small,
      compileEarly(Object.keys(together).filter((name) => !LATER.includes(name))),
      { name: "plain", renderChunk: (code) => ({ code: toPlain(code), map: null }) },
      { name: "peers", renderChunk: (code) => ({ code: leaveToProject(code), map: null }) },
      withoutDetours,
    ],
  });
  await modules.close();
  for (const file of output) {
    if (file.type === "chunk" && file.code.includes("import.meta.url") && !file.fileName.startsWith(`${CHUNKS}/`)) {
      throw new Error(`Cannot build: "${file.fileName}" would look for files beside itself`);
    }
  }
}

/** Returns the name of a packed package and the text of its licence. */
function licenceOf(id: string): string {
  const [name = ""] = /^(?:@[^/]+\/)?[^/]+/.exec(id) ?? [];
  const [file = ""] = globSync(`node_modules/${name}/{LICENSE,license}*`);
  return `${name}:\n\n${readFileSync(file, "utf8")}`;
}

rmSync(FOLDER, { recursive: true, force: true });
await bundle({ input: INPUT, together: TOGETHER });
await bundle({ input: THREADS, together: {} });
await declareTypes(FOLDER, ["handlers/mod", "handlers/testing/mod"]);
cpSync("lib/dashboard/page", join(FOLDER, CHUNKS, "page"), {
  recursive: true,
  filter: (file) => !file.endsWith("tsconfig.json") && !file.endsWith(".d.ts"),
});
cpSync("lib/extensions/plugins/scaffolds", join(FOLDER, CHUNKS, "scaffolds"), { recursive: true });
// JavaScript is built without comments, and the licences of the data of fonts stand in two
for (const name of ["cmap_data", "font_data"]) {
  const [notice = ""] = /^\/\*\*[\s\S]*?\*\//.exec(readFileSync(`lib/documents/pdf/${name}.ts`, "utf8")) ?? [];
  writeFileSync(join(FOLDER, CHUNKS, `${name}.LICENSE`), notice.replace(/^ ?(?:\/\*\*|\*\/|\* ?)/gm, "").trim() + "\n");
}
writeFileSync(join(FOLDER, CHUNKS, "packages.LICENSE"), PACKED.map(licenceOf).join("\n"));
writeFileSync(join(FOLDER, "postern.1"), await manPage());
chmodSync(join(FOLDER, "cli/main.js"), 0o755);
