import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { release } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { type Check, type Finding, findingsText } from "../../../cli/doctor/finding.ts";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { startLocalServer } from "../../../fixtures/upstream/local_servers.ts";
import {
  boundsFinding,
  browserFinding,
  linksFindings,
  programFindings,
} from "../../../cli/doctor/check_containment.ts";
import { defaultConfig } from "../../../lib/config/config.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { tryBubblewrap } from "../../../lib/system/process/sandbox.ts";
import { takeGatewayLock } from "../../../lib/storage/gateway_lock.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import { until } from "../../support/until.ts";
import { samplePackage } from "../../support/plugin_package.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const { signal: NEVER } = new AbortController();
const skip = process.platform === "win32" ? "there are no modes and no locks of this kind on Windows" : false;
/** Deno counts a process's time from the start of the file's own worker, so that there nobody knows */
const skipClock = process.platform === "linux" && !("Deno" in globalThis)
  ? false
  : "the age of another process is read from /proc";
/** Whatever listens on the machine that runs the tests */
const ANY_PORT = { POSTERN__GATEWAY__PORT: "0" };

interface Examined {
  readonly code: number;
  readonly all: readonly Finding[];
  /** Findings of one name, such as `state: message` */
  of(name: string): readonly string[];
}

async function examine(
  { run }: Machine,
  { env = {}, flags = [] }: { readonly env?: Readonly<Record<string, string>>; readonly flags?: readonly string[] } =
    {},
): Promise<Examined> {
  const { code, stdout, stderr } = await run(["doctor", "--json", ...flags], { env: { ...ANY_PORT, ...env } });
  assert.equal(stderr, "");
  const { ok, checks } = JSON.parse(stdout) as { ok: boolean; checks: readonly Finding[] };
  assert.equal(ok, code === 0);
  return {
    code,
    all: checks,
    of: (name) => checks.filter((check) => check.name === name).map(({ state, message }) => `${state}: ${message}`),
  };
}

async function makeDatabase({ dataDir }: Machine): Promise<string> {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const path = join(dataDir, "postern.db");
  await (await openSqliteStore({ path, clock: systemClock })).close();
  return path;
}

test("on a fresh machine nothing fails, everything takes one line, and nothing is made", () =>
  onMachine(async (machine) => {
    const { code, all } = await examine(machine);
    assert.equal(code, 0, JSON.stringify(all));
    assert.ok(all.length >= 15);
    for (const { name, state, message, fix } of all) {
      assert.ok(!`${message}${fix}`.includes("\n"), name);
      assert.equal(fix === null, state === "ok", `${name}: what is not fine has something that mends it`);
    }
    assert.deepEqual(readdirSync(machine.home), ["work"]);
    const shown = await machine.run(["doctor"], { env: ANY_PORT });
    assert.match(shown.stdout, /^ok +configuration +No file/m);
    assert.match(shown.stdout, /\n\n\d+ ok[^\n]*\n$/);
  }));

test("warnings are a failure with --strict alone", () =>
  onMachine(async (machine) => {
    const env = { POSTERN_GATEWAY_PORT: "1" };
    const { code, of } = await examine(machine, { env });
    assert.equal(code, 0);
    assert.match(
      of("environment").join(),
      /warning: POSTERN_GATEWAY_PORT is set, yet no setting names it; .* POSTERN__SECTION__KEY/,
    );
    assert.equal((await examine(machine, { env, flags: ["--strict"] })).code, 1);
  }));

