import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ConfigError } from "../../lib/base/errors.ts";
import { type ConfigFlags, loadConfig } from "../../lib/config/load_config.ts";
import { acceptFile } from "../../lib/config/trust_store.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

interface Given {
  readonly flags?: ConfigFlags;
  readonly env?: Record<string, string>;
  /** Text of `--config own.toml` */
  readonly text?: string;
}

async function withConfig<T>(
  { flags = {}, env = {}, text }: Given,
  use: (load: () => ReturnType<typeof loadConfig>, folder: string) => Promise<T>,
) {
  await withTemporaryFolder(async (folder) => {
    const file = text === undefined ? {} : { config: "own.toml" };
    if (text !== undefined) writeFileSync(join(folder, "own.toml"), text);
    await use(() => loadConfig({ flags: { ...file, ...flags }, env, cwd: folder, home: folder }), folder);
  });
}

async function refusalOf(given: Given): Promise<ConfigError> {
  let refusal: unknown;
  await withConfig(given, async (load) => {
    refusal = await load().then(() => undefined, (error) => error);
  });
  assert.ok(refusal instanceof ConfigError, `expected a ConfigError, got ${refusal}`);
  return refusal;
}

test("without a file, a flag or a variable every value is its default", () =>
  withConfig({}, async (load, folder) => {
    const { config, file, dataDir, workspace, sources } = await load();
    assert.equal(config.gateway.port, 42617);
    assert.equal(file, undefined);
    assert.equal(dataDir, join(folder, ".local/share/postern"));
    assert.equal(workspace, folder);
    assert.equal(sources.size, 0);
  }));

test("flags go over variables, variables over the file, the file over defaults", () =>
  withConfig(
    {
      text: "[gateway]\nport = 1\nrate_limit_max = 1\nmax_request_bytes = 2048\n",
      env: { POSTERN__GATEWAY__PORT: "2", POSTERN__GATEWAY__RATE_LIMIT_MAX: "2" },
      flags: { keys: { "gateway.port": 3 } },
    },
    async (load) => {
      const { config, sources } = await load();
      assert.equal(config.gateway.port, 3);
      assert.equal(config.gateway.rate_limit_max, 2);
      assert.equal(config.gateway.max_request_bytes, 2048);
      assert.equal(config.gateway.host, "127.0.0.1");
      assert.equal(sources.get("gateway.port"), "flag");
      assert.equal(sources.get("gateway.rate_limit_max"), "environment");
      assert.equal(sources.get("gateway.max_request_bytes"), "file");
      assert.equal(sources.get("gateway.host"), undefined);
    },
  ));

test("a configuration is immutable", () =>
  withConfig({}, async (load) => {
    const { config } = await load();
    assert.throws(() => (config.gateway as { port: number }).port = 1, TypeError);
    assert.throws(() => (config.agent.tools as string[]).push("x"), TypeError);
  }));

test("variables are TOML values, else text; a text key takes 123 and true as text", () =>
  withConfig(
    {
      env: {
        POSTERN__SECURITY__ALLOWED_COMMANDS: '["git"]',
        POSTERN__SECURITY__READ_FILE__MAX_READ_BYTES: "10",
        POSTERN__PROVIDER__MODEL: "123",
        POSTERN__AGENT__SYSTEM_PROMPT: "Be brief.",
        POSTERN__LOGGING__LEVEL: '"debug"',
      },
    },
    async (load) => {
      const { config } = await load();
      assert.deepEqual(config.security.allowed_commands, ["git"]);
      assert.equal(config.security.read_file.max_read_bytes, 10);
      assert.equal(config.provider.model, "123");
      assert.equal(config.agent.system_prompt, "Be brief.");
      assert.equal(config.logging.level, "debug");
    },
  ));

test("a variable cannot smuggle in a second key with a line break", () =>
  withConfig({ env: { POSTERN__PROVIDER__MODEL: '"a"\nkind = "none"' } }, async (load) => {
    const { config } = await load();
    assert.equal(config.provider.kind, "auto");
    assert.equal(config.provider.model, '"a"\nkind = "none"');
  }));

