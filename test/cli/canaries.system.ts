import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { assertNoCanary, bytesBelow, canaryText } from "../support/canaries.ts";
import { type Machine, onMachine } from "./support/run_in.ts";

const CANARIES = {
  POSTERN_TOKEN: "canary-of-the-environment-token-Kx81",
  PROVIDER_KEY: "sk-canary-of-the-provider-key-Zq27",
  GITHUB_TOKEN: "ghp_canaryNamedByNothingButItself55",
  api_key_file: "sk-canary-of-the-key-file-Yb66-and-more",
  auth_token: "canary-of-the-node-token-Op12",
  "mcp header": "canary-of-an-mcp-header-Hd19",
  proxy: "canary-of-the-proxy-Ds37",
};
const { POSTERN_TOKEN, PROVIDER_KEY, GITHUB_TOKEN } = CANARIES;
const ENV = { POSTERN_TOKEN, PROVIDER_KEY, GITHUB_TOKEN };
const skip = process.platform === "win32" ? "there are no commands on Windows" : false;

const CONFIG = (keyFile: string) => `
[provider]
kind = "offline"
[providers.named]
kind = "openai_compatible"
base_url = "http://127.0.0.1:1"
api_key_env = "PROVIDER_KEY"
[providers.file]
kind = "openai_compatible"
base_url = "http://127.0.0.1:1"
api_key_file = "${keyFile}"
[gateway.node_control]
auth_token = "${CANARIES.auth_token}"
[proxy]
https = "http://me:${CANARIES.proxy}@127.0.0.1:9"
[mcp.servers.a]
url = "http://127.0.0.1:1/"
headers = { Authorization = "Bearer ${CANARIES["mcp header"]}" }
[autonomy]
level = "full"
[logging]
level = "debug"
[security]
allowed_commands = ["cat", "env"]
[security.shell]
max_output_bytes = 100000
`;

/** Plants the canaries; gives the flag that names the configuration. */
function plant({ home, cwd }: Machine, change: (config: string) => string = (config) => config): readonly string[] {
  const folder = join(home, "config");
  mkdirSync(folder, { recursive: true });
  const keyFile = join(folder, "provider.key");
  writeFileSync(keyFile, CANARIES.api_key_file);
  const file = join(folder, "postern.toml");
  writeFileSync(file, change(CONFIG(keyFile)));
  writeFileSync(join(cwd, "leak.txt"), canaryText(CANARIES));
  return ["--config", file];
}

const COMMANDS: readonly (readonly string[])[] = [
  ["config", "show"],
  ["config", "check"],
  ["config", "get", "proxy"],
  ["config", "get", "gateway.node_control.auth_token"],
  ["config", "get", "mcp.servers"],
  ["config", "get", "providers"],
  ["models"],
  ["doctor"],
  ["doctor", "--json"],
  ["tools", "list"],
  ["tools", "call", "read_file", "--input", "leak.txt"],
  ["tools", "call", "shell", "--input", "cat leak.txt"],
  ["tools", "call", "shell", "--input", "env"],
  ["tools", "call", "content_search", "--input", '{"pattern": "[A-Za-z0-9+/_%-]{20,}"}'],
  ["chat", "/read_file leak.txt"],
  ["policy", "explain", "shell", "--input", "cat leak.txt"],
  ["approvals", "list"],
  ["approvals", "rules"],
  ["audit", "show"],
  ["audit", "verify"],
  ["token", "list"],
];

test("no command shows a planted secret, with a gateway running and without", { skip }, async () => {
  await onMachine(async (machine) => {
    const flags = plant(machine);
    const runAll = async (when: string) => {
      for (const command of COMMANDS) {
        for (const json of [[], ["--json"]]) {
          const { stdout, stderr, code } = await machine.run([...command, ...flags, ...json], { env: ENV });
          assert.notEqual(code, 70, stderr);
          assertNoCanary(`${command.join(" ")} ${when}`, `${stdout}\n${stderr}`, CANARIES);
        }
      }
    };
    await runAll("without a gateway");
    const gateway = await machine.withGateway([...flags], async () => {
      await runAll("beside a gateway");
      // The control file among them
      assertNoCanary("data directory of a running gateway", bytesBelow(machine.dataDir), CANARIES);
    }, { env: ENV });
    assertNoCanary("gateway", `${gateway.stdout}\n${gateway.stderr}`, CANARIES);
    assert.match(gateway.stderr, /Request/);
    assertNoCanary("data directory", bytesBelow(machine.dataDir), CANARIES);
  });
});

test("what is wrong in a configuration is told without the secrets in it", async () => {
  const broken: readonly ((config: string) => string)[] = [
    (config) => config.replace("[proxy]", "[proxy"),
    (config) => config.replace('auth_token = "', 'auth_token = ["').replace('Op12"', 'Op12"]'),
    (config) => config.replace('auth_token = "', 'auth_tokens = "'),
    (config) => config.replace('https = "http://me', 'https = "nothing://me'),
    (config) => config.replace('kind = "openai_compatible"', `kind = "${PROVIDER_KEY}"`),
    (config) => config.replace('api_key_env = "PROVIDER_KEY"', `api_key_env = "${PROVIDER_KEY}"`),
    (config) => config.replace(/api_key_file = ".*"/, `api_key_file = "${PROVIDER_KEY}"`),
    (config) => config.replace('base_url = "http://', `base_url = "http://${PROVIDER_KEY}@`),
    (config) =>
      config.replace('kind = "offline"', `kind = "openai_compatible"\nbase_url = "http://me:${PROVIDER_KEY}@x"`),
    (config) => config.replace('auth_token = "', 'auth_token = "\\q'),
  ];
  await onMachine(async (machine) => {
    for (const [index, change] of broken.entries()) {
      const flags = plant(machine, change);
      for (const command of [["config", "check"], ["models"], ["tools", "list"], ["chat", "Hi"]]) {
        const { stdout, stderr } = await machine.run([...command, ...flags], { env: ENV });
        assertNoCanary(`${command.join(" ")}, configuration ${index}`, `${stdout}\n${stderr}`, CANARIES);
      }
    }
  });
});