test("a variable with a name of the documentation that no setting names is told with the setting, while that is free", () =>
  onMachine(async (machine) => {
    const meant = {
      POSTERN_DATABASE: "storage.url_env",
      POSTERN_DATABASE_DIRECT: "storage.direct_url_env",
      POSTERN_RECORDS: "storage.key_env",
      POSTERN_CLUSTER_TOKEN: "cluster.token_env",
    };
    const set = Object.fromEntries(Object.keys(meant).map((name) => [name, "set"]));
    const told = async (env: Readonly<Record<string, string>>) =>
      (await examine(machine, { env: { ...set, ...env } })).all
        .filter(({ name, state }) => name === "environment" && state === "warning")
        .map(({ message, fix }) => `${message} -> ${fix}`);
    const free = await told({
      POSTERN__STORAGE__DRIVER: "postgres",
      POSTERN__STORAGE__URL: "postgres://127.0.0.1:1/x",
    });
    for (const [name, key] of Object.entries(meant)) {
      const expected = `${name} is set, yet no setting names it -> postern config set ${key} ${name}`;
      assert.equal(free.includes(expected), name !== "POSTERN_DATABASE", free.join("\n"));
      const page = readFileSync(new URL("../../../docs/postgresql.md", import.meta.url), "utf8");
      const [, setting] = key.split(".");
      assert.match(page, new RegExp(`${setting} (?:= ")?${name}`), `no page names ${name} so`);
    }
    const alone = await told({});
    assert.ok(
      alone.includes(
        "POSTERN_DATABASE is set, yet no setting names it -> postern config set storage.url_env POSTERN_DATABASE",
      ),
    );
    assert.match(
      alone.join("\n"),
      /^POSTERN_CLUSTER_TOKEN is set, yet no setting names it; .* -> unset POSTERN_CLUSTER_TOKEN$/m,
    );
    const other = { POSTERN__STORAGE__KEY_ENV: "OTHER", OTHER: "set" };
    assert.match((await told(other)).join("\n"), /^POSTERN_RECORDS is set, .* -> unset POSTERN_RECORDS$/m);
  }));

test("a variable that the configuration names and nobody set is a warning, there and in the log of a start", () =>
  onMachine(async (machine) => {
    const path = join(machine.home, "named.toml");
    writeFileSync(
      path,
      `[gateway.node_control]
enabled = true
auth_token_env = "POSTERN_OF_NODES"
[channels.ci]
secret_env = "CI_SIGNATURE"
[mcp.servers.a]
command = "true"
env = { my_env = "canary-7f3a" }
`,
    );
    const flags = ["--config", path];
    const env = { ...ANY_PORT, POSTERN_NODE_TOKEN: "canary-51c2" };
    const missing = await examine(machine, { flags, env });
    assert.deepEqual(missing.all.filter(({ message }) => message.includes("[mcp.servers.a]")).map(({ fix }) => fix), [
      "postern config set security.mcp.enabled true && postern config set security.mcp.allowed_servers '[\"a\"]'; " +
      "else take mcp.servers.a out of the configuration",
    ]);
    const warnings = missing.all.filter(({ name, state }) => name === "environment" && state === "warning");
    assert.deepEqual(warnings.map(({ message, fix }) => [message, fix]), [
      [
        "POSTERN_OF_NODES, which gateway.node_control.auth_token_env names, is not set here",
        "export POSTERN_OF_NODES=... where the gateway is started",
      ],
      [
        "CI_SIGNATURE, which channels.ci.secret_env names, is not set here",
        "export CI_SIGNATURE=... where the gateway is started",
      ],
    ]);
    assert.ok(!JSON.stringify(missing.all).includes("canary"));
    const set = { POSTERN_OF_NODES: "a-token", CI_SIGNATURE: "a-secret" };
    const whole = await examine(machine, { flags, env: { ...env, ...set } });
    assert.doesNotMatch(whole.of("environment").join(), /warning/);
    const one = { POSTERN_OF_NODES: "a-token" };
    const { stderr } = await machine.withGateway(flags, () => Promise.resolve(), { env: one });
    assert.match(stderr, /warn.* not set.*variable=CI_SIGNATURE key=channels\.ci\.secret_env/);
    assert.doesNotMatch(stderr, /POSTERN_OF_NODES/);
  }));

test("a ./postern.toml that nobody accepted, and one that is wrong, fail and say what mends it", () =>
  onMachine(async (machine) => {
    const path = join(machine.cwd, "postern.toml");
    writeFileSync(path, '[gateway]\nprot = 1\n[providers.a]\napi_key_env = "sk-not-a-name-at-all"\n');
    const untrusted = await examine(machine);
    assert.equal(untrusted.code, 1);
    assert.match(untrusted.all.find(({ name }) => name === "configuration")?.fix ?? "", /postern trust/);
    const wrong = await examine(machine, { flags: ["--config", path] });
    assert.match(wrong.of("configuration").join(), /failure: .*postern\.toml:2.*"gateway\.port".*and 1 more/);
    assert.match(wrong.of("the rest").join(), /Not looked at/);
    assert.ok(!JSON.stringify(wrong.all).includes("sk-not"));
  }));

