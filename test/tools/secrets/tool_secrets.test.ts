import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { ToolError } from "../../../lib/base/errors.ts";
import { createRedactor } from "../../../lib/base/redact.ts";
import type { Config } from "../../../lib/config/config.ts";
import type { SecretPlace } from "../../../lib/config/schema/value.ts";
import { type ChildUse, SecretStore } from "../../../lib/tools/secrets/tool_secrets.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { configOf } from "../../support/running_gateway.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const VALUE = "value-of-the-forge-7";
const NEVER = new AbortController().signal;
const SERVER: ChildUse = { child: { kind: "mcp", name: "forge" }, signal: NEVER };
const PLUGIN: ChildUse = { child: { kind: "plugins", name: "weather" }, signal: NEVER };
const SENT = { ...SERVER, url: new URL("https://forge.example/mcp") };
const TOKEN = place("forge");

describe("the settings of a child", () => {
  test("hold the values of the secrets that name the child, known to the redactor; the rest stays", async () => {
    const store = storeOf({ mcp: ["forge"], plugins: ["weather"], hosts: ["forge.example"] });
    const bearer = place("forge", "Bearer ");
    assert.deepEqual(await store.secrets.fill({ TOKEN, LANG: "C" }, SERVER), { TOKEN: VALUE, LANG: "C" });
    assert.deepEqual(await store.secrets.fill({ key: TOKEN, days: 3, on: true }, PLUGIN), {
      key: VALUE,
      days: 3,
      on: true,
    });
    assert.deepEqual(await store.secrets.fill({ authorization: bearer }, SENT), { authorization: `Bearer ${VALUE}` });
    assert.equal(store.redact(`it is ${VALUE}`), "it is [redacted]");
  });

  const open = { mcp: ["forge"], plugins: ["weather"], hosts: ["forge.example"] };
  const refusals: readonly (readonly [string, Partial<Secret>, ChildUse, string, RegExp])[] = [
    [
      "of another server",
      { ...open, mcp: ["other"] },
      SERVER,
      "secret_refused",
      /add "forge" to mcp of \[secrets\.forge\]/,
    ],
    [
      "of a plugin of the server's name",
      { ...open, plugins: [] },
      {
        ...PLUGIN,
        child: { kind: "plugins", name: "forge" },
      },
      "secret_refused",
      /add "forge" to plugins of \[secrets\.forge\]/,
    ],
    ["of a tool", { ...open, mcp: [], tools: ["forge"] }, SERVER, "secret_refused", /add "forge" to mcp/],
    ["of another host", { ...open, hosts: ["a.example"] }, SENT, "secret_refused", /add "forge\.example" to hosts/],
    ["of no host", { ...open, hosts: [] }, SENT, "secret_refused", /add "forge\.example" to hosts/],
    [
      "over plain http",
      open,
      { ...SENT, url: new URL("http://forge.example/") },
      "secret_exposed",
      /use an https address/,
    ],
    [
      "whose variable is not set",
      { ...open, env: "NONE" },
      SERVER,
      "secret_missing",
      /\[secrets\.forge\]: it cannot be read/,
    ],
    ["whose value is short", { ...open, env: "SHORT" }, SERVER, "secret_missing", /fewer than 8 bytes/],
    ["with a NUL", { ...open, env: "NUL" }, SERVER, "secret_missing", /cannot be passed on/],
    ["of two lines in a header", { ...open, env: "KEY" }, SENT, "secret_missing", /a line break in a header/],
    ["with letters that no header holds", { ...open, env: "WORDS" }, SENT, "secret_missing", /cannot be passed on/],
  ];
  for (const [what, secret, use, code, reason] of refusals) {
    test(`are refused: a secret ${what}`, async () => {
      const { secrets } = storeOf(secret);
      await assert.rejects(secrets.fill({ TOKEN }, use), (error: unknown) => {
        assert.ok(error instanceof ToolError);
        assert.equal(error.code, code);
        assert.match(error.message, reason);
        assert.ok(!error.message.includes(VALUE));
        return true;
      });
    });
  }

  test("are refused where they name what is no secret, names of objects too", async () => {
    const { secrets } = storeOf(open);
    for (const name of ["none", "constructor", "__proto__"]) {
      await assert.rejects(secrets.fill({ TOKEN: place(name) }, SERVER), { code: "secret_unknown" });
    }
  });

  test("take a value as it is at the moment, and none once the right to it is gone", () =>
    withTemporaryFolder(async (folder) => {
      const file = join(folder, "key");
      writeFileSync(file, VALUE);
      const store = storeOf({ ...open, env: "", file });
      assert.deepEqual(await store.secrets.fill({ TOKEN }, SERVER), { TOKEN: VALUE });
      writeFileSync(file, "another-value-8\n");
      assert.deepEqual(await store.secrets.fill({ TOKEN }, SERVER), { TOKEN: "another-value-8" });
      store.configure({ ...open, mcp: ["other"], env: "", file });
      await assert.rejects(store.secrets.fill({ TOKEN }, SERVER), { code: "secret_refused" });
      store.configure({ ...open, env: "", file });
      rmSync(file);
      await assert.rejects(store.secrets.fill({ TOKEN }, SERVER), { code: "secret_missing" });
    }));

  test("are masked line by line when a key has many", async () => {
    const store = storeOf({ ...open, env: "KEY" });
    assert.deepEqual(await store.secrets.fill({ TOKEN }, SERVER), { TOKEN: ENVIRONMENT.KEY });
    for (const echo of ["line 2: MIIEvQIBADANBgkqhkiG", '"MIIEvQIBADANBgkqhkiG\\n9w0BAQEFAASCBKcwggSj"']) {
      assert.ok(!/MIIE|9w0B/.test(store.redact(echo)), echo);
    }
    assert.equal(store.redact("-----BEGIN PRIVATE KEY-----"), "-----BEGIN PRIVATE KEY-----");
  });
});

type Secret = Config["secrets"][string];

const ENVIRONMENT = {
  FORGE: VALUE,
  SHORT: "short",
  NUL: "nul-\0-in-the-value",
  KEY: "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----",
  WORDS: "пароль-из-слов",
};

function place(secret: string, prefix = ""): SecretPlace {
  return { secret, prefix };
}

/** Creates a store with one secret, "forge", whose rights a test gives. */
function storeOf(given: Partial<Secret>) {
  const redactor = createRedactor();
  let config = tableOf(given);
  const secrets = new SecretStore({
    config: () => config,
    clock: createFakeClock(),
    environment: (name) => ENVIRONMENT[name as keyof typeof ENVIRONMENT],
    guardedFetch: () => assert.fail("Nothing is fetched"),
    onSecret: redactor.add,
    onTokens: redactor.replace,
    run: () => assert.fail("Nothing is run"),
  });
  return {
    secrets,
    redact: redactor.redact,
    configure: (changed: Partial<Secret>) => void (config = tableOf(changed)),
  };
}

function tableOf(given: Partial<Secret>) {
  const secret = { env: "FORGE", file: "", command: [], hosts: [], tools: [], mcp: [], plugins: [], ...given };
  return { ...configOf({}), secrets: { forge: secret } };
}