test("an unknown key is refused with file, line, key path and the nearest key", async () => {
  const refusal = await refusalOf({ text: "# first\n[gateway]\nprot = 3\n" });
  assert.equal(refusal.code, "config_invalid");
  assert.equal(refusal.key, "gateway.prot");
  assert.equal(refusal.line, 3);
  assert.match(refusal.file ?? "", /own\.toml$/);
  assert.match(
    refusal.message,
    /^Cannot use "gateway\.prot" \(.*own\.toml:3\): there is no such key; did you mean "gateway\.port"\?$/,
  );
});

for (
  const [text, meant] of [
    ["[gatway]\nport = 1", "gateway"],
    ["port = 1", "gateway.port"],
    ["[gateway]\nrateLimitMax = 1", "gateway.rate_limit_max"],
    ["[security.read_file]\nmax_read_byte = 1", "security.read_file.max_read_bytes"],
    ["[providers.a]\nkind = 'offline'\nbaseurl = ''", "providers.a.base_url"],
    ["[[model_routes]]\nhint='a'\nprovider='b'\nmodel='c'\nmodle='d'", "model_routes.0.model"],
  ] as const
) {
  test(`the key meant by ${JSON.stringify(text)} is ${meant}`, async () => {
    assert.match((await refusalOf({ text })).message, new RegExp(`did you mean "${meant.replaceAll(".", "\\.")}"\\?`));
  });
}

test("everything that is wrong is told at once, in the order of the file", async () => {
  const { problems, message } = await refusalOf({
    text:
      'zzz = 1\n[gateway]\nport = 70000\nhost = 5\nprot = 1\n[provider]\nkind = "opnai"\n[runs]\nmax_queued = 1.5\n[nosuch]\nx = 1\n',
  });
  assert.deepEqual(problems.map(({ key, line }) => [key, line]), [
    ["zzz", 1],
    ["gateway.port", 3],
    ["gateway.host", 4],
    ["gateway.prot", 5],
    ["provider.kind", 7],
    ["runs.max_queued", 9],
    ["nosuch", 10],
  ]);
  assert.equal(message.split("\n").length, problems.length);
});

test("a wrong variable and a wrong flag are named as what they are", async () => {
  assert.match(
    (await refusalOf({ env: { POSTERN__GATEWAY__PORT: "high" } })).message,
    /"gateway\.port" \(environment variable POSTERN__GATEWAY__PORT\): it must be a whole number from 0 to 65535, not "high"$/,
  );
  assert.match(
    (await refusalOf({ flags: { keys: { "gateway.port": 99999 } } })).message,
    /"gateway\.port" \(command line\)/,
  );
  assert.equal((await refusalOf({ env: { POSTERN__: "1" } })).code, "config_environment");
  assert.equal(
    (await refusalOf({ env: { POSTERN__GATEWAY: "1", POSTERN__GATEWAY__PORT: "1" } })).code,
    "config_environment",
  );
});

test("a TOML syntax error has line and column and does not quote the line, which may hold a secret", async () => {
  const refusal = await refusalOf({ text: '[gateway.node_control]\nauth_token = "tip-top-secret\n' });
  assert.equal(refusal.code, "config_syntax");
  assert.equal(refusal.line, 2);
  assert.match(refusal.message, /own\.toml:2:\d+\)/);
  assert.doesNotMatch(refusal.message, /tip-top/);
});

test("a Windows path in double quotes gets the way out, also where its escapes are valid", async () => {
  const key = (value: string) => `[gateway]\nport = 1\n[agent]\nsystem_prompt = ${value}\n`;
  for (const value of ['"C:\\Users\\me"', '"C:\\data\\"', '"\\\\server\\share"', '"D:\\temp\\new"']) {
    const { message, line } = await refusalOf({ text: key(value) });
    assert.match(message, /write a Windows path in single quotes, as 'C:\\notes'$/, value);
    assert.equal(line, 4, value);
    assert.doesNotMatch(message, /Users|data|share|temp/);
  }
  const { message } = await refusalOf({ text: '[gateway]\nhost = "a\\d"\n' });
  assert.doesNotMatch(message, /Windows/);
  await withConfig({ text: key("'D:\\temp\\new'") }, async (load) => {
    assert.equal((await load()).config.agent.system_prompt, "D:\\temp\\new");
  });
});