test("names that a proxy looks up are a warning, since no address is checked then", () =>
  onMachine(async (machine) => {
    const told = async (resolve: string) =>
      (await examine(machine, { env: { POSTERN__PROXY__RESOLVE: resolve } })).of("configuration").join("\n");
    assert.match(await told("proxy"), /warning: The proxy looks up names, so that no address is checked/);
    assert.doesNotMatch(await told("local"), /proxy/);
  }));

test(
  "a file that others can change fails, and so does one that hides ./postern.toml as a warning",
  { skip },
  () =>
    onMachine(async (machine) => {
      const own = join(machine.home, ".config/postern");
      mkdirSync(own, { recursive: true });
      writeFileSync(
        join(own, "postern.toml"),
        '[gateway]\nrate_limit_max = 0\n[gateway.node_control]\nauth_token = "x1"\n',
      );
      writeFileSync(join(machine.cwd, "postern.toml"), "");
      chmodSync(join(own, "postern.toml"), 0o644);
      const first = await examine(machine, { env: { POSTERN__GATEWAY__RATE_LIMIT_MAX: "5" } });
      assert.equal(first.code, 0);
      assert.match(first.of("configuration").join("\n"), /warning: Other users can read it/);
      assert.match(first.of("configuration").join("\n"), /warning: .*work\/postern\.toml is not used/);
      assert.match(first.of("environment").join("\n"), /warning: POSTERN__GATEWAY__RATE_LIMIT_MAX takes the place of/);
      const keyFile = join(machine.home, "provider.key");
      writeFileSync(keyFile, "sk-0123456789");
      chmodSync(keyFile, 0o644);
      const named = await examine(machine, { env: { POSTERN__PROVIDER__API_KEY_FILE: keyFile } });
      assert.match(named.of("configuration").join("\n"), /warning: Other users can read the key in .*provider\.key/);
      chmodSync(join(own, "postern.toml"), 0o666);
      const second = await examine(machine);
      assert.match(second.of("configuration").join("\n"), /failure: Other users can change it/);
      assert.equal(second.code, 1);
    }),
);

test(
  "a data directory that others can read fails where it is not Postern's own",
  { skip },
  () =>
    onMachine(async (machine) => {
      const { dataDir } = machine;
      mkdirSync(dataDir, { recursive: true, mode: 0o755 });
      chmodSync(dataDir, 0o755);
      assert.match((await examine(machine)).of("data directory").join(), /warning: .*mode 755/);
      writeFileSync(join(dataDir, "letter.txt"), "");
      chmodSync(join(dataDir, "letter.txt"), 0o644);
      const { code, of } = await examine(machine);
      assert.equal(code, 1);
      assert.match(of("data directory").join("\n"), /failure: .*mode 755/);
      assert.match(of("data directory").join("\n"), /warning: Files in it are open to other users: letter\.txt/);
      const file = await examine(machine, { flags: ["--data-dir", join(dataDir, "letter.txt")] });
      assert.match(file.of("data directory").join(), /failure: .*is no folder/);
    }),
);

test(
  "a data directory that its group can read is open to others, one of mode 0700 is not",
  { skip },
  () =>
    onMachine(async (machine) => {
      const { dataDir } = machine;
      mkdirSync(dataDir, { recursive: true, mode: 0o700 });
      assert.match((await examine(machine)).of("data directory").join(), /^ok: /);
      for (const mode of [0o750, 0o710, 0o701, 0o704, 0o720]) {
        chmodSync(dataDir, mode);
        const found = (await examine(machine)).of("data directory").join();
        assert.match(found, new RegExp(`warning: .*mode ${mode.toString(8)}`));
      }
      chmodSync(dataDir, 0o700);
      writeFileSync(join(dataDir, "letter.txt"), "");
      for (const [mode, isOpen] of [[0o640, true], [0o600, false]] as const) {
        chmodSync(join(dataDir, "letter.txt"), mode);
        const found = (await examine(machine)).of("data directory").join();
        assert.equal(/warning: Files in it are open to other users: letter\.txt/.test(found), isOpen, found);
      }
    }),
);

