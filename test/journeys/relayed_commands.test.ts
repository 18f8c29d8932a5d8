import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { configOf } from "../support/running_gateway.ts";
import { jsonOf, type KillableGateway, until, withWorld } from "../support/world.ts";

const bubblewrap = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"].some((path) => existsSync(path));
const skip = bubblewrap && existsSync("/usr/bin/curl") ? false : "bubblewrap or curl is not installed";

/** Runs `use` with a gateway whose commands may reach one server, which answers `reached`. */
function withRelay(use: (gateway: KillableGateway, port: number) => Promise<void>): Promise<void> {
  return withWorld(async (world) => {
    const server = createServer((_request, response) => void response.end("reached"));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    world.onEnd(async () => {
      server.closeAllConnections();
      server.close();
    });
    const { port } = server.address() as AddressInfo;
    const upstream = await world.upstream();
    const env = {
      POSTERN__SECURITY__SHELL__SANDBOX: "require",
      POSTERN__SECURITY__SHELL__NETWORK: "allowlist",
      POSTERN__SECURITY__ALLOWED_COMMANDS: '["curl", "sh"]',
      POSTERN__URL_ACCESS__ALLOW_LOOPBACK: "true",
      POSTERN__URL_ACCESS__DOMAIN_ALLOWLIST: JSON.stringify([`127.0.0.1:${port}`]),
    };
    await use(await world.killableGateway({ ...upstream, env }), port);
  });
}

const shell = async (gateway: KillableGateway, command: string) => {
  const reply = await gateway.call("/v1/tools/shell/call", { body: { input: { command } } });
  return await jsonOf(reply) as { output: string; is_error: boolean };
};

test(
  "a command of a running gateway reaches the allowlist through the relay, and every list says network",
  { skip },
  () =>
    withRelay(async (gateway, port) => {
      const { output } = await shell(gateway, `curl -sS http://127.0.0.1:${port}/`);
      assert.match(output, /^status=0\nstdout:\nreached\n/);
      const refused = await shell(gateway, "curl -sS http://example.com/");
      assert.match(
        refused.output,
        /\[Relay: Cannot reach "example\.com": add "example\.com" to \[url_access\] domain_allowlist/,
      );
      const own = await shell(gateway, `curl -sS ${gateway.url}/health`);
      assert.doesNotMatch(own.output, /"status"/);
      const tool = await jsonOf(await gateway.call("/v1/tools/shell")) as { access: string };
      assert.equal(tool.access, "network");
      const status = await jsonOf(await gateway.call("/v1/status")) as { containment: { kind: string; text: string } };
      assert.equal(status.containment.kind, "contained");
      assert.match(status.containment.text, /through the gateway's relay/);
      assert.deepEqual(readdirSync(join(gateway.dataDir, "relays")), []);
    }),
);

test(
  "the relay of a running command ends when a reload sets network = none",
  { skip },
  () =>
    withWorld(async (world) => {
      const server = createServer((_request, response) => void response.end("reached"));
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      world.onEnd(async () => void server.close());
      const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
      const config = (network: string) => ({
        provider: { kind: "offline" },
        autonomy: { level: "full" },
        url_access: { allow_loopback: true, domain_allowlist: [host] },
        security: { allowed_commands: ["sh", "curl"], shell: { sandbox: "require", network } },
      });
      const gateway = await world.gateway({ config: config("allowlist") });
      const { root } = gateway.workspace;
      const get = `curl -sS http://${host}/`;
      writeFileSync(join(root, "run.sh"), `${get} > first; while [ ! -e go ]; do sleep 0.05; done; ${get}`);
      const called = gateway.call("/v1/tools/shell/call", { body: { input: { command: "sh run.sh" } } });
      await until(() => existsSync(join(root, "first")) && readFileSync(join(root, "first"), "utf8") === "reached");
      await gateway.services.reload(() => Promise.resolve(configOf(config("none"))));
      writeFileSync(join(root, "go"), "");
      const { output } = await jsonOf(await called) as { output: string };
      assert.match(
        output,
        new RegExp(`\\[Relay: Cannot reach "${host}": \\[security\\.shell\\] network is "none" by now`),
      );
    }),
);

/** Command lines of the processes that name a path. */
function processesWith(path: string): readonly string[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((id) => {
    try {
      const line = readFileSync(`/proc/${id}/cmdline`, "utf8");
      return line.startsWith("/") && line.includes("bwrap") && line.includes(path) ? [`${id} ${line}`] : [];
    } catch {
      return [];
    }
  });
}

test(
  "a kill -9 of the gateway ends its commands, and the next start removes the sockets of their relays",
  { skip },
  () =>
    withRelay(async (gateway, port) => {
      const { workspace, dataDir } = gateway;
      const relays = join(dataDir, "relays");
      writeFileSync(join(workspace, "run.sh"), `curl -sS -o got http://127.0.0.1:${port}/; sleep 600`);
      const call = shell(gateway, "sh run.sh").catch(() => {});
      await until(() => existsSync(join(workspace, "got")), "the command does not begin");
      assert.equal(readdirSync(relays).length, 1);
      assert.ok(processesWith(relays).length > 0);
      await gateway.kill();
      await call;
      await until(() => processesWith(relays).length === 0, () => processesWith(relays).join("\n"));
      assert.equal(readdirSync(relays).length, 1, "nobody has looked yet");
      await gateway.restart();
      assert.deepEqual(readdirSync(relays), []);
      assert.match((await shell(gateway, `curl -sS http://127.0.0.1:${port}/`)).output, /reached/);
    }),
);