test("no refusal repeats a value from where a secret may stand", async () => {
  const secret = "sk-live/0123456789";
  const tables = [
    `[provider]\napi_key = "${secret}"`,
    `[provider]\napi_key_env = "${secret}"`,
    `[provider]\nbase_url = "ftp://u:${secret}@h"`,
    `[proxy]\nhttp = "u:${secret}@h"`,
    `[storage]\ndriver = "postgres"\nurl = "mysql://u:${secret}@h"`,
    `[mcp.servers.a]\nurl = "x:${secret}"`,
    `[mcp.servers.a]\nurl = "https://x"\nheaders = "Bearer ${secret}"`,
    `[mcp.servers.a]\ncommand = "x"\nenv = ["TOKEN=${secret}"]`,
    `[mcp.servers.a]\ncommand = "a"\nenv = { A = ["${secret}"] }`,
    `[gateway.node_control]\nauth_token = ["${secret}"]`,
  ];
  for (const text of tables) assert.doesNotMatch((await refusalOf({ text })).message, /sk-live/, text);
});

test("a list where a table is meant is refused, an empty one too", async () => {
  for (const text of ["gateway = []", "security = []", "[mcp]\nservers = []", "[[autonomy]]"]) {
    assert.match((await refusalOf({ text })).message, /it must be a table, not a list/, text);
  }
});

test("values that contradict each other are refused", async () => {
  const wrong = {
    "enable_git = true\n[security]\nenable_git = false\n": "security.enable_git",
    '[gateway]\nrequire_pairing = false\ncors_origins = ["*"]\n': "gateway.cors_origins",
    '[gateway]\ncors_origins = ["https://a.example/path"]\n': "gateway.cors_origins.0",
    "[gateway.websocket]\nheartbeat_secs = 100\n": "gateway.websocket.pong_timeout_secs",
    "[gateway.node_control]\nenabled = true\n": "gateway.node_control.enabled",
    '[gateway.node_control]\nallowed_node_ids = ["pi", "a__b"]\n': "gateway.node_control.allowed_node_ids.1",
    '[provider]\nkind = "openai_compatible"\n': "provider.base_url",
    '[provider]\nfallback = ["nobody"]\n': "provider.fallback.0",
    '[agents.a]\nallowed_tools = ["read_file", "delegate"]\n': "agents.a.allowed_tools.1",
    "[mcp.servers.a]\n": "mcp.servers.a",
    '[mcp.servers.a]\ncommand = "a"\nurl = "http://h/"\n': "mcp.servers.a",
    '[url_access]\npublic_ranges = ["198.18.0.0/15", "127.0.0.0/8"]\n': "url_access.public_ranges.1",
    '[url_access]\npublic_ranges = ["169.254.0.0/16"]\n': "url_access.public_ranges.0",
    '[url_access]\npublic_ranges = ["10.0.0.1"]\n': "url_access.public_ranges.0",
    [`[url_access]\npublic_ranges = [${'"10.0.0.0/8",'.repeat(101)}]\n`]: "url_access.public_ranges",
    '[storage]\ndriver = "postgres"\n': "storage.url",
    '[storage]\ndriver = "postgres"\nurl_env = "A"\nurl_file = "/b"\n': "storage.url",
    '[storage]\nschema = "My Schema"\n': "storage.schema",
    '[cron]\ntimezone = "Moon/Base"\n': "cron.timezone",
    '[channels."Bad Name"]\n': 'channels."Bad Name"',
  };
  for (const [text, key] of Object.entries(wrong)) assert.equal((await refusalOf({ text })).key, key, text);
});