test(
  "a database is looked at without a change; a newer, a damaged and a foreign one fail",
  { skip },
  () =>
    onMachine(async (machine) => {
      const path = await makeDatabase(machine);
      const before = readdirSync(machine.dataDir);
      assert.match((await examine(machine)).of("database").join(), /^ok: Version \d+, [\d.]+ MB, undamaged$/);
      assert.deepEqual(readdirSync(machine.dataDir).filter((name) => !before.includes(name)), ["gateway.lock"]);
      const database = new DatabaseSync(path);
      database.exec("PRAGMA user_version = 999");
      database.close();
      const newer = await examine(machine);
      assert.equal(newer.code, 1);
      assert.match(newer.of("database").join(), /failure: A newer Postern wrote it: its version is 999/);
      writeFileSync(path, "This is no database, and it is long enough to be taken for one by its size.".repeat(100));
      assert.match((await examine(machine)).of("database").join(), /failure: .*cannot be read/);
    }),
);

test(
  "records that a killed gateway left in the log of the database are seen",
  { skip },
  () =>
    onMachine(async (machine) => {
      const path = await makeDatabase(machine);
      const writer = new DatabaseSync(path);
      writer.exec("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 998");
      assert.match((await examine(machine)).of("database").join(), /its version is 998/);
      writer.close();
    }),
);

test(
  "a database that a gateway holds is never opened: the gateway is asked",
  { skip },
  () =>
    onMachine(async (machine) => {
      await machine.withGateway([], async ({ address }) => {
        const { of } = await examine(machine);
        assert.match(of("database").join(), /^ok: In use by the running gateway/);
        assert.match(of("gateway").join(), new RegExp(`^ok: A gateway in a terminal runs at ${address}`));
        const { port } = new URL(address);
        const ours = await examine(machine, { env: { POSTERN__GATEWAY__PORT: port } });
        assert.match(ours.of("port").join(), /^ok: .* is held by the running gateway/);
        const elsewhere = { flags: ["--data-dir", join(machine.home, "other")], env: { POSTERN__GATEWAY__PORT: port } };
        const other = await examine(machine, elsewhere);
        assert.match(other.of("port").join(), /failure: .* in use by a gateway with another data directory/);
      }, { env: { POSTERN_TOKEN: "token-of-the-environment-0123456789" } });
      const path = join(machine.dataDir, "postern.db");
      assert.ok(existsSync(path));
      const lock = takeGatewayLock(machine.dataDir);
      assert.match(
        (await examine(machine)).of("database").join(),
        /warning: Not looked at: a node runs on it, or a gateway that cannot be reached/,
      );
      lock?.release();
    }),
);

test(
  "a key of encrypted records that a start refuses is a failure, and a first one is not taken over",
  { skip },
  () =>
    onMachine(async (machine) => {
      const [key, other] = [1, 2].map((fill) => Buffer.alloc(32, fill).toString("base64"));
      const withKey = (value = "") => ({ POSTERN__STORAGE__KEY_ENV: "KEY", KEY: value });
      const told = async (value?: string) =>
        (await examine(machine, { env: withKey(value) })).of("database").slice(1).join();
      assert.match(await told("short"), /^failure: .*"KEY" does not hold 32 bytes in base64$/);
      assert.equal(await told(key), "");
      await machine.withGateway([], () => Promise.resolve(), { env: withKey(key) });
      assert.match(await told(other), /^failure: .*the records of this database are encrypted with another key$/);
      assert.equal(await told(key), "");
      assert.equal((await machine.run(["gateway", "--port", "0"], { env: withKey(other) })).code, 78);
    }),
);

test("a port in use and an address that would be open to everybody fail", () =>
  onMachine(async (machine) => {
    const server = await startFakeServer((_seen, response) => void response.end("hello"));
    try {
      const { port } = new URL(server.origin);
      const used = await examine(machine, { env: { POSTERN__GATEWAY__PORT: port } });
      assert.equal(used.code, 1);
      assert.match(used.of("port").join(), /failure: 127\.0\.0\.1:\d+ is in use by another program/);
    } finally {
      await server.close();
    }
    const open = await examine(machine, { env: { POSTERN__GATEWAY__HOST: "0.0.0.0" } });
    assert.match(open.of("port").join(), /failure: .*allow_public_bind/);
  }));

