import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Machine, onMachine } from "../../cli/support/run_in.ts";
import { readPidFile } from "../../../lib/host/daemon/daemon_state.ts";
import { RUN } from "../../support/gateway_process.ts";
import { killIfThere } from "../../support/kill_if_there.ts";
import { PROJECT_ROOT } from "../../support/source_files.ts";
import { type PageShell, type Said, withPageShell } from "./page_shell.ts";
import type { Block, Page } from "./read_pages.ts";

/** Address in the pages, where each test has a port of its own */
const ADDRESS = /(127\.0\.0\.1|localhost):42617/g;
/** Head of the audit: position and hash */
const HEAD = /\b\d+:[0-9a-f]{64}\b/g;
/** An error that a program printed, as JSON or as Node shows an object: it ends with 0 all the same */
const REFUSAL = /["']error["']|\berror: \{/;
const SCOPES = "chat,runs,tools,approve,admin";
const RUN_LANGUAGES = ["sh", "console", "ts", "js"];
/** Environment of each command of a page, beside a home of its own */
const ENVIRONMENT = { POSTERN__GATEWAY__PORT: "0", NO_COLOR: "1" };
const OFFLINE = { POSTERN__PROVIDER__KIND: "offline" };
const document = (path: string) => readFileSync(join(PROJECT_ROOT, "fixtures/documents", path));
/** Files of every workspace that the examples may read */
const FILES = {
  "README.md": "# Garden monitor\n\nMeasures soil moisture in four beds.\n",
  "notes.txt": "Water the beans on Tuesday.\n",
  "report.docx": document("report.docx"),
  "report.pdf": document("pdf/report.pdf"),
  "photo.jpg": document("images/photo.jpg"),
};

/**
 * Runs every block of a page that is not marked, in order, as one reader with a fresh home and a gateway of their own.
 * @param environment variables of the blocks that work without that gateway. Default: the offline assistant
 */
export async function runPage(
  page: Page,
  environment: Readonly<Record<string, string>> = OFFLINE,
): Promise<void> {
  const blocks = page.blocks.filter(({ notRun, language }) => notRun === undefined && isRun(language));
  if (!blocks.some(({ language, file }) => file === undefined && language !== "json")) return;
  await onMachine(async (machine) => {
    const config = page.blocks.filter(({ file }) => file === "postern.toml").map(({ text }) => text).join("\n");
    if (config !== "") write(join(machine.home, ".config/postern/postern.toml"), config);
    const written = page.blocks.flatMap(({ file, text }) => (file === undefined ? [] : [[file, text]] as const));
    for (const [path, text] of [...Object.entries(FILES), ...written]) {
      if (path !== "postern.toml") write(join(machine.cwd, path), text);
    }
    linkPackages(machine.cwd);
    const alone = blocks.filter(({ withoutGateway }) => withoutGateway);
    const others = blocks.filter((block) => !alone.includes(block));
    if (others.length > 0) await followWithGateway(machine, others);
    if (alone.length === 0) return;
    try {
      await withPageShell({ machine, environment: { ...ENVIRONMENT, ...environment } }, async (shell) => {
        const reader = new Reader({ machine, shell, host: "127.0.0.1:42617", banner: "" });
        for (const block of alone) await reader.follow(block);
      });
    } finally {
      // A daemon that a page started and left running
      await machine.run(["daemon", "stop"]);
      const left = await readPidFile(machine.dataDir);
      if (left?.kind === "alive") killIfThere(left.process.pid);
    }
  });
}

async function followWithGateway(machine: Machine, blocks: readonly Block[]): Promise<void> {
  const { stderr } = await machine.withGateway([], async ({ address, banner }) => {
    const { stdout: token } = await machine.run(["token", "create", "--scope", SCOPES]);
    const environment = { ...ENVIRONMENT, TOKEN: token.trim() };
    await withPageShell({ machine, environment }, async (shell) => {
      const reader = new Reader({ machine, shell, host: new URL(address).host, banner });
      for (const block of blocks) await reader.follow(block);
    });
  }, { env: OFFLINE });
  assert.doesNotMatch(stderr, /internal error/i);
}

/** Compares what was printed with the text of a page, where `...` stands for anything: in a line, or for lines. */
function assertPrints(printed: string, expected: string, message: string): void {
  const pattern = expected.split(/(?:^|\n)\.\.\.(?:\n|$)/).map((piece) =>
    piece.split("\n").map((line) => line.split("...").map(escaped).join(".*")).join("\\n")
  ).join("(?:^|\\n|.)*?");
  const output = printed.split("\n").map((line) => line.trimEnd()).join("\n").trim();
  assert.match(output, new RegExp(`^${pattern}$`), message);
}

function isRun(language: string): boolean {
  return RUN_LANGUAGES.includes(language);
}

class Reader {
  readonly #machine: Machine;
  readonly #shell: PageShell;
  readonly #host: string;
  /** Newest identifier of each kind that was shown, such as `run_` */
  readonly #seen = new Map<string, string>();

  constructor({ machine, shell, host, banner }: {
    readonly machine: Machine;
    readonly shell: PageShell;
    readonly host: string;
    readonly banner: string;
  }) {
    this.#machine = machine;
    this.#shell = shell;
    this.#host = host;
    this.#note(banner);
  }

  async follow(block: Block): Promise<void> {
    if (block.language === "console") await this.#compare(block);
    else if (block.language === "sh") await this.#runCommands(block);
    else await this.#runProgram(block);
  }

  async #runCommands(block: Block): Promise<void> {
    const commands = commandsOf(block.text);
    for (const [at, command] of commands.entries()) {
      const isLast = at === commands.length - 1;
      const text = await this.#filled(command);
      if (isLast && block.until !== undefined) return await this.#shell.start(text, block.until);
      this.#expect(block, { said: await this.#run(text, block.types), command, exits: isLast ? block.exits : 0 });
    }
  }

  /** Runs a `console` block: commands behind `$ `, and what they print, where `...` stands for anything. */
  async #compare(block: Block): Promise<void> {
    for (const part of block.text.split(/^\$ /m).slice(1)) {
      const [command = ""] = commandsOf(part);
      const expected = part.slice(command.length).trim();
      const said = await this.#run(await this.#filled(command), block.types);
      this.#expect(block, { said, command, exits: block.exits });
      assertPrints(said.shown, expected, `${block.place}: what "${command}" prints`);
    }
  }

  /** Runs a program, and compares what it prints with the block of its output. A program that prints has such a block. */
  async #runProgram({ place, language, text, until, exits, output = "" }: Block): Promise<void> {
    const name = `${place.replaceAll(/\W/g, "_")}.${language === "js" ? "mjs" : "mts"}`;
    write(join(this.#machine.cwd, name), await this.#filled(text));
    const command = [...RUN, name].join(" ");
    if (until !== undefined) return await this.#shell.start(command, until);
    const said = await this.#run(command);
    assert.equal(said.code, exits, `${place}: ${said.stderr}`);
    assert.doesNotMatch(said.stdout, REFUSAL, `${place}: something was refused`);
    assertPrints(said.stdout, output, `${place}: what it prints, as the block marked "output" has it`);
  }

  async #run(command: string, types?: readonly string[]): Promise<Said> {
    const said = await this.#shell.run(command, types);
    this.#note(`${said.stdout}${said.stderr}`);
    return said;
  }

  #expect(
    { place, language }: Block,
    { said, command, exits }: { readonly said: Said; readonly command: string; readonly exits: number },
  ): void {
    assert.equal(said.code, exits, `${place}: "${command}" ended with ${said.code}\n${said.stdout}${said.stderr}`);
    // curl says nothing by its exit code of a request that was refused; a console block shows what it prints
    const refusal = language === "sh" && /\bcurl\b/.test(command) && exits === 0 &&
      /^\{"error":\{.*/m.exec(said.stdout)?.[0];
    if (refusal) assert.fail(`${place}: "${command}" was refused: ${refusal}`);
  }

  #note(output: string): void {
    for (const [id, kind = ""] of output.matchAll(/\b([a-z]+_)[0-9a-z]{8,64}\b/g)) this.#seen.set(kind, id);
    for (const [head] of output.matchAll(HEAD)) this.#seen.set("head", head);
  }

  /** The text with this gateway's address, a fresh pairing code, and the newest identifier where `run_...` stands. */
  async #filled(text: string): Promise<string> {
    let filled = text.replaceAll(ADDRESS, this.#host);
    if (filled.includes("ABCD-EFGH")) {
      const { stdout } = await this.#machine.run(["pair"]);
      filled = filled.replaceAll("ABCD-EFGH", /([0-9A-Z]{4}-)+[0-9A-Z]{4}/.exec(stdout)?.[0] ?? "");
    }
    filled = filled.replaceAll(HEAD, (head) => this.#seen.get("head") ?? head);
    return filled.replaceAll(/\b([a-z]+_)\.\.\./g, (id, kind) => this.#seen.get(kind) ?? id);
  }
}

/** The commands of a shell script, each with all of its lines. */
export function commandsOf(script: string): readonly string[] {
  const commands: string[] = [];
  let open = "";
  for (const line of script.split("\n")) {
    open += open === "" ? line : `\n${line}`;
    if (!isWhole(open)) continue;
    if (/^\s*[^#\s]/m.test(open)) commands.push(open);
    open = "";
  }
  return open === "" ? commands : [...commands, open];
}

function isWhole(command: string): boolean {
  if (/\\$/.test(command)) return false;
  if (!/['"<({]|\b(if|for|while|case)\b/.test(command)) return true;
  const { status, stderr } = spawnSync("bash", ["-n"], { input: command, encoding: "utf8" });
  return status === 0 && !stderr.includes("here-document");
}

/** Puts the packages that the examples import beside them, Postern from its source. */
export function linkPackages(folder: string): void {
  const modules = join(folder, "node_modules");
  mkdirSync(join(modules, "postern"), { recursive: true });
  for (const name of readdirSync(join(PROJECT_ROOT, "node_modules"))) {
    if (!name.startsWith(".") && name !== "postern") {
      symlinkSync(join(PROJECT_ROOT, "node_modules", name), join(modules, name));
    }
  }
  const exported = { ".": "./mod.js", "./handlers": "./handlers.js", "./testing": "./testing/mod.js" };
  write(join(modules, "postern/package.json"), JSON.stringify({ name: "postern", type: "module", exports: exported }));
  for (const name of ["mod", "handlers", "testing/mod"]) {
    const source = join(PROJECT_ROOT, `handlers/${name}.ts`);
    write(join(modules, `postern/${name}.js`), `export * from "${pathToFileURL(source)}";\n`);
    write(join(modules, `postern/${name}.d.ts`), `export * from "${source}";\n`);
  }
}

export function write(path: string, text: string | Uint8Array): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