test("a pong may take as long as the time between two pings, and no less", async () => {
  const text = (heartbeat: number, pong: number) =>
    `[gateway.websocket]\nheartbeat_secs = ${heartbeat}\npong_timeout_secs = ${pong}\n`;
  await withConfig({ text: text(60, 60) }, async (load) => {
    assert.equal((await load()).config.gateway.websocket.pong_timeout_secs, 60);
  });
  assert.equal((await refusalOf({ text: text(60, 59) })).key, "gateway.websocket.pong_timeout_secs");
});

test("a switch may stand at top level or in [security], and is the same in both", async () => {
  for (
    const text of [
      "enable_git = true",
      "[security]\nenable_git = true",
      "enable_git = true\n[security]\nenable_git = true",
    ]
  ) {
    await withConfig({ text }, async (load) => {
      const { config } = await load();
      assert.deepEqual([config.enable_git, config.security.enable_git], [true, true]);
    });
  }
});

test("a variable wins over the file's switch wherever each of them stands", () =>
  withConfig({ text: "[security]\nenable_git = false", env: { POSTERN__ENABLE_GIT: "true" } }, async (load) => {
    assert.equal((await load()).config.security.enable_git, true);
  }));

test("a level is read without case, hyphen and underscore, and tools stay as they are written", () =>
  withConfig({ text: '[autonomy]\nlevel = "ReadOnly"\nauto_approve = ["glob"]' }, async (load) => {
    const { autonomy } = (await load()).config;
    assert.equal(autonomy.level, "read_only");
    assert.deepEqual(autonomy.auto_approve, ["glob"]);
  }));

test("a user's forbidden paths add to the built-in ones, and forbidden_chars may be one string", () =>
  withConfig(
    { text: '[autonomy]\nforbidden_paths = ["/srv", "/etc"]\n[security.shell]\nforbidden_chars = ";&"' },
    async (load) => {
      const { config } = await load();
      assert.deepEqual(config.autonomy.forbidden_paths, [
        "/etc",
        "/root",
        "/proc",
        "/sys",
        "~/.ssh",
        "~/.gnupg",
        "~/.aws",
        "/srv",
      ]);
      assert.deepEqual(config.security.shell.forbidden_chars, [";", "&"]);
    },
  ));

test("`given` names what was really there", () =>
  withConfig({ text: "[url_access]\n", env: { POSTERN__CRON__ENABLED: "true" } }, async (load) => {
    assert.deepEqual((await load()).config.given, ["url_access", "cron"]);
  }));

test("the file is --config, else POSTERN_CONFIG, else the user's own", () =>
  withTemporaryFolder(async (folder) => {
    const write = (path: string, port: number) => writeFileSync(join(folder, path), `[gateway]\nport = ${port}\n`);
    mkdirSync(join(folder, "xdg/postern"), { recursive: true });
    write("a.toml", 1);
    write("b.toml", 2);
    write("xdg/postern/postern.toml", 3);
    const port = async (flags: ConfigFlags, env: Record<string, string>) =>
      (await loadConfig({ flags, env, cwd: folder, home: folder })).config.gateway.port;
    const env = { POSTERN_CONFIG: "b.toml", XDG_CONFIG_HOME: join(folder, "xdg") };
    assert.equal(await port({ config: "a.toml" }, env), 1);
    assert.equal(await port({}, env), 2);
    assert.equal(await port({}, { ...env, POSTERN_CONFIG: "" }), 3);
    assert.equal(await port({}, { XDG_CONFIG_HOME: "xdg" }), 42617, "a relative XDG variable is ignored");
  }));

test("a named file that is missing, not UTF-8 or a folder is refused", () =>
  withTemporaryFolder(async (folder) => {
    writeFileSync(join(folder, "latin1.toml"), new Uint8Array([0x23, 0xe9, 0x0a]));
    for (const config of ["nowhere.toml", "latin1.toml", "."]) {
      await assert.rejects(loadConfig({ flags: { config }, env: {}, cwd: folder, home: folder }), {
        code: "config_unreadable",
      });
    }
  }));