test(
  "a gateway that --port gave a port of its own is well, whoever has the configured port",
  { skip },
  () =>
    onMachine(async (machine) => {
      const second = ["--data-dir", join(machine.home, "second")];
      await machine.withGateway([], async ({ address }) => {
        const env = { POSTERN__GATEWAY__PORT: new URL(address).port };
        await machine.withGateway(second, async (own) => {
          const { code, of } = await examine(machine, { env, flags: second });
          const { host } = new URL(own.address);
          assert.deepEqual(of("port"), [
            `ok: ${host} is held by the running gateway; a start without --port takes ${env.POSTERN__GATEWAY__PORT}`,
          ]);
          assert.equal(code, 0);
        }, { env });
        const stopped = await examine(machine, { env, flags: second });
        const port = stopped.all.find(({ name }) => name === "port");
        assert.equal(port?.state, "failure");
        assert.match(port.fix ?? "", /^start this one with --port \d+, or postern config set gateway\.port \d+ where/);
      });
    }),
);

test("each provider is asked; a refused key, an unlisted model and a dead address fail, and no key is shown", () =>
  onMachine(async (machine) => {
    const key = "sk-key-that-must-not-show-0123456789";
    const seen = { models: ["small", "large:latest"], status: 200, supports_tools: true };
    const server = await startFakeServer(({ path }, response) => {
      if (path === "/props") {
        const { supports_tools } = seen;
        return void response.end(JSON.stringify({ chat_template_caps: { supports_tools } }));
      }
      response.writeHead(seen.status, { "content-type": "application/json" });
      const message = `Incorrect API key provided: ${key}`;
      const data = seen.models.map((id) => ({ id, object: "model" }));
      response.end(JSON.stringify(seen.status === 200 ? { object: "list", data } : { error: { message } }));
    });
    const config = (model: string) => {
      const provider = `kind = "openai_compatible"\nbase_url = "${server.origin}/v1"\napi_key_env = "MY_KEY"\n`;
      const dead = '[providers.dead]\nkind = "openai_compatible"\nbase_url = "http://127.0.0.1:9/v1"\n';
      writeFileSync(join(machine.home, "p.toml"), `[provider]\n${provider}model = "${model}"\n${dead}`);
    };
    const ask = async () => {
      const flags = ["--config", join(machine.home, "p.toml")];
      const env = { ...ANY_PORT, MY_KEY: key };
      // The kind of run_in's machine is the environment's
      const { stdout } = await machine.run(["doctor", "--json", ...flags], {
        env: { ...env, POSTERN__PROVIDER__KIND: "openai_compatible" },
      });
      assert.ok(!stdout.includes(key));
      const { checks } = JSON.parse(stdout) as { checks: readonly Finding[] };
      return checks.filter(({ name }) => name.startsWith("provider")).map(({ state, message }) =>
        `${state}: ${message}`
      );
    };
    try {
      config("large");
      const [main = "", dead = ""] = await ask();
      assert.match(main, /^ok: openai_compatible, since [^,]+, answers with 2 models; in use: large$/);
      assert.match(dead, /^failure: .*127\.0\.0\.1:9/);
      seen.supports_tools = false;
      assert.match(
        (await ask())[0] ?? "",
        /^warning: .*in use: large, whose chat template knows no tools: it is shown none/,
      );
      config("huge");
      assert.match((await ask())[0] ?? "", /^failure: .*"huge" is not among them/);
      seen.models = [];
      config("");
      assert.match((await ask())[0] ?? "", /^warning: .*answers with 0 models/);
      seen.status = 401;
      assert.match((await ask())[0] ?? "", /^failure: /);
    } finally {
      await server.close();
    }
    const missing = await examine(machine, { env: { POSTERN__PROVIDER__KIND: "anthropic" } });
    assert.match(missing.of("provider").join(), /failure: .*ANTHROPIC_API_KEY.* is not set/);
    const fix = missing.all.find(({ name }) => name === "provider")?.fix;
    assert.match(fix ?? "", /export ANTHROPIC_API_KEY=/);
    const none = await examine(machine, { env: { POSTERN__PROVIDER__KIND: "none" } });
    assert.match(none.of("provider").join(), /^ok: There is no agent/);
  }));

