import assert from "node:assert/strict";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { parseAst } from "rolldown/parseAst";
import { codeOnly, importsOf, type SourceFile, sourceFiles } from "./support/source_files.ts";

/** The floors of docs/design/architecture.md "Floors". */
const FLOORS: readonly (readonly [wing: string, floor: number])[] = [
  ["lib/base/", 0],
  ["lib/system/", 1],
  ["lib/config/", 1],
  ["lib/storage/", 1],
  ["lib/host/", 1],
  ["lib/dashboard/", 1],
  ["lib/documents/", 1],
  ["lib/web/", 2],
  ["lib/memory/", 2],
  ["lib/cluster/", 2],
  ["lib/access/", 2],
  ["lib/hardware/", 2],
  ["lib/providers/", 2],
  ["lib/guard/", 3],
  ["lib/tools/", 4],
  ["lib/agent/", 5],
  ["lib/extensions/", 5],
  ["lib/runs/", 6],
  ["lib/automation/", 7],
  ["lib/coordination.ts", 8],
  ["lib/services.ts", 9],
  ["lib/open_cluster.ts", 10],
  ["lib/gateway_base.ts", 11],
  ["lib/gateway_state.ts", 11],
  ["lib/gateway.ts", 12],
  ["handlers/", 13],
  ["cli/", 14],
];

const FILES = sourceFiles(["cli", "handlers", "lib"]).filter((file) => !file.path.startsWith("lib/dashboard/page/"));

/** Returns the path that a file's relative specifier names. */
const targetOf = (path: string, specifier: string) => normalize(join(dirname(path), specifier)).replaceAll("\\", "/");

const placeOf = (path: string) => FLOORS.find(([wing]) => path.startsWith(wing));

test("every source file is in a wing of the layout", () => {
  assert.deepEqual(FILES.filter((file) => placeOf(file.path) === undefined).map((file) => file.path), []);
});

test("imports point down the floors, and wings of one floor do not import each other", () => {
  const wrong: string[] = [];
  for (const file of FILES) {
    const from = placeOf(file.path);
    for (const specifier of importsOf(file.text)) {
      if (!specifier.startsWith(".")) continue;
      const path = targetOf(file.path, specifier);
      const to = placeOf(path);
      if (from === undefined || to === undefined) wrong.push(`${file.path} imports ${path}: outside the layout`);
      else if (to[1] > from[1]) wrong.push(`${file.path} (floor ${from[1]}) imports ${path} (floor ${to[1]})`);
      else if (to[1] === from[1] && to[0] !== from[0]) wrong.push(`${file.path} imports its neighbour ${path}`);
    }
  }
  assert.deepEqual(wrong, []);
});

/** Returns the groups of files that import each other, round about too. An import on first use, `await import(...)`, counts as any other. */
function circlesOf(files: readonly SourceFile[]): readonly (readonly string[])[] {
  const imports = new Map(files.map(({ path, text }) => [
    path,
    importsOf(text).filter((specifier) => specifier.startsWith(".")).map((specifier) => targetOf(path, specifier)),
  ]));
  const reachOf = (from: string) => {
    const reached = new Set<string>();
    const open = [from];
    for (let path = open.pop(); path !== undefined; path = open.pop()) {
      for (const next of imports.get(path) ?? []) {
        if (!reached.has(next)) open.push(next);
        reached.add(next);
      }
    }
    return reached;
  };
  const reached = new Map([...imports.keys()].map((path) => [path, reachOf(path)]));
  return [...reached].flatMap(([path, reach]) => {
    const circle = [...reach].filter((other) => reached.get(other)?.has(path)).sort();
    return circle[0] === path ? [circle] : [];
  });
}

test("imports make no circle, not even of types or on first use", () => {
  assert.deepEqual(circlesOf(FILES), []);
  assert.deepEqual(circlesOf(sourceFiles(["fixtures", "lib/dashboard/page", "scripts", "test"])), []);
  const sample = [
    { path: "lib/a.ts", text: 'import type { B } from "./b.ts";' },
    { path: "lib/b.ts", text: 'export { type C } from "./c/c.ts";\nimport "./d.ts";' },
    { path: "lib/c/c.ts", text: 'import type {\n  A,\n} from "../a.ts";' },
    { path: "lib/d.ts", text: 'const { a } = await import("./a.ts");' },
  ];
  assert.deepEqual(circlesOf(sample), [["lib/a.ts", "lib/b.ts", "lib/c/c.ts", "lib/d.ts"]]);
});