test("a ./postern.toml that nobody accepted refuses the start and names both ways out", () =>
  withTemporaryFolder(async (folder) => {
    writeFileSync(join(folder, "postern.toml"), "[autonomy]\nlevel = 'full'\n");
    const load = () => loadConfig({ flags: {}, env: {}, cwd: folder, home: folder });
    await assert.rejects(load(), {
      code: "config_untrusted",
      message: /`postern trust`.*`--config \.\/postern\.toml`/,
    });
    assert.equal(
      (await loadConfig({ flags: { config: "./postern.toml" }, env: {}, cwd: folder, home: folder })).config.autonomy
        .level,
      "full",
    );
  }));

test("an accepted ./postern.toml is used until its text changes", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.toml");
    const load = () => loadConfig({ flags: { dataDir: "data" }, env: {}, cwd: folder, home: folder });
    writeFileSync(path, "[gateway]\nport = 5\n");
    await acceptFile(join(folder, "data"), { path, text: "[gateway]\nport = 5\n" }, { now: 0 });
    const { config, file } = await load();
    assert.equal(config.gateway.port, 5);
    assert.equal(file?.trusted, true);
    writeFileSync(path, "[gateway]\nport = 6\n");
    await assert.rejects(load(), { code: "config_untrusted", message: /changed since you accepted it/ });
  }));

test("a file cannot vouch for itself by naming a data directory of its own", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "postern.toml");
    const text = `data_dir = "evil"\n`;
    writeFileSync(path, text);
    await acceptFile(join(folder, "evil"), { path, text }, { now: 0 });
    await assert.rejects(loadConfig({ flags: {}, env: {}, cwd: folder, home: folder }), { code: "config_untrusted" });
  }));

test("a damaged list of accepted files accepts nothing", () =>
  withTemporaryFolder(async (folder) => {
    writeFileSync(join(folder, "postern.toml"), "");
    writeFileSync(join(folder, "trusted_configs.json"), "{");
    const load = loadConfig({ flags: { dataDir: "." }, env: {}, cwd: folder, home: folder });
    await assert.rejects(load, { code: "trust_store" });
  }));

test("the data directory is the flag's, the variable's, the file's, else the user's", async () => {
  const dataDir = async (given: Given) => {
    let found = "";
    await withConfig(given, async (load, folder) => {
      found = (await load()).dataDir.slice(folder.length);
    });
    return found;
  };
  const text = 'data_dir = "from-file"';
  assert.equal(await dataDir({ text, env: { POSTERN_DATA_DIR: "v" }, flags: { dataDir: "f" } }), "/f");
  assert.equal(await dataDir({ text, env: { POSTERN_DATA_DIR: "v" } }), "/v");
  assert.equal(await dataDir({ text, env: { POSTERN__DATA_DIR: "w" } }), "/w");
  assert.equal(await dataDir({ text }), "/from-file");
  assert.equal(await dataDir({ text: 'data_dir = "~/d"' }), "/d");
});

test("of workspace and data directory the flag counts before the variable, and both before the file", () =>
  withConfig({ text: 'workspace = "file"\ndata_dir = "file_data"\n' }, async (_load, folder) => {
    for (const name of ["flag", "variable", "file"]) mkdirSync(join(folder, name));
    const load = async (flags: ConfigFlags, env: Record<string, string>) => {
      const options = { flags: { config: "own.toml", ...flags }, env, cwd: folder, home: folder };
      const { workspace, dataDir } = await loadConfig(options);
      return [workspace, dataDir];
    };
    const paths = (name: string) => [join(folder, name), join(folder, `${name}_data`)];
    const flags = { workspace: "flag", dataDir: "flag_data" };
    const env = { POSTERN__WORKSPACE: "variable", POSTERN_DATA_DIR: "variable_data" };
    assert.deepEqual(await load(flags, env), paths("flag"));
    assert.deepEqual(await load({}, env), paths("variable"));
    assert.deepEqual(await load({}, { ...env, POSTERN__DATA_DIR: "other_data" }), paths("variable"));
    assert.deepEqual(await load({}, { POSTERN__WORKSPACE: "", POSTERN_DATA_DIR: "" }), paths("file"));
    assert.deepEqual(await load({}, {}), paths("file"));
  }));