test(
  "a key that the running gateway has and this terminal has not is no failure",
  { skip },
  () =>
    onMachine(async (machine) => {
      const server = await startLocalServer("vllm");
      try {
        const env = {
          POSTERN__PROVIDER__KIND: "openai_compatible",
          POSTERN__PROVIDER__BASE_URL: `${server.origin}/v1`,
          POSTERN__PROVIDER__API_KEY_ENV: "MY_KEY",
        };
        await machine.withGateway([], async () => {
          const [found = ""] = (await examine(machine, { env })).of("provider");
          assert.match(found, /^ok: The running gateway uses openai_compatible, .* models; from this terminal/);
          assert.match(found, /"MY_KEY" is not set/);
        }, { env: { ...env, MY_KEY: "key-of-the-gateway-0123456789" } });
        assert.match((await examine(machine, { env })).of("provider").join(), /^failure: .*"MY_KEY" is not set/);
      } finally {
        await server.close();
      }
    }),
);

test("what the running gateway did not take from its file is a warning", { skip }, () =>
  onMachine(async (machine) => {
    const path = join(machine.home, "live.toml");
    writeFileSync(path, "[gateway]\nrequest_timeout_secs = 100\n");
    chmodSync(path, 0o600);
    await machine.withGateway(["--config", path], async () => {
      writeFileSync(path, "[gateway]\nrequest_timeout_secs = 200\n");
      const warning = /warning: It still uses the old value of gateway\.request_timeout_secs/;
      // The change is noticed in the background
      await until(async () => {
        const { of } = await examine(machine, { flags: ["--config", path], env: { POSTERN__PROVIDER__KIND: "none" } });
        return warning.test(of("gateway").join("\n"));
      }, "nothing warns");
    });
  }));

test("records from the future tell that the clock was set back", { skip }, () =>
  onMachine(async (machine) => {
    const path = await makeDatabase(machine);
    assert.match((await examine(machine)).of("clock").join(), /^ok: 20\d\d-/);
    const later = new Date(systemClock.now() + 3_600_000);
    utimesSync(path, later, later);
    assert.match((await examine(machine)).of("clock").join(), /failure: .*it was set back/);
  }));

test("records up to two minutes ahead are not from the future", { skip }, () =>
  onMachine(async (machine) => {
    const path = await makeDatabase(machine);
    for (const [seconds, state] of [[90, "ok"], [150, "failure"]] as const) {
      const time = new Date(systemClock.now() + seconds * 1000);
      utimesSync(path, time, time);
      assert.match((await examine(machine)).of("clock").join(), new RegExp(`^${state}: `), String(seconds));
    }
  }));

test(
  "a clock that was set back since the gateway started is a warning, and the way is named",
  { skip: skipClock },
  () =>
    onMachine(async (machine) => {
      await machine.withGateway([], async () => {
        const path = join(machine.dataDir, "control.json");
        const record = JSON.parse(readFileSync(path, "utf8"));
        // The gateway is in the process of this test, which may be much older
        const born = systemClock.now() - process.uptime() * 1_000;
        const startedAt = async (ms: number) => {
          const started_at = new Date(born + ms).toISOString();
          writeFileSync(path, JSON.stringify({ ...record, started_at }));
          return (await examine(machine)).of("clock").join();
        };
        assert.match(await startedAt(3_600_000), /^warning: It was set back by 3\d\d\d s/);
        assert.match(await startedAt(90_000), /^ok/);
        assert.match(await startedAt(-90_000), /^ok/);
      });
    }),
);

test(
  "a clock that was moved since the gateway started is a warning",
  { skip: skipClock },
  () =>
    onMachine(async (machine) => {
      await machine.withGateway([], async () => {
        const path = join(machine.dataDir, "control.json");
        const record = JSON.parse(readFileSync(path, "utf8"));
        const earlier = new Date(systemClock.now() - 3_600_000).toISOString();
        writeFileSync(path, JSON.stringify({ ...record, started_at: earlier }));
        assert.match((await examine(machine)).of("clock").join(), /warning: It was set forward by 3\d\d\d s/);
      });
    }),
);

test("what is off, required and too widely allowed about commands is said", () =>
  onMachine(async (machine) => {
    const off = await examine(machine, {
      env: { POSTERN__SECURITY__SHELL__SANDBOX: "off", POSTERN__SECURITY__ALLOWED_COMMANDS: '["ls", "bash"]' },
    });
    assert.match(off.of("sandbox").join("\n"), /warning: .*sandbox is "off"\nwarning: .*any program: bash/);
    assert.equal(off.code, 0);
  }));

