import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  copyFileSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { buildPackage } from "../support/build_package.ts";
import { documentFixture } from "../support/document_fixtures.ts";
import { ROOT, RUN, RUN_ENV } from "../support/gateway_process.ts";
import { loadsUntilHealth, RECORD_LOADS } from "../support/loads_until_health.ts";
import { until, withWorld } from "../support/world.ts";

const ON_DENO = "Deno" in globalThis && "Deno has no hook that sees modules load";
const TOKEN = "test-token-of-the-environment-0123456789";

const built = await buildPackage();

test("the package finds its dashboard and the modules of its threads", () =>
  withWorld(async (world) => {
    const { root } = await world.workspace({ "note.txt": "a gate\n", "report.pdf": documentFixture("pdf/report.pdf") });
    const dataDir = await world.folder();
    const entry: typeof import("../../handlers/mod.ts") = await import(
      pathToFileURL(join(built, "handlers/mod.js")).href
    );
    const config = {
      web_fetch: { enabled: true },
      url_access: { allow_loopback: true },
      autonomy: { level: "full" as const },
    };
    const environment = { POSTERN_TOKEN: TOKEN };
    const gateway = await entry.createGateway({ dataDir, workspace: root, environment, config });
    world.onEnd(() => gateway.close());
    const fetch = async (path: string, input?: unknown) => {
      const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
      const init = input === undefined ? {} : { method: "POST", body: JSON.stringify({ input }) };
      const reply = await gateway.fetch(new Request(`http://127.0.0.1${path}`, { headers, ...init }));
      return { status: reply.status, text: await reply.text() };
    };
    const page = await fetch("/");
    assert.equal(page.status, 200);
    assert.ok(page.text.includes("</style>") && page.text.includes("WebSocket"), "style and script are inside");
    const found = await fetch("/v1/tools/content_search/call", { pattern: "g.te" });
    assert.match(found.text, /note\.txt/);
    const read = await fetch("/v1/tools/pdf_read/call", { path: "report.pdf" });
    assert.match(read.text, /Gate report/);
    const { withSite } = await import("../support/fake_site.ts");
    await withSite(() => ({ headers: { "content-type": "text/html" }, body: "<h1>Gates</h1>" }), async ({ origin }) => {
      assert.match((await fetch("/v1/tools/web_fetch/call", { url: `${origin}/a` })).text, /status=200.*# Gates/);
    });
  }));

test("the testing kit of the package gives its gateway a clock", async () => {
  const kit: typeof import("../../handlers/testing/mod.ts") = await import(
    pathToFileURL(join(built, "handlers/testing/mod.js")).href
  );
  const gateway = await kit.createTestGateway({ providers: { model: kit.scriptedProvider(["Hello"]) } });
  const socket = await kit.connect(gateway);
  socket.send({ type: "hello", events: true });
  socket.send("Hi");
  const { time } = await socket.next({ type: "done" });
  assert.equal(time, "2026-01-01T00:00:00.000Z");
  await gateway.close();
});

test(
  "a program that imports the package loads no part of its server",
  { skip: ON_DENO },
  () =>
    withWorld(async (world) => {
      const file = join(await world.folder(), "loads");
      const env = { PATH: process.env["PATH"], LOADS_FILE: file };
      const { stderr } = spawnSync("node", [...RECORD_LOADS, join(built, "handlers/mod.js")], {
        env,
        encoding: "utf8",
      });
      assert.equal(stderr, "");
      const loads = readFileSync(file, "utf8").trim().split("\n");
      assert.ok(loads.some((url) => url.includes("/chunks/services-")));
      assert.deepEqual(loads.filter((url) => /\/srvx\/|\/chunks\/(?:gateway|start_services)-/.test(url)), []);
    }),
);

test("the handlers of the package answer by themselves", async () => {
  const { health }: typeof import("../../handlers/handlers.ts") = await import(
    pathToFileURL(join(built, "handlers/handlers.js")).href
  );
  const facts = { health: () => ({ status: "ok" as const, version: "1.2.3", uptime_seconds: 4 }) };
  const reply = await health({ facts })(new Request("http://127.0.0.1/health"));
  assert.deepEqual(await reply.json(), facts.health());
});

test("what a start calls is compiled together with its file", () => {
  const textOf = (name: string) =>
    globSync(`chunks/${name}-*.js`, { cwd: built }).map((file) => readFileSync(join(built, file), "utf8")).join();
  const services = textOf("services");
  // Has a name for it; is called as the file loads; is called by one of the first kind
  assert.match(services, /^var createServices = \(async function createServices\(/m);
  assert.match(services, /^var limitField = \(function limitField\(/m);
  assert.match(textOf("gateway"), /^var publishAddress = \(async function publishAddress\(/m);
  // A start would read the code of every function so compiled
  assert.match(services, /^function \w+\(/m);
  assert.doesNotMatch(textOf("work"), /^var \w+ = \((?:async )?function/m);
});

/** Compiles a strict project that has the package and none of its optional packages. @returns what the compiler printed, with the files it read */
function compileProject(
  folder: string,
  resolution: { readonly module: string; readonly moduleResolution: string; readonly skipLibCheck?: boolean },
) {
  const strict = {
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    skipLibCheck: false,
  };
  const compilerOptions = {
    ...strict,
    ...resolution,
    target: "es2024",
    types: ["node"],
    noEmit: true,
    listFiles: true,
  };
  const project = join(folder, `${resolution.moduleResolution}.json`);
  writeFileSync(project, JSON.stringify({ compilerOptions, files: ["program.ts"] }));
  const compiler = join(ROOT, "node_modules/typescript/bin/tsc");
  return spawnSync("node", [compiler, "-p", project, "--checkers", "1"], { encoding: "utf8" });
}

test("strict projects compile against the package, without its optional packages", {
  skip: ON_DENO && "it is the same compiler",
}, (t) => {
  // Beside the package, from where it finds the packages of the project
  const folder = mkdtempSync(join(dirname(built), "strict-project-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const installed = join(folder, "node_modules/postern");
  mkdirSync(installed, { recursive: true });
  copyFileSync(join(ROOT, "package.json"), join(installed, "package.json"));
  symlinkSync(built, join(installed, "dist"));
  writeFileSync(join(folder, "package.json"), '{"type":"module"}');
  const types = readFileSync(join(ROOT, "test/handlers/public_types.ts"), "utf8");
  writeFileSync(join(folder, "program.ts"), types.replace('"../../handlers/mod.ts"', '"postern"'));
  for (
    const resolution of [
      { module: "nodenext", moduleResolution: "nodenext" },
      { module: "esnext", moduleResolution: "bundler" },
    ]
  ) {
    const { status, stdout } = compileProject(folder, resolution);
    const lines = stdout.split("\n");
    assert.equal(status, 0, lines.filter((line) => line.includes("error")).join("\n"));
    assert.deepEqual(lines.filter((line) => /\/(playwright-core|koffi|gpt-tokenizer)\//.test(line)), []);
    // The types that a program uses stand alone. A type of the gateway's inside would bring hundreds of files with it
    const own = lines.filter((line) => line.startsWith(built) && line.endsWith(".d.ts"));
    assert.ok(own.length >= 4 && own.length <= 20, own.join("\n"));
  }
  // The types of its parts are those of the gateway's services, which name the optional packages
  const handled = readFileSync(join(ROOT, "test/handlers/handler_types.ts"), "utf8");
  writeFileSync(join(folder, "program.ts"), handled.replace('"../../handlers/handlers.ts"', '"postern/handlers"'));
  const { status, stdout } = compileProject(folder, {
    ...{ module: "nodenext", moduleResolution: "nodenext", skipLibCheck: true },
  });
  assert.equal(status, 0, stdout.split("\n").filter((line) => line.includes("error")).join("\n"));
});

test("the package has the licences of Adobe's maps and names of glyphs", () => {
  const text = (path: string) => readFileSync(join(built, "chunks", path), "utf8").replaceAll("%%Copyright: ", "");
  for (
    const [path, holder] of [["cmaps/LICENSE", "1990-2009 Adobe"], ["font_data.LICENSE", "2002-2019 Adobe"]] as const
  ) {
    assert.ok(text(path).includes(`Copyright ${holder}`), path);
    assert.match(text(path), /Redistributions in binary form must reproduce the above[\s\S]*OF SUCH DAMAGE/, path);
  }
});

test("the package has the licences of the packages that stand in its files, and those are not looked for elsewhere", () => {
  const licences = readFileSync(join(built, "chunks/packages.LICENSE"), "utf8");
  const code = globSync("{cli,handlers,chunks}/*.js", { cwd: built }).map((file) =>
    readFileSync(join(built, file), "utf8")
  );
  for (const name of ["valibot", "@valibot/to-json-schema", "citty", "confbox", "consola", "itty-router"]) {
    assert.match(licences, new RegExp(`^${name}:\n\n(?:The )?MIT License\n\nCopyright`, "m"));
    assert.deepEqual(code.filter((text) => text.includes(`from '${name}`)), []);
  }
});

test("the package writes new plugins as the sources do", () =>
  withWorld(async (world) => {
    const { SCAFFOLD_KINDS, writeScaffold } = await import("../../lib/extensions/plugins/write_scaffold.ts");
    const [command = "", ...options] = RUN;
    const filesOf = (folder: string) =>
      readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile())
        .map((entry) => join(entry.parentPath, entry.name))
        .map((file) => [relative(folder, file), readFileSync(file, "utf8")]).sort();
    const [cwd, sources] = [await world.folder(), await world.folder()];
    for (const kind of SCAFFOLD_KINDS) {
      const cli = [...options, join(built, "cli/main.js"), "plugin", "new", "--id", kind, "--scaffold", kind];
      const { status, stderr } = spawnSync(command, cli, { cwd, encoding: "utf8" });
      assert.equal(status, 0, stderr);
      await writeScaffold({ id: kind, kind, folder: join(sources, kind) });
    }
    assert.ok(filesOf(cwd).length > 20, "the files are found");
    assert.deepEqual(filesOf(cwd), filesOf(sources));
  }));

test("the command line runs from the package", () => {
  const [command = "", ...options] = RUN;
  const { status, stdout, stderr } = spawnSync(command, [...options, join(built, "cli/main.js"), "config", "schema"], {
    encoding: "utf8",
  });
  assert.equal(status, 0, stderr);
  assert.ok(JSON.parse(stdout).properties.gateway);
});

test("the daemon of the package starts and stops", () =>
  withWorld(async (world) => {
    const home = await world.folder();
    const postern = (...words: readonly string[]) => {
      const [command = "", ...options] = RUN;
      const env = { ...RUN_ENV, HOME: home, POSTERN__PROVIDER__KIND: "offline" };
      return spawnSync(command, [...options, join(built, "cli/main.js"), ...words], {
        encoding: "utf8",
        env,
        cwd: home,
      });
    };
    const started = postern("daemon", "start", "--port", "0");
    const stopped = postern("daemon", "stop");
    assert.equal(started.status, 0, started.stderr);
    assert.equal(stopped.status, 0, stopped.stderr);
  }));

test("a start reads its code from few files", { skip: ON_DENO }, async () => {
  const loads = await loadsUntilHealth(join(built, "cli/main.js"), { POSTERN__PROVIDER__KIND: "offline" });
  const own = loads.filter((url) => url.startsWith(pathToFileURL(built).href)).map((url) =>
    url.slice(url.lastIndexOf("/"))
  );
  assert.ok(own.length <= 12, own.join(", "));
});

test(
  "a start leaves the routes and the agent in a file of their own, whatever the provider",
  { skip: ON_DENO },
  async () => {
    for (const kind of ["offline", "openai_compatible", "anthropic"]) {
      const loads = await loadsUntilHealth(join(built, "cli/main.js"), {
        POSTERN__PROVIDER__KIND: kind,
        ...kind === "offline" ? {} : {
          ANTHROPIC_API_KEY: "sk-test-0123456789",
          POSTERN__PROVIDER__BASE_URL: "http://127.0.0.1:9",
          POSTERN__PROVIDER__MODEL: "m",
        },
      });
      assert.ok(loads.length > 5);
      assert.deepEqual(loads.filter((url) => /\/work-[^/]*\.js$/.test(url)), [], kind);
    }
  },
);

test("a thread loads its own code, and not the gateway's", async () => {
  const { sourceFiles } = await import("../support/source_files.ts");
  const chunks = join(built, "chunks");
  const threads = readdirSync(chunks).filter((name) => name.endsWith("_worker.js"));
  const sources = sourceFiles(["lib"]).map(({ path }) => /(\w+_worker)\.ts$/.exec(path)?.[1]).filter((name) =>
    name !== undefined
  );
  assert.deepEqual(threads.sort(), sources.map((name) => `${name}.js`).sort());
  for (const thread of threads) {
    const loaded = new Set([thread]);
    let bytes = 0;
    for (const name of loaded) {
      const text = readFileSync(join(chunks, name), "utf8");
      bytes += text.length;
      for (const [, next = ""] of text.matchAll(/^(?:import|export)\b[^;]*?'\.\/([^']+)';/gm)) loaded.add(next);
    }
    assert.ok(bytes <= 150_000, `${thread} loads ${bytes} bytes: ${[...loaded].join(", ")}`);
  }
});

test("the program in front of a sandboxed command is one file, which the sandbox can show", () => {
  const text = readFileSync(join(built, "chunks/relay_forwarder.js"), "utf8");
  const imports = [...text.matchAll(/\b(?:from|import)\s*\(?['"]([^'"]+)['"]/g)].map(([, name = ""]) => name);
  assert.ok(imports.length > 0);
  assert.deepEqual(imports.filter((name) => !name.startsWith("node:")), []);
});

test("version and help leave configuration and services alone", { skip: ON_DENO }, () =>
  withWorld(async (world) => {
    const home = await world.folder();
    for (const flag of ["--version", "--help"]) {
      const env = { PATH: process.env["PATH"], LOADS_FILE: join(home, flag) };
      const { status } = spawnSync(process.execPath, [...RECORD_LOADS, join(built, "cli/main.js"), flag], { env });
      assert.equal(status, 0);
      const loads = readFileSync(join(home, flag), "utf8").trim().split("\n");
      assert.deepEqual(loads.filter((url) => !/\/(cli\/main|chunks\/(main|command)-[^/]*)\.js$|^node:/.test(url)), []);
    }
  }));

test(
  "the compiled code is kept for the next start before the gateway ends",
  { skip: ON_DENO },
  () =>
    withWorld(async (world) => {
      const home = await world.folder();
      const cache = join(home, "cache");
      mkdirSync(cache);
      const env = {
        PATH: process.env["PATH"],
        HOME: home,
        NODE_COMPILE_CACHE: cache,
        POSTERN__PROVIDER__KIND: "offline",
      };
      const child = spawn(process.execPath, [join(built, "cli/main.js"), "gateway", "--port", "0"], { cwd: home, env });
      child.stdout.resume();
      child.stderr.resume();
      const ended = once(child, "exit");
      world.onEnd(() => {
        child.kill("SIGKILL");
        return ended;
      });
      await until(() => {
        assert.equal(child.exitCode, null, "it ended before");
        // In a folder of its own for each version of the runtime
        return readdirSync(cache, { recursive: true }).some((path) => String(path).includes(sep));
      }, "nothing was kept");
    }),
);