test("an import on first use names its file in plain words, so that no circle hides behind a computed name", () => {
  const computed = (files: readonly SourceFile[]) =>
    files.flatMap(({ path, text }) =>
      [...text.matchAll(/\bimport\s*\((?!\s*")[^\n]*/g)].map(([call]) => `${path}: ${call}`)
    );
  assert.deepEqual(computed(FILES).map((found) => found.replace(/\).*/, ")")), [
    'lib/base/own_file.ts: import(url.href, { with: { type: "text" } })',
    "lib/extensions/plugins/ffi/ffi_library.ts: import(koffi)",
    "lib/extensions/plugins/ffi/ffi_plugin.ts: import(${JSON.stringify(module.href)",
  ]);
  assert.equal(computed([{ path: "lib/a.ts", text: "await import(`./${name}.ts`);" }]).length, 1);
});

/** Imports of the project's own files that a journey may have, its world among them: more of them tell of work that a support file should do. */
const MAX_JOURNEY_IMPORTS = 5;

/** Returns the journeys with more imports of the project's own files than are allowed. An import on first use does not count. */
function laden(journeys: readonly SourceFile[]): readonly string[] {
  return journeys.flatMap(({ path, text }) => {
    const count = [...text.matchAll(/(?:\bfrom\s*|^import\s+)"\.[^"\n]+"/gm)].length;
    return count > MAX_JOURNEY_IMPORTS ? [`${path} imports ${count}`] : [];
  });
}

test("a journey imports at most five files of the project: its world starts what it needs", () => {
  const journeys = sourceFiles(["test/journeys"]);
  assert.ok(journeys.length > 40, "the journeys are found");
  assert.deepEqual(laden(journeys), [], "start it with test/support/world.ts, or move what is no journey elsewhere");
  const text = ["./a.ts", "./b.ts", "../c.ts", "node:fs"].map((from) => `import { x } from "${from}";`).join("\n");
  const more = 'import "./d.ts";\nimport {\n  type E,\n} from "./e.ts";\n';
  const sample = [
    { path: "five", text: `${text}\n${more}` },
    { path: "six", text: `${text}\n${more}import type { F } from "./f.ts";\n` },
  ];
  assert.deepEqual(laden(sample), ["six imports 6"]);
});

/**
 * Returns the files of test/support that one file elsewhere needs, or none. A part of another support file stands beside it, so it counts as
 * shared. A file is needed where it is imported, and where a text has its path, as for a program that is started.
 */
function ownSupport(files: readonly SourceFile[]): readonly string[] {
  const users = new Map<string, Set<string>>();
  for (const { path, text } of files) {
    const named = [...text.matchAll(/"((?:\.{1,2}|test)\/[^"\n]*\.ts)"/g)].map(([, name = ""]) => name);
    for (const name of named) {
      const place = name.startsWith(".") ? targetOf(path, name) : name;
      users.set(place, (users.get(place) ?? new Set()).add(path));
    }
  }
  const support = files.filter(({ path }) => path.startsWith("test/support/") && !path.endsWith(".test.ts"));
  return support.flatMap(({ path }) => {
    const [one, ...more] = users.get(path) ?? [];
    return more.length > 0 || one?.startsWith("test/support/") === true ? [] : [`${path}: ${one ?? "nobody"}`];
  });
}

test("a file of test/support has more than one user: what one test needs stands beside it", () => {
  assert.deepEqual(ownSupport(sourceFiles(["test", "scripts"])), []);
  const sample = [
    { path: "test/support/own.ts", text: 'import "./part.ts";' },
    { path: "test/support/part.ts", text: "" },
    { path: "test/support/shared.ts", text: 'const PROGRAM = join(ROOT, "test/support/program.ts");' },
    { path: "test/support/program.ts", text: "" },
    { path: "test/support/left.ts", text: "" },
    { path: "test/a.test.ts", text: 'import { a } from "./support/own.ts";\nimport { b } from "./support/shared.ts";' },
    { path: "test/b.test.ts", text: 'const { b } = await import("./support/shared.ts");' },
  ];
  assert.deepEqual(ownSupport(sample), ["test/support/own.ts: test/a.test.ts", "test/support/left.ts: nobody"]);
});

interface Rule {
  readonly name: string;
  /** Path prefixes where it is allowed */
  readonly allowed?: readonly string[];
  /** Path prefixes where it is forbidden; default: everywhere else */
  readonly forbidden?: readonly string[];
  readonly imports?: RegExp;
  readonly globals?: RegExp;
}

const RULES: readonly Rule[] = [
  {
    name: "the network",
    // Runs inside the sandbox alone, where there is no network
    allowed: ["lib/system/net/", "lib/system/process/relay_forwarder.ts"],
    imports: /^(undici|node:(https?2?|net|tls|dns|dgram)(\/.*)?)$/,
    globals: /(?<![.\w])(fetch\s*\(|new WebSocket\b|Deno\.connect)/,
  },
  {
    name: "servers",
    allowed: ["cli/serve/", "handlers/node/"],
    imports: /^(srvx(\/.*)?|crossws\/(adapters|server).*)$/,
  },
  { name: "child processes", allowed: ["lib/system/process/", "lib/host/"], imports: /^node:child_process$/ },
  { name: "the file system", forbidden: ["lib/tools/", "handlers/"], imports: /^node:fs(\/.*)?$/ },
  {
    name: "process events",
    allowed: ["cli/", "lib/system/process/relay_forwarder.ts"],
    globals: /\bprocess\.(on|once|exit|addListener)\b/,
  },
  {
    name: "time",
    // The watchdog's program is text for another process
    allowed: ["lib/base/clock.ts", "lib/system/process/watchdog.ts"],
    globals:
      /\bDate\.now\b|\bnew Date\(\s*\)|(?<![.\w])set(Timeout|Interval)\s*\(|\bAbortSignal\.timeout\b|\bperformance\.now\b/,
  },
  { name: "ticks of the event loop", allowed: ["lib/base/tick.ts"], globals: /\bsetImmediate\b|\bprocess\.nextTick\b/ },
  {
    name: "writes of records without their collection",
    // These are given any collection by its name; a vector is no record
    allowed: [
      ...["lib/storage/", "lib/memory/memory_vectors.ts", "cli/doctor/repair.ts"],
      ...["owned_work.ts", "run_claims.ts", "work_claims.ts"].map((file) => `lib/cluster/${file}`),
    ],
    globals: /\bop:\s*,\s*collection\b/,
  },
  {
    name: "randomness",
    allowed: ["lib/base/random.ts"],
    globals: /\bMath\.random\b|\brandomUUID\b|\bgetRandomValues\b|\brandomBytes\b/,
  },
];

for (const rule of RULES) {
  test(`${rule.name}: used only behind its own door`, () => {
    const wrong = FILES.filter((file) =>
      rule.forbidden === undefined
        ? !(rule.allowed ?? []).some((prefix) => file.path.startsWith(prefix))
        : rule.forbidden.some((prefix) => file.path.startsWith(prefix))
    ).flatMap((file) => [
      ...importsOf(file.text).filter((specifier) => rule.imports?.test(specifier)).map((specifier) =>
        `${file.path} imports ${specifier}`
      ),
      ...[codeOnly(file.text).match(rule.globals ?? /$^/)?.[0]].filter((match) => match !== undefined).map((match) =>
        `${file.path} uses ${match}`
      ),
    ]);
    assert.deepEqual(wrong, []);
  });
}

/** Files that open connections or send requests, and who may import each. Tools have the guarded fetch alone, as a service. */
const WAYS_OUT: Readonly<Record<string, readonly string[]>> = {
  pinned_exchange: ["lib/system/net/guarded_fetch.ts"],
  pinned_connection: ["lib/system/net/"],
  proxy: ["lib/system/net/"],
  relay_pump: ["lib/system/net/relay.ts"],
  http_exchange: ["lib/system/net/", "lib/providers/"],
  provider_client: ["lib/providers/", "cli/"],
  tcp: ["lib/system/net/pinned_connection.ts", "lib/hardware/", "lib/providers/", "cli/doctor/"],
  gateway_client: ["cli/"],
  link_socket: ["lib/extensions/nodes/", "cli/commands/node.ts"],
};

test("the guarded fetch is the only way out of tools: each other way has its few users", () => {
  const wrong: string[] = [];
  for (const [name, users] of Object.entries(WAYS_OUT)) {
    const way = `lib/system/net/${name}.ts`;
    assert.ok(FILES.some(({ path }) => path === way), `${way} is there`);
    for (const { path, text } of FILES) {
      if (path === way || users.some((user) => path.startsWith(user))) continue;
      if (importsOf(text).some((specifier) => specifier.startsWith(".") && targetOf(path, specifier) === way)) {
        wrong.push(`${path} imports ${way}`);
      }
    }
  }
  assert.deepEqual(wrong, []);
  const opens = /\b(connect|createConnection|request|sendPlain|sendOverTls|startTls|new Socket|new WebSocket)\(/;
  const openers = FILES.filter(({ path, text }) => path.startsWith("lib/system/net/") && opens.test(codeOnly(text)));
  assert.ok(openers.length > 5, "the files that open connections are found");
  const known = Object.keys(WAYS_OUT).map((name) => `lib/system/net/${name}.ts`);
  assert.deepEqual(openers.map(({ path }) => path).filter((path) => !known.includes(path)), []);
});

test("house rules of STYLE hold: names, erasable syntax, no default exports, no drawers", () => {
  const wrong = FILES.flatMap((file) => {
    const code = codeOnly(file.text);
    const problems: string[] = [];
    if (!/^[a-z0-9_/.]+$/.test(file.path)) problems.push("is not snake_case");
    if (/(^|\/)(utils|helpers|common|misc|core)(\.ts|\/)/.test(file.path)) problems.push("is a drawer");
    if (/^\s*export default\b/m.test(code)) problems.push("has a default export");
    if (/^\s*(export\s+)?(const\s+)?enum\s|^\s*(export\s+)?namespace\s/m.test(code)) {
      problems.push("uses syntax that cannot be erased");
    }
    if (importsOf(file.text).some((specifier) => specifier.startsWith(".") && !/\.(ts|json)$/.test(specifier))) {
      problems.push("imports without .ts");
    }
    if (/\b(TODO|FIXME|XXX)\b/.test(file.text)) problems.push("has a TODO");
    return problems.map((problem) => `${file.path} ${problem}`);
  });
  assert.deepEqual(wrong, []);
});

/** Places that may tell a gateway alone from one among others: they choose which coordination a gateway has. */
const COORDINATION = ["lib/cluster/", "lib/open_cluster.ts", "lib/coordination.ts"];
/** Files of the command line that read a reply of a running gateway, in which `cluster` is a field. */
const READERS = [
  "cli/commands/daemon.ts",
  "cli/daemon/daemon_status.ts",
  "cli/doctor/check_gateway.ts",
  "cli/reach_cluster.ts",
];

/** Returns the conditionals of a file that ask whether there is a cluster. */
function asksForCluster({ path, text }: SourceFile): readonly string[] {
  const name = String.raw`(?<![\w-])#?(?:cluster|ownership)(?:\(\))?`;
  const ask = String
    .raw`${name} (?:===|!==) (?:undefined|null)|${name}\?\.|${name} (?:&&|\|\||\?) |!(?:\w+\.#?)*${name}\b(?![.(])`;
  return [...codeOnly(text).matchAll(new RegExp(ask, "g"))].map(([found]) => `${path}: ${found}`);
}

test("nobody outside coordination asks whether there is a cluster: a gateway alone is a cluster of one", () => {
  const outside = FILES.filter(({ path }) => ![...COORDINATION, ...READERS].some((place) => path.startsWith(place)));
  assert.deepEqual(outside.flatMap(asksForCluster), [], "ask lib/coordination.ts, or the part of it that the wing has");
  const text =
    "if (cluster === undefined) a();\nthis.#cluster?.b();\nconst c = ownership && d;\nif (!this.#cluster) e();\n" +
    "cluster.f();\nconst { cluster = ALONE } = g;\nreadonly cluster?: H;\n";
  assert.deepEqual(asksForCluster({ path: "a.ts", text }), [
    "a.ts: cluster === undefined",
    "a.ts: #cluster?.",
    "a.ts: ownership && ",
    "a.ts: !this.#cluster",
  ]);
});

/** Questions by other words whether there are others. Numbers only shrink: hand in what answers for a gateway alone, then take one away. */
const OTHER_WORDS: Readonly<Record<string, number>> = {
  "handlers/middleware/reply_store.ts": 6,
  "handlers/visit.ts": 2,
  "handlers/websocket/sockets.ts": 1,
  "lib/guard/tainted_files.ts": 1,
  "lib/runs/journal/follow_run.ts": 2,
  "lib/runs/supervisor/launch_run.ts": 1,
  "lib/runs/supervisor/start_run.ts": 2,
  "lib/system/files/change_files.ts": 1,
  "lib/system/files/create_files.ts": 1,
};

test("no part asks by another word whether there are other gateways, but for those that are left", () => {
  const ask =
    /\b(?:tokens|cluster|guard|locks|workspace)\??\.isShared\b|\b(?:member|watches|alone) (?:===|!==) undefined/g;
  const outside = FILES.filter(({ path }) => ![...COORDINATION, ...READERS].some((place) => path.startsWith(place)));
  const found = outside.map(({ path, text }) => [path, codeOnly(text).match(ask)?.length ?? 0] as const);
  assert.deepEqual(Object.fromEntries(found.filter(([, count]) => count > 0)), OTHER_WORDS);
});

/** Files that still keep state of a gateway in their module. The list only shrinks: hand the state in, then take the line away. */
const MODULE_STATE = [
  "lib/dashboard/dashboard.ts",
];

/** Changes of a collection, an array or a field, after the name that holds it. */
const CHANGES = String
  .raw`(\.(set|add|delete|clear|push|pop|shift|unshift|splice|sort|reverse|fill)\(|(\.\w+|\[[^\]\n]*\])\s*([-+*/|&?]{0,2}=(?![=>])|\+\+|--))`;

/** Statements of a module, outside of every function, that make or change state. A thread's own program may have state. */
function moduleState({ path, text }: { readonly path: string; readonly text: string }): readonly string[] {
  if (path.endsWith("_worker.ts")) return [];
  const code = codeOnly(text);
  const constants = [...code.matchAll(/^(?:export )?const (\w+)/gm)].map((match) => match[1] ?? "");
  return [
    ...[...code.matchAll(/^(?:export )?(?:let|var) (\w+)/gm)].map(([whole]) => whole),
    ...[...code.matchAll(/^\s+static (?!readonly)[^(\n]*=/gm)].map(([whole]) => whole.trim()),
    // By its name a function "create..." makes something with state, and so does a queue of the event loop
    ...[...code.matchAll(/^(?:export )?const \w+[^=\n]*= (?:await )?(?:create[A-Z]\w*|batchPerTick)\b.*/gm)].map((
      [whole],
    ) => whole),
    ...constants.flatMap((name) => code.match(new RegExp(String.raw`(?<![.\w])${name}${CHANGES}`))?.[0] ?? []),
  ].map((found) => `${path}: ${found}`);
}

test("no module keeps state: what changes belongs to one gateway and is handed in", () => {
  const known = (found: string) => MODULE_STATE.some((path) => found.startsWith(`${path}: `));
  const found = FILES.flatMap(moduleState);
  assert.deepEqual(found.filter((one) => !known(one)), []);
  assert.deepEqual(MODULE_STATE.filter((path) => !found.some((one) => one.startsWith(`${path}: `))), [], "done");
  const sample = "let count = 0;\nconst kept = new Map();\nconst queue = createQueue();\nconst NAMES = new Set();\n" +
    "function keep() {\n  kept.set(1, 2);\n  return other.NAMES.add(1);\n}\n";
  assert.deepEqual(moduleState({ path: "a.ts", text: sample }), [
    "a.ts: let count",
    "a.ts: const queue = createQueue();",
    "a.ts: kept.set(",
  ]);
});

/** An object that is handed on: its name, and its fields. */
const WIDE_OBJECT =
  /^(?:export )?(?:interface|type) (\w+(?:Options|Request|Parts|Params|Needs))\b[^{;]*\{\n(.*?)^\}/gms;

/** Returns the names of the fields that an interface declares. */
function fieldsOf(text: string, name: string): readonly string[] {
  const body = new RegExp(String.raw`^export interface ${name}\b[^\n]*\{\n(.*?)^\}`, "ms").exec(text)?.[1] ?? "";
  return [...body.matchAll(/^ {2}readonly (\w+)/gm)].map((match) => match[1] ?? "");
}

test("the kit has five fields, of which none is a service", () => {
  const kit = FILES.find(({ path }) => path === "lib/base/kit.ts")?.text ?? "";
  assert.deepEqual(fieldsOf(kit, "Kit"), ["clock", "random", "log", "metrics", "environment"]);
});

test("a wing needs at most twelve others, and the file that starts them stays short", () => {
  const starter = FILES.find(({ path }) => path === "lib/gateway.ts")?.text ?? "";
  assert.ok(starter.split("\n").length <= 150, "a wing is one line of lib/gateway.ts");
  const needs = FILES.flatMap(({ text }) =>
    [...text.matchAll(/^export interface (\w+Needs)\b/gm)].map(([, name = ""]) => [name, fieldsOf(text, name)] as const)
  );
  assert.ok(needs.length > 15, "the needs of the wings are found");
  assert.deepEqual(needs.filter(([, fields]) => fields.length === 0 || fields.length > 12), []);
});

/**
 * Objects of more than twelve fields that are left. The list only shrinks: group what belongs together, and hand the group on whole. The
 * options of `createGateway` are public, and each is a word of docs/embedding.md.
 */
const WIDE: Readonly<Record<string, number>> = {
  GatewayOptions: 19,
};

test("no options object has more than twelve fields, but for those that are left", () => {
  const widths = ({ text }: SourceFile) =>
    [...codeOnly(text).matchAll(WIDE_OBJECT)].map(([, name = "", body = ""]) =>
      [name, [...body.matchAll(/^ {2}(?:readonly )?\w+\??[:(<]/gm)].length] as const
    );
  const found = FILES.flatMap(widths);
  assert.ok(found.length > 400, "the options objects are found");
  assert.deepEqual(Object.fromEntries(found.filter(([, fields]) => fields > 12).sort()), WIDE);
  const fields = Array.from({ length: 13 }, (_, index) => `  readonly f${index}?: () => void;\n`).join("");
  assert.deepEqual(widths({ path: "a.ts", text: `interface AOptions extends B {\n${fields}}\n` }), [["AOptions", 13]]);
  assert.deepEqual(widths({ path: "a.ts", text: `export type ARequest = {\n${fields}};\n` }), [["ARequest", 13]]);
});

/** Returns the exported functions that do nothing but make an object of one class of their file, which has another word for it then. */
const secondNames = ({ path, text }: SourceFile): readonly string[] =>
  [...text.matchAll(
    /^export (?:async )?function ((?:create|open)\w+)[^\n]*(?:\n {2}[^\n]*|\n\)[^\n]*)*?\{\n {2}return new (\w+)\([^;]*\);\n\}/gm,
  )]
    .filter(([, , made]) => text.includes(`class ${made} `))
    .map(([, name]) => `${path}: ${name}`);

test("no class hides behind a function that only makes it, but for stores: PostgreSQL is asked before one is made", () => {
  const left = [
    "lib/storage/create_memory_store.ts: createMemoryStore",
    "lib/storage/open_sqlite_store.ts: openSqliteStore",
  ];
  assert.deepEqual(FILES.flatMap(secondNames).sort(), left);
});

test("no exported name has two meanings", () => {
  const places = new Map<string, string[]>();
  // Programs take handlers by the names of their routes, and no other file does
  const entry = "handlers/handlers.ts";
  const users = FILES.filter(({ path, text }) => importsOf(text).some((one) => targetOf(path, one) === entry));
  assert.deepEqual(users, []);
  for (const file of FILES.filter(({ path }) => path !== entry)) {
    const names = codeOnly(file.text).matchAll(
      /^export (?:declare )?(?:abstract )?(?:async )?(?:function\*?|const|let|class|interface|type) (\w+)/gm,
    );
    for (const name of new Set([...names].map((match) => match[1] ?? ""))) {
      places.set(name, [...places.get(name) ?? [], file.path]);
    }
  }
  assert.ok(places.size > 1_000, "the exports of the project are found");
  const doubles = [...places].filter(([, paths]) => paths.length > 1).map(([name, paths]) =>
    `${name}: ${paths.join()}`
  );
  assert.deepEqual(doubles, []);
});

test("a docstring begins with a verb or with the noun that the thing is", () => {
  const opening =
    /\/\*\*\s+(?:\* +)?(?:It|Its|One|Of|What|Whose|Those|Whether|Who|That|Aborted|Asked|Called|Closed|Copied|Given|Handed|Kept|Killed|Loaded|Made|Opened|Put|Refused (?=where|inside)|Seen|Sent|Set (?!of)|Shared by|Thrown|Told|Tried|Used|Woken)\b[^\n]*/g;
  // In a table of docs/configuration.md such words follow the name of the key
  const wrong = sourceFiles(["cli", "fixtures", "handlers", "lib", "scripts", "test"])
    .filter(({ path }) => path !== "lib/config/gateway_config.ts")
    .flatMap(({ path, text }) =>
      [...text.matchAll(opening)].map(([found]) => `${path}: ${found.replace(/\s+/g, " ")}`)
    );
  assert.deepEqual(
    wrong,
    [],
    'begin with "Returns", "Closes", "The scopes of a token" and the like (docs/design/style.md "Docstrings and comments")',
  );
});

/** A node of the syntax tree of a TypeScript file. */
interface SyntaxNode {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

const isNode = (value: unknown): value is SyntaxNode =>
  typeof value === "object" && value !== null && "type" in value && typeof value.type === "string" && "end" in value;

/** Node that a comment right above may speak of, at the most. */
const STATEMENT = /(?:Statement|Declaration|MethodDefinition|PropertyDefinition)$/;

/**
 * Returns the casts of a file without a comment that says why they are true: on a line of the statement up to the cast, or right above the
 * statement or a part of it. `as const` is none, and neither is `as unknown`, which is always true. `!` and `any` have no excuse.
 */
function uncertain({ path, text }: SourceFile): readonly string[] {
  const lines = text.split("\n");
  const found: string[] = [];
  const lineOf = (place: number) => text.slice(0, place).split("\n").length - 1;
  const isComment = (line: number) => /^\s*(?:\/\/|\/?\*)/.test(lines[line] ?? "");
  const isExplained = (cast: SyntaxNode, parents: readonly SyntaxNode[]) => {
    let top = cast;
    for (const node of [cast, ...parents.toReversed()]) {
      top = node;
      if (isComment(lineOf(node.start) - 1)) return true;
      if (STATEMENT.test(node.type)) break;
    }
    return lines.slice(lineOf(top.start), lineOf(cast.end) + 1).some((line) => /(?:^|\s)(?:\/\/|\/\*) /.test(line));
  };
  const look = (node: SyntaxNode, parents: readonly SyntaxNode[]) => {
    const type = node.type === "TSAsExpression" && isNode(node["typeAnnotation"]) ? node["typeAnnotation"] : undefined;
    const name = type && text.slice(type.start, type.end);
    const isCast = name !== undefined && name !== "const" && name !== "unknown" && !isExplained(node, parents);
    if (isCast || /^TS(?:AnyKeyword|NonNullExpression|TypeAssertion)$/.test(node.type)) {
      found.push(`${path}:${lineOf(node.end) + 1}: ${text.slice(node.start, node.end).replaceAll(/\s+/g, " ")}`);
    }
    const inner = [...parents, node];
    for (const value of Object.values(node)) {
      for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) look(child, inner);
    }
  };
  const tree: unknown = parseAst(text, { lang: "ts" });
  if (isNode(tree)) look(tree, []);
  return found;
}

test("a cast says in a comment why it is true, and nothing is any or taken to be there by !", () => {
  const suspects = FILES.filter(({ path, text }) =>
    path.endsWith(".ts") && !path.includes("/scaffolds/") &&
    /^(?!import|export \{| {2}(?:type )?\w+ as \w+,$).*\bas (?!const\b)|\bany\b|[\w)\]]!(?!=)/m.test(codeOnly(text))
  );
  assert.ok(suspects.length > 200, "files with casts are found");
  assert.deepEqual(suspects.flatMap(uncertain), [], "narrow it, give it a type, or say beside it why it is true");
  const text = [
    "const a = b as C;",
    "const d = b as C; // checked above",
    "// Checked above",
    "const e = f([",
    "  b as C,",
    "]);",
    "/** Converts. */",
    "function g(b: unknown) {",
    "  return b as C;",
    "}",
    'const h = ["x"] as const, i = JSON.parse(j) as unknown;',
    "const k: any = l!;",
    "const m = `as ${n as unknown as C}`;",
  ].join("\n");
  assert.deepEqual(uncertain({ path: "a.ts", text }), [
    "a.ts:1: b as C",
    "a.ts:9: b as C",
    "a.ts:12: any",
    "a.ts:12: l!",
    "a.ts:13: n as unknown as C",
  ]);
});