test("a workspace that is no folder is refused", async () => {
  assert.equal((await refusalOf({ flags: { workspace: "nowhere" } })).code, "workspace");
  assert.equal((await refusalOf({ text: 'workspace = "own.toml"' })).code, "workspace");
});

test("a byte order mark and Windows line ends are read", () =>
  withConfig({ text: "\uFEFF[gateway]\r\nport = 9\r\n" }, async (load) => {
    assert.equal((await load()).config.gateway.port, 9);
  }));

test("hostile names are keys like others and change no prototype", async () => {
  for (
    const text of [
      "__proto__ = 1",
      "[constructor]\nx = 1",
      "[gateway.__proto__]\nport = 1",
      '[providers."__proto__"]\nmodel = "x"',
    ]
  ) {
    await refusalOf({ text });
    assert.equal(({} as { port?: number }).port, undefined);
  }
});

test("the file that is read is not changed", () =>
  withConfig({ text: "[gateway]\nport = 1 # mine\n" }, async (load, folder) => {
    chmodSync(join(folder, "own.toml"), 0o444);
    await load();
    assert.equal(readFileSync(join(folder, "own.toml"), "utf8"), "[gateway]\nport = 1 # mine\n");
  }));

test("a route of an unknown provider, two of one hint, and a rule without a route are refused, naming key and line", async () => {
  const route = (hint: string, provider = "offline") =>
    `[[model_routes]]\nhint = "${hint}"\nprovider = "${provider}"\nmodel = "m"\n`;
  const rule = (enabled: boolean) => `[query_classification]\nenabled = ${enabled}\nrules = [{ hint = "b" }]\n`;
  const cases: Record<string, string> = {
    [route("a", "nobody")]: "model_routes.0.provider",
    [route("a") + route("a")]: "model_routes.1.hint",
    [route("a") + rule(true)]: "query_classification.rules.0.hint",
    '[[embedding_routes]]\nhint = "a"\nprovider = "nobody"\nmodel = "m"\n': "embedding_routes.0.provider",
  };
  for (const [text, key] of Object.entries(cases)) assert.equal((await refusalOf({ text })).key, key, text);
  const address = await refusalOf({ text: route("a", "http://127.0.0.1:8000/v1") });
  assert.match(address.message, /it is an address; name a \[providers\.<name>\]/);
  await withConfig({ text: route("a") + route("b") + rule(true) }, (load) => load());
  await withConfig({ text: route("a") + rule(false) }, (load) => load());
});

test("an embedding route of the memory must be there, and its provider must have embeddings", async () => {
  const route = (hint: string, provider = "local") =>
    `[[embedding_routes]]\nhint = "${hint}"\nprovider = "${provider}"\nmodel = "m"\n`;
  const local = '[providers.local]\nbase_url = "http://127.0.0.1:8000/v1"\n[providers.claude]\nkind = "anthropic"\n';
  const memory = '[memory]\nembedding_route = "meaning"\n';
  const cases: Record<string, RegExp> = {
    [memory]: /there are no \[\[embedding_routes\]\]/,
    [local + route("near") + route("far") + memory]: /the hints of \[\[embedding_routes\]\] are "near", "far"/,
    [local + route("meaning", "claude") + memory]: /the provider "claude" of this route has no embeddings/,
    [route("meaning", "offline") + memory]: /the provider "offline" of this route has no embeddings/,
  };
  for (const [text, reason] of Object.entries(cases)) {
    const { key, message } = await refusalOf({ text });
    assert.equal(key, "memory.embedding_route", text);
    assert.match(message, reason, text);
  }
  await withConfig({ text: local + route("meaning") + memory }, (load) => load());
  await withConfig({ text: local + route("near") + '[memory]\nembedding_route = ""\n' }, (load) => load());
});