test("a browser without bubblewrap is called weaker, and is refused to root and where the sandbox is required", async () => {
  const found = { kind: "none", reason: "bubblewrap is not installed" } as const;
  const { browser, security } = defaultConfig();
  const required = await browserFinding(found, { browser: { ...browser, sandbox: "require" }, security });
  assert.match(`${required.state}: ${required.message}`, /^failure: .*the configuration requires the sandbox/);
  const shell = { ...security.shell, sandbox: "require" } as const;
  assert.equal((await browserFinding(found, { browser, security: { ...security, shell } })).state, "failure");
  const { state, message } = await browserFinding(found, { browser, security });
  assert.match(
    `${state}: ${message}`,
    process.getuid?.() === 0 ? /^failure: .*runs as root/ : /^warning: .*weaker way, since bubblewrap is not installed/,
  );
  assert.equal(
    (await browserFinding({
      kind: "bubblewrap",
      file: "/usr/bin/bwrap",
      filters: true,
      endsNamespaces: true,
      nests: true,
      bounds: undefined,
    }, { browser, security })).state,
    "ok",
  );
});

test("which bounds hold for contained programs is said, and where one is missing, what brings it", () => {
  const bounds = { file: "/usr/bin/prlimit", processes: 512, openFiles: 65_536, fileBytes: 2 ** 33, coreBytes: 1 };
  const told = (found: Parameters<typeof boundsFinding>[0]) => {
    const { state, message, fix } = boundsFinding(found);
    return `${state}: ${message} -> ${fix}`;
  };
  assert.match(told(bounds), /^ok: A contained program has at most 512 processes and threads; .* -> null$/);
  assert.match(
    told({ ...bounds, processes: undefined }),
    /^warning: .*any number of processes.* -> run the gateway as a /,
  );
  assert.match(told(undefined), /^warning: Contained programs have no bounds .* -> apt install util-linux/);
});

test("a machine that cannot keep git from links is told of", async () => {
  const missing = { file: "/nowhere/bwrap", filters: true, endsNamespaces: true, bounds: undefined };
  for (const nests of [true, false]) {
    const [{ state, message, fix }, ...rest] = await linksFindings({ ...missing, nests }) as [Finding, ...Finding[]];
    assert.match(
      `${state}: ${message} -> ${fix}`,
      /^warning: git may follow a link .* -> use Linux 5\.10 and util-linux/,
    );
    assert.equal(rest.length, 0);
  }
  const found = await tryBubblewrap({ commands: createCommandLookup(), clock: systemClock, signal: NEVER });
  if (found.kind !== "bubblewrap" || !found.nests) return;
  const versions = [
    release(),
    spawnSync("mount", ["--version"], { encoding: "utf8" }).stdout.replace("mount from util-linux ", ""),
  ];
  const [linux = 0, mount = 0] = versions.map((text) =>
    Number(/^(\d+)\.(\d+)/.exec(text)?.slice(1).map((part) => part.padStart(3, "0")).join(""))
  );
  assert.equal((await linksFindings(found)).length, linux >= 5_010 && mount >= 2_038 ? 0 : 1);
});

test(
  "programs of the home folder that contained commands do not see are told of",
  { skip },
  () =>
    onMachine(async ({ home }) => {
      assert.deepEqual(await programFindings(`${home}:relative::/usr/bin:/bin`), []);
      const system = createCommandLookup();
      const names = ["node", "npm", "python3", "cargo", "go", "ruby", "java"];
      for (const name of names) writeFileSync(join(home, name), "#!/bin/sh\n", { mode: 0o755 });
      const found = await Promise.all(names.map((name) => system.find(name)));
      const hidden = names.filter((_name, index) => found[index] === undefined);
      const [finding] = await programFindings(`/usr/bin:${home}`);
      assert.equal(
        finding?.message,
        hidden.length === 0
          ? undefined
          : `Commands in the sandbox do not see ${hidden.join(", ")}: yours is outside of /usr`,
      );
      assert.equal(finding?.fix?.startsWith("install "), hidden.length === 0 ? undefined : true);
    }),
);

test("what lies in quarantine is said, and nothing where nothing does", () =>
  onMachine(async (machine) => {
    assert.deepEqual((await examine(machine)).of("quarantine"), []);
    mkdirSync(join(machine.dataDir, "quarantine/2026-01-01/.git"), { recursive: true });
    const found = await examine(machine);
    assert.match(found.of("quarantine").join("\n"), /^warning: Items in ".*quarantine": 1; each was made by a command/);
  }));

