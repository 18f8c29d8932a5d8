import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createRedactor } from "../../lib/base/redact.ts";
import { knownSecrets, maskSecrets, secretsOfFiles } from "../../lib/config/secrets.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";
import { configOf } from "../support/running_gateway.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const result = validateConfig([{
  gateway: { node_control: { auth_token: "node-token" } },
  proxy: { https: "http://me:proxy%21pass@proxy.example:8080" },
  web_search: { api_key_env: "SEARCH_KEY" },
  mcp: {
    servers: {
      a: {
        command: "a",
        args: ["--token", "arg-secret", "--api-key=eq-secret", "--fast", "-v"],
        env: { TOKEN: "env-secret" },
      },
      b: { url: "https://mcp.example/?api_key=query-secret&x=1", headers: { Authorization: "Bearer header-secret" } },
    },
  },
}]);
assert.ok("config" in result);
const { config } = result;

test("shown values hide secrets and nothing else", () => {
  const text = JSON.stringify(maskSecrets(config));
  for (
    const secret of [
      "node-token",
      "proxy%21pass",
      "env-secret",
      "query-secret",
      "header-secret",
      "arg-secret",
      "eq-secret",
    ]
  ) {
    assert.ok(!text.includes(secret), secret);
  }
  assert.ok(text.includes("https://mcp.example/?api_key=***&x=1"));
  assert.ok(text.includes('["--token","***","--api-key=***","--fast","-v"]'));
  assert.ok(text.includes("http://***@proxy.example:8080"));
  assert.deepEqual(maskSecrets(config).security, config.security);
});

test("the redactor's secrets are those of the file and those the environment holds under the configured names", () => {
  const secrets = knownSecrets(config, {
    SEARCH_KEY: "search-secret",
    OPENAI_API_KEY: "openai-secret",
    OTHER: "no secret",
    GITHUB_TOKEN: "named-by-itself",
    AWS_SECRET_ACCESS_KEY: "aws-secret",
    DATABASE_URL: "postgres://me:database-secret@db.example/app",
    KEYBOARD: "qwertz",
  });
  for (
    const secret of [
      "node-token",
      "proxy!pass",
      "proxy%21pass",
      "env-secret",
      "arg-secret",
      "eq-secret",
      "query-secret",
      "Bearer header-secret",
      "header-secret",
      "search-secret",
      "openai-secret",
      "named-by-itself",
      "aws-secret",
      "database-secret",
    ]
  ) {
    assert.ok(secrets.includes(secret), secret);
  }
  assert.ok(!secrets.includes("no secret"));
  assert.ok(!secrets.includes("qwertz"));
  assert.ok(!secrets.includes("me"));
  assert.ok(!secrets.includes(""));
});

test("of [secrets] the variable and the arguments of the command are known, and the words after a flag masked", () => {
  const rights = { hosts: ["a.example"], tools: ["http_request"] };
  const tables = configOf({
    secrets: {
      one: { env: "PLAIN_NAME", ...rights },
      two: { command: ["vault", "--token", "of-the-vault-1", "--password=of-the-vault-2", "read"], ...rights },
    },
  });
  const known = knownSecrets(tables, { PLAIN_NAME: "value-of-the-variable" });
  for (const secret of ["value-of-the-variable", "of-the-vault-1", "of-the-vault-2"]) {
    assert.ok(known.includes(secret), secret);
  }
  assert.deepEqual(maskSecrets(tables).secrets["two"]?.command, ["vault", "--token", "***", "--password=***", "read"]);
});

test("the keys of files are secrets too; what is no readable file gives none", async () => {
  await withTemporaryFolder(async (folder) => {
    const path = (name: string) => join(folder, name);
    writeFileSync(path("one"), "key-of-a-file\n");
    writeFileSync(path("two"), "key-of-another");
    writeFileSync(path("large"), "x".repeat(100_000));
    mkdirSync(path("folder"));
    const provider = (name: string) => ({ kind: "openai_compatible", base_url: "http://x", api_key_file: path(name) });
    const { config } = validateConfig([{
      provider: provider("one"),
      providers: { b: provider("two"), c: provider("large"), d: provider("folder"), e: provider("none") },
    }]) as { config: typeof result.config };
    assert.deepEqual(await secretsOfFiles(config), ["key-of-a-file", "key-of-another"]);
  });
});

