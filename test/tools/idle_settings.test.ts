import assert from "node:assert/strict";
import { test } from "node:test";
import { createGateway, type GatewayLogLine } from "../../handlers/mod.ts";
import { idleSettings } from "../../lib/tools/idle_settings.ts";
import { CONFIG_KEYS } from "../contract/config_keys.ts";
import { configOf } from "../support/running_gateway.ts";
import { sourceFiles } from "../support/source_files.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const idle = (tables: Readonly<Record<string, unknown>>, tools?: readonly string[]) =>
  idleSettings(configOf(tables), { others: ["count_words"], ...(tools === undefined ? {} : { builtin: tools }) }).map((
    { message },
  ) => message);

/** Tables without which these tools cannot be, with a value. */
const SECTIONS: readonly (readonly [tool: string, shown: string, tables: Readonly<Record<string, unknown>>])[] = [
  ["web_fetch", "[web_fetch]", { web_fetch: { enabled: false } }],
  ["browser", "[browser]", { browser: { enabled: true } }],
];

for (const [tool, shown, tables] of SECTIONS) {
  test(`${shown} is idle as long as there is no tool "${tool}"`, () => {
    assert.deepEqual(idle(tables, []), [`${shown} does nothing: this version has no tool "${tool}"`]);
    assert.deepEqual(idle(tables, [tool]), []);
  });
}

for (
  const [what, tables, expected] of [
    ["an address of a database that is not used", { storage: { url: "postgres://db/x" } }, [
      '"storage.url" does nothing for the gateway, since storage.driver is "sqlite": it is for postern storage migrate and storage.driver = "postgres"',
    ]],
    ["an address of a database beside records in memory", { storage: { driver: "memory", url: "postgres://db/x" } }, [
      '"storage.url" does nothing for the gateway, since storage.driver is "memory": it is for storage.driver = "postgres"',
    ]],
    ["windows of requests that no other gateway shares", { gateway: { rate_limit_scope: "cluster" } }, [
      '"gateway.rate_limit_scope" does nothing: storage.driver is "sqlite"',
    ]],
    ["leases between gateways that cannot share a database", { cluster: { lease_secs: 5 } }, [
      '"cluster.lease_secs" does nothing: storage.driver is "sqlite"',
    ]],
    ["leases between gateways that share a database", {
      storage: { driver: "postgres", url: "postgres://db/x" },
      cluster: { lease_secs: 5 },
    }, []],
    ["the access of a built-in tool", { tools: { read_file: { access: "write" } } }, [
      "[tools.read_file] does nothing: the access of a built-in tool is its own",
    ]],
    ["the access of a tool that is not there", { tools: { nothing: { access: "read" } } }, [
      "[tools.nothing] does nothing: no built-in tool and no plugin that is there has this name",
    ]],
    ["the access of a node's tool", { tools: { node__pi__read_file: { access: "read" } } }, []],
    ["a rule for a tool that is not there", {
      autonomy: { always_ask: ["http_post", "shell", "glob", "mcp__x__y"] },
    }, [
      '"http_post" in "autonomy.always_ask" does nothing: no built-in tool and no plugin that is there has this name',
    ]],
    ["rules for tools of plugins", {
      autonomy: { auto_approve: ["count_words"] },
      tools: { count_words: { access: "read" } },
    }, []],
    ["a list of an agent", { agents: { helper: { allowed_tools: ["read_fil", "memory_*"] } } }, [
      '"read_fil" in "agents.helper.allowed_tools" does nothing: no built-in tool and no plugin that is there has this name',
    ]],
    ["MCP servers that are off", { mcp: { servers: { files: { command: "server" } } } }, [
      "[mcp.servers.files] does nothing: [security.mcp] enabled is false",
    ]],
    ["MCP that names no server", { security: { mcp: { enabled: true } } }, [
      "[security.mcp] does nothing: allowed_servers names no [mcp.servers.<name>]",
    ]],
    ["names of MCP servers that do not meet", {
      security: { mcp: { enabled: true, allowed_servers: ["file"] } },
      mcp: { servers: { files: { command: "server" } } },
    }, [
      '"file" in "security.mcp.allowed_servers" does nothing: there is no [mcp.servers.file]',
      "[mcp.servers.files] does nothing: allowed_servers of [security.mcp] does not name it",
    ]],
    ["MCP servers that may be used", {
      security: { mcp: { enabled: true, allowed_servers: ["files"] } },
      mcp: { servers: { files: { command: "server" } } },
    }, []],
    ["nothing", {}, []],
    ["what is used", { gateway: { port: 1 }, url_access: { allow_loopback: true }, enable_git: true }, []],
  ] as const
) {
  test(`idle settings: ${what}`, () => assert.deepEqual(idle(tables), expected));
}

test("every key that no code reads is in a table that is warned about", () => {
  const files = sourceFiles(["lib", "cli", "handlers"]).filter(({ path }) =>
    !path.includes("config/schema/") && !path.endsWith("change_config.ts") && !path.endsWith("idle_settings.ts")
  );
  const text = files.map(({ text }) => text).join("\n");
  const isIdle = (key: string) => {
    const [first = "", second = ""] = key.split(".");
    return idleSettings({ ...configOf({}), given: [first, `${first}.${second}`] }, { others: [] }).length > 0;
  };
  const isUnread = (key: string) => {
    const name = key.split(".").filter((part) => !part.startsWith("<")).at(-1) ?? "";
    return !new RegExp(`\\b${name}\\b`).test(text);
  };
  assert.ok(isUnread("mcp.servers.<name>.no_key_of_any_version"), "the search finds unread keys at all");
  const unread = Object.keys(CONFIG_KEYS).filter(isUnread);
  assert.deepEqual(unread.filter((key) => !isIdle(key)), []);
});

test("a start logs one warning for each", async () => {
  await withTemporaryFolder(async (folder) => {
    const lines: GatewayLogLine[] = [];
    const config = {
      provider: { kind: "offline" as const },
      mcp: { servers: { files: { command: "server" } } },
    };
    const options = { dataDir: `${folder}/data`, workspace: folder, config };
    const gateway = await createGateway({ ...options, onLog: (line) => void lines.push(line) });
    await gateway.close();
    const warned = lines.filter(({ level, message }) => level === "warn" && message.includes("does nothing"));
    assert.deepEqual(warned.map(({ fields }) => fields["key"]), ["mcp.servers.files"]);
  });
});
