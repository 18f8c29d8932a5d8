import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, test } from "node:test";
import { type Machine, onMachine } from "../cli/support/run_in.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres_server.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { until } from "../support/until.ts";
import { type PageShell, withPageShell } from "./support/page_shell.ts";
import { readPages } from "./support/read_pages.ts";
import { commandsOf } from "./support/run_page.ts";

const missing = ["createuser", "pg_dump", "curl"].find((name) => spawnSync(name, ["--version"]).status !== 0);
const skip = NO_POSTGRES !== false ? NO_POSTGRES : missing !== undefined && `no ${missing}`;
const ENVIRONMENT = { POSTERN__GATEWAY__PORT: "0", POSTERN__PROVIDER__KIND: "offline", NO_COLOR: "1" };

/** Returns the commands of the block of a page that has a word. */
function commandsWith(path: string, word: string): readonly string[] {
  const page = readPages().find((page) => page.path === path);
  const block = page?.blocks.find(({ text, language }) => language === "sh" && text.includes(word));
  return commandsOf(block?.text ?? assert.fail(`${path} has no ${word}`));
}

describe("the pages about PostgreSQL", { skip }, () => {
  let server: PostgresServer;
  before(async () => void (server = await startPostgres()));
  after(() => server.end());

  /** Runs `use` with the shell of a reader, whose database is the one of the pages. */
  const withReader = (use: (shell: PageShell, machine: Machine) => Promise<void>, environment = {}) =>
    onMachine((machine) =>
      withPageShell({ machine, environment: { ...ENVIRONMENT, ...environment } }, (shell) => use(shell, machine))
    );
  const filled = (command: string) =>
    command.replaceAll("db.example:5432", `127.0.0.1:${server.port}`).replaceAll(/--port \d+/g, "--port 0");
  const run = async (shell: PageShell, command: string): Promise<string> => {
    const { code, stdout, stderr } = await shell.run(filled(command));
    assert.equal(code, 0, `${command}: ${stdout}${stderr}`);
    return stdout;
  };

  test("have a set-up that makes a user and a database, and a gateway that keeps its records there", async () => {
    const [install = "", ...make] = commandsWith("docs/postgresql.md", "createuser");
    const { peerDependencies = {} } = JSON.parse(readFileSync(join(PROJECT_ROOT, "package.json"), "utf8")) as {
      readonly peerDependencies?: Readonly<Record<string, string>>;
    };
    assert.equal(install, "npm install -g pg");
    assert.ok("pg" in peerDependencies, "pg is no peer");
    const env = {
      ...{ PATH: process.env["PATH"] ?? "", PGHOST: "127.0.0.1", PGPORT: String(server.port), PGUSER: server.user },
      PGPASSWORD: server.password,
    };
    // Without a terminal the password is read from the input
    const { status, stderr } = spawnSync("setsid", ["-w", "bash", "-euc", make.join("\n")], {
      ...{ env, input: "the-password\nthe-password\n", encoding: "utf8" },
    });
    assert.equal(status, 0, stderr);
    await withReader(async (shell) => {
      const commands = commandsWith("docs/postgresql.md", "postern doctor");
      for (const command of commands.slice(0, -1)) await run(shell, command);
      await shell.start(filled(commands.at(-1) ?? ""), "Address");
      const [row] = await server.run("SELECT count(*) AS n FROM postern.records", "records");
      assert.ok(Number(row?.["n"]) > 0, "the gateway keeps nothing there");
    });
  });

  test("have a move of the records of a gateway, with the commands as they stand there", async () => {
    const database = await server.createDatabase();
    await withReader(async (shell) => {
      await run(shell, "postern daemon start");
      await run(shell, "postern token add --label before-the-move");
      await run(shell, "postern config set storage.url_env POSTERN_DATABASE");
      for (const command of commandsWith("docs/postgresql.md", "--dry-run")) await run(shell, command);
      assert.match(await run(shell, "postern token list"), /before-the-move/);
      const [row] = await server.run("SELECT count(*) AS n FROM postern.records WHERE collection = 'tokens'", database);
      assert.ok(Number(row?.["n"]) >= 1);
      await run(shell, "postern daemon stop");
    }, { POSTERN_DATABASE: server.url(database) });
  });

  test("have two gateways that show each other, of which one is taken out", async () => {
    const database = await server.createDatabase();
    await withReader(async (shell) => {
      await run(shell, "postern config set storage.url_env POSTERN_DATABASE");
      await run(shell, "postern config set storage.driver postgres");
      const gateways = "SELECT key FROM postern.records WHERE collection = 'gateway_leases' ORDER BY id";
      for (const command of commandsWith("docs/clusters.md", "postern-1")) {
        if (command.includes("postern gateway")) await shell.start(filled(command), "Address");
        else await run(shell, command);
      }
      await until(async () => (await server.run(gateways, database)).length === 2);
      const [status = ""] = commandsWith("docs/clusters.md", "cluster status");
      const shown = await run(shell, status);
      const ids = (await server.run(gateways, database)).map(({ key }) => String(key));
      assert.equal(ids.length, 2);
      for (const id of ids) assert.match(shown, new RegExp(`${id} .*alive`));
      const [drain = ""] = commandsWith("docs/clusters.md", "cluster drain");
      await run(shell, drain.replace(/gw_\w+/, String(ids[1])));
      assert.match(await run(shell, status), new RegExp(`${ids[1]} .*drained`));
    }, { POSTERN_DATABASE: server.url(database) });
  });
});