test("a network of commands needs an allowlist and a sandbox, and the refusal names the other key", async () => {
  const shell = (more = "") => `[security.shell]\nnetwork = "allowlist"\n${more}`;
  const access = '[url_access]\ndomain_allowlist = ["example.com"]\n';
  const cases: Record<string, RegExp> = {
    [shell()]: /"allowlist" needs \[url_access\] domain_allowlist, which is empty/,
    [shell('sandbox = "off"\n') + access]: /"allowlist" needs the sandbox, and \[security\.shell\] sandbox is "off"/,
  };
  for (const [text, reason] of Object.entries(cases)) {
    const { key, message } = await refusalOf({ text });
    assert.equal(key, "security.shell.network", text);
    assert.match(message, reason);
  }
  await withConfig({ text: shell() + access }, (load) => load());
  await withConfig({ text: shell('sandbox = "require"\n') + access }, (load) => load());
});

test("contained lines need a sandbox, and any command needs contained lines", async () => {
  const lines = '[security.shell]\nsyntax = "contained"\n';
  const cases: Record<string, readonly [key: string, RegExp]> = {
    '[security]\nallowed_commands = ["ls", "*"]\n': ["security.allowed_commands", /"\*" needs .* syntax = "contained"/],
    '[security.process]\nallowed_commands = ["*"]\n': ["security.process.allowed_commands", /"\*" needs/],
    [`${lines}sandbox = "off"\n`]: [
      "security.shell.syntax",
      /sandbox is "off"; set sandbox = "auto", or syntax = "plain"/,
    ],
  };
  for (const [text, [name, reason]] of Object.entries(cases)) {
    const { key, message } = await refusalOf({ text });
    assert.equal(key, name, text);
    assert.match(message, reason);
  }
  await withConfig({ text: `[security]\nallowed_commands = ["*"]\n${lines}` }, (load) => load());
});

test("a wrong value of a key that must be given is refused with what it must be, not with what the key means", async () => {
  const credential = (variable: string) => `header = "x"\nvalue_env = "${variable}"\nhosts = ["a"]\n`;
  const cases: Record<string, RegExp> = {
    '[[model_routes]]\nhint = ""\nprovider = "offline"\nmodel = "m"\n': /it must be text that is not empty/,
    [`[http_request.credentials.a]\n${credential("a b")}`]: /it must be the name of an environment variable/,
    '[hardware.boards.a]\nmemory_map = [{ name = "ram", start = -1, length = 1 }]\n':
      /it must be a whole number from 0/,
  };
  for (const [text, reason] of Object.entries(cases)) assert.match((await refusalOf({ text })).message, reason, text);
});

test("a workspace_id is no id of a workspace of one gateway", async () => {
  const name = (id: string) => `[cluster]\nworkspace_id = "${id}"\n`;
  for (const id of ["ws_", "ws_0123abc.0123456789ab"]) {
    const { message } = await refusalOf({ text: name(id) });
    assert.match(message, /"cluster\.workspace_id".* without ws_ at the beginning: .*another folder/, id);
  }
  for (const id of ["", "office", "ws", "WS_office", "my_ws_1"]) {
    await withConfig({ text: name(id) }, async (load) => {
      assert.equal((await load()).config.cluster.workspace_id, id);
    });
  }
});

test("the address of a board has a port that a server can have", async () => {
  const board = (remote: string) => `[hardware.boards.bench]\ngdb_remote = "${remote}"\n`;
  for (const remote of ["nowhere", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:99999", "127.0.0.1:", "a b:1"]) {
    assert.match((await refusalOf({ text: board(remote) })).message, /it must be an address with a port/, remote);
  }
  for (const remote of ["127.0.0.1:1", "localhost:3333", "[::1]:65535", "board.local:59999"]) {
    await withConfig({ text: board(remote) }, async (load) => {
      assert.equal((await load()).config.hardware.boards["bench"]?.gdb_remote, remote);
    });
  }
});