/** Server and plugin that name secrets. */
const NAMING = {
  secrets: { forge: { env: "FORGE", hosts: ["mcp.example"], mcp: ["a", "b"], plugins: ["weather"] } },
  mcp: {
    servers: {
      a: { command: "a", env: { TOKEN: { secret: "forge" } } },
      b: { url: "https://mcp.example/", headers: { Authorization: { secret: "forge", prefix: "Bearer " } } },
    },
  },
  plugins: {
    config: { weather: { units: "metric", api_key: "plain-secret-1", key: { secret: "forge" }, x_env: "EX" } },
  },
};

test("shown values have the names of secrets and no value", () => {
  const shown = maskSecrets(configOf(NAMING));
  assert.deepEqual(shown.mcp.servers["a"]?.env, { TOKEN: { secret: "forge", prefix: "" } });
  assert.deepEqual(shown.mcp.servers["b"]?.headers, { Authorization: { secret: "forge", prefix: "Bearer " } });
  assert.deepEqual(shown.plugins.config["weather"], {
    units: "metric",
    api_key: "***",
    key: { secret: "forge", prefix: "" },
    x_env: "EX",
  });
  const known = knownSecrets(configOf(NAMING), { FORGE: "value-of-the-variable", EX: "no-secret-at-all" });
  assert.ok(known.includes("plain-secret-1"));
  assert.ok(known.includes("value-of-the-variable"));
  assert.ok(!known.includes("metric"));
  assert.ok(!known.includes("no-secret-at-all"));
});

test("a setting that names a secret is refused with its key when the secret is not for it", () => {
  const { secrets: { forge } } = NAMING;
  const tables: readonly (readonly [object, RegExp])[] = [
    [{ secrets: {} }, /"mcp\.servers\.a\.env\.TOKEN\.secret": .*there is none of this name/s],
    [{ secrets: {} }, /"plugins\.config\.weather\.key\.secret": .*there is none of this name/s],
    [{ secrets: { forge: { ...forge, mcp: ["b"] } } }, /env\.TOKEN\.secret": add "a" to mcp of \[secrets\.forge\]/],
    [{ secrets: { forge: { ...forge, mcp: ["a"] } } }, /headers\.Authorization\.secret": add "b" to mcp of/],
    [{ secrets: { forge: { ...forge, plugins: [] } } }, /key\.secret": add "weather" to plugins of \[secrets\.forge\]/],
    [{ secrets: { forge: { ...forge, hosts: [] } } }, /hosts of \[secrets\.forge\] must name the host of the server/],
    [{ secrets: { forge, b: { env: "B", hosts: ["a.example"] } } }, /tools, mcp or plugins must name what may use it/],
    [{ secrets: { forge, b: { env: "B", tools: ["http_request"] } } }, /"secrets\.b\.hosts": tools need the hosts/],
    [
      { mcp: { servers: { a: { command: "a", env: { TOKEN: { secret: "forge", extra: 1 } } } } } },
      /"mcp\.servers\.a\.env\.TOKEN\.extra": there is no such key/,
    ],
    [
      { mcp: { servers: { a: { command: "a", env: { TOKEN: ["do-not-show"] } } } } },
      /"mcp\.servers\.a\.env\.TOKEN": it must be text, or \{ secret = "name" \}/,
    ],
    [
      { plugins: { config: { weather: { key: ["do-not-show"] } } } },
      /"plugins\.config\.weather\.key": it must be text, a number, true or false, or/,
    ],
  ];
  for (const [table, reason] of tables) {
    const result = validateConfig([{ ...NAMING, ...table }]);
    assert.ok("findings" in result, String(reason));
    const said = result.findings.map(({ path, reason }) => `"${path.join(".")}": ${reason}`).join("\n");
    assert.match(said, reason);
    assert.doesNotMatch(said, /do-not-show/);
  }
});

test("of a database's address user and password are secret, and not its host, which messages name", async () => {
  const host = "db-1.cluster-abcdefghijkl.eu-central-1.example.com:5432/records";
  for (const password of ["pw", "a-long-password-of-the-database"]) {
    const address = `postgres://records:${password}@${host}`;
    const { redact } = createRedactor(
      knownSecrets(configOf({ storage: { url_env: "RECORDS", driver: "postgres" } }), { RECORDS: address }),
    );
    assert.equal(redact(`Cannot reach ${host}`), `Cannot reach ${host}`);
    assert.equal(redact(`Cannot use "${address}"`), `Cannot use "[redacted]${host}"`);
    await withTemporaryFolder(async (folder) => {
      const path = join(folder, "address");
      writeFileSync(path, `${address}\n`);
      const found = createRedactor(
        await secretsOfFiles(configOf({ storage: { url_file: path, driver: "postgres" } })),
      );
      assert.equal(found.redact(`${host} ${address}`), `${host} [redacted]${host}`);
    });
  }
});