test("a check that throws or hangs is a failure of that check alone", () =>
  onMachine(async ({ home, cwd }) => {
    const { runChecks } = await import("../../../cli/doctor/run_checks.ts");
    const { loadConfig } = await import("../../../lib/config/load_config.ts");
    const env = { API_TOKEN: "secret-of-the-environment" };
    const loadOptions = { flags: {}, env, cwd, home };
    const context = { io: { env, cwd, home }, flags: {}, loadOptions, loadConfig: () => loadConfig(loadOptions) };
    const checks: readonly Check[] = [
      { name: "throws", run: () => Promise.reject(new Error("the secret-of-the-environment\nis wrong")) },
      { name: "hangs", limitMs: 20, run: () => new Promise(() => {}) },
      { name: "works", run: () => Promise.resolve({ name: "works", state: "ok", message: "fine", fix: null }) },
    ];
    // The checks here read nothing else of the context
    const findings = await runChecks(context as unknown as Parameters<typeof runChecks>[0], checks);
    const [thrown, hung, worked] = findings.slice(-3);
    assert.equal(thrown?.message, "The check failed: the [redacted]; is wrong");
    assert.match(hung?.message ?? "", /within 0\.02 s/);
    assert.deepEqual([thrown?.state, hung?.state, worked?.state], ["failure", "failure", "ok"]);
  }));

test("findings are wrapped to the terminal, without a character that it would obey, and with colour only where wanted", () => {
  const findings: readonly Finding[] = [
    { name: "port", state: "ok", message: "127.0.0.1:1 is free", fix: null },
    { name: "data\u001b[2J", state: "failure", message: `${"many words ".repeat(20)}\nend`, fix: "chmod 700 here" },
  ];
  const plain = findingsText(findings, { columns: undefined, colour: false });
  assert.match(plain, /^ok +port +127\.0\.0\.1:1 is free\nfailure {2}data\\x1b\[2J {2}many words/);
  assert.equal(plain.split("\n").length, 5);
  assert.ok(!plain.includes("\u001b"));
  for (const columns of [20, 40, 60, 80, 200]) {
    const lines = findingsText(findings, { columns, colour: false }).split("\n");
    assert.ok(lines.every((line) => line.length <= columns), `${columns}: ${lines.join("|")}`);
  }
  assert.ok(findingsText(findings, { columns: 80, colour: true }).startsWith("\u001b[32mok     \u001b[0m  port"));
});

test("plugins that run with the user's rights are a warning, and so is one that is enabled and cannot be called", () =>
  onMachine(async (machine) => {
    const { run, cwd, withGateway } = machine;
    const env = { POSTERN__PLUGINS__ALLOW_PROCESS: "true", POSTERN__PLUGINS__SANDBOX: "off" };
    const [rights] = (await examine(machine, { env })).of("plugins");
    assert.match(rights ?? "", /^warning: Plugins that are programs run with your rights/);
    const process = { kind: "process", wasm: undefined, process: { command: "node" } };
    writeFileSync(join(cwd, "words.tar"), samplePackage(process));
    assert.equal((await run(["plugin", "install", "--package", "words.tar"])).code, 0);
    assert.equal((await run(["plugin", "enable", "words", "--yes"])).code, 0);
    await withGateway([], async () => {
      assert.deepEqual((await examine(machine)).of("plugins"), [
        'warning: The plugin "words" cannot be called: it is off; set [plugins] allow_process = true',
      ]);
    });
    await withGateway([], async () => {
      const found = (await examine(machine, { env })).of("plugins");
      assert.ok(found.includes("ok: 1 of 1 are on"), found.join());
    }, { env });
  }));

test("a site of [browser] logins that nobody signed in at is a warning", () =>
  onMachine(async (machine) => {
    const env = { POSTERN__BROWSER__ENABLED: "true", POSTERN__BROWSER__LOGINS: '["example.com"]' };
    assert.deepEqual((await examine(machine, { env })).of("browser logins"), ["ok: Not looked at: no gateway runs"]);
    await machine.withGateway([], async () => {
      assert.deepEqual((await examine(machine, { env })).of("browser logins"), [
        'warning: [browser] logins names "example.com", and runs do without: nobody signed in there',
      ]);
    }, { env });
  }));
