import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { parseToml } from "../../../lib/config/toml.ts";
import { validateConfig } from "../../../lib/config/validate_config.ts";
import { type FakeServer, startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { startLocalServer } from "../../../fixtures/upstream/local_servers.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const modeOf = (path: string) => statSync(path).mode & 0o777;
const onWindows = process.platform === "win32";
const ownOf = ({ home }: Pick<Machine, "home">) => join(home, ".config/postern/postern.toml");
const read = (path: string) => readFileSync(path, "utf8");
/** Returns the tables of a file, with the prototypes that objects in a test have. */
const parsed = (path: string) => JSON.parse(JSON.stringify(parseToml(read(path), path)));
const KEY = "sk-right-1234567890";

/** Runs `use` with a server that wants a key and has `count` models. */
async function withKeyServer(count: number, use: (server: FakeServer) => Promise<void>): Promise<void> {
  const server = await startFakeServer((seen, response) => {
    const isRight = seen.headers["authorization"] === `Bearer ${KEY}`;
    const data = Array.from({ length: count }, (_, index) => ({ id: `model-${index}`, object: "model" }));
    response.writeHead(isRight ? 200 : 401, { "content-type": "application/json" });
    response.end(
      JSON.stringify(
        isRight ? { object: "list", data } : { error: { message: `Wrong: ${seen.headers["authorization"]}` } },
      ),
    );
  });
  await use(server).finally(() => server.close());
}

test("with --yes it writes a file that changes nothing to the user's own place, closed to others", () =>
  onMachine(async ({ run, home, cwd }) => {
    const path = ownOf({ home });
    const { code, stdout } = await run(["init", "--yes"]);
    assert.deepEqual([code, stdout], [0, `Wrote ${path}. Next: postern gateway\n`]);
    assert.equal((await run(["config", "check"])).stdout, `${path} is fine\n`);
    assert.deepEqual(readdirSync(cwd), []);
    if (!onWindows) assert.equal(modeOf(path), 0o600);
    const { file, sources } = JSON.parse((await run(["config", "show", "--json"])).stdout);
    assert.deepEqual([file, sources], [path, { "provider.kind": "environment" }]);
    const changed = await run(["config", "set", "gateway.port", "8080"]);
    assert.equal(changed.code, 0, "a change needs no trust");
    assert.equal((await run(["config", "get", "gateway.port"])).stdout, "8080\n");
  }));

test("every key the starter file shows is a default of the schema", () =>
  onMachine(async ({ run, home }) => {
    await run(["init", "--yes"]);
    const text = read(ownOf({ home })).replaceAll(/^# (?=\w+ = )/gm, "");
    const shown = validateConfig([parseToml(text, "starter")]);
    const defaults = validateConfig([{}]);
    assert.ok("config" in shown && "config" in defaults);
    assert.deepEqual({ ...shown.config, given: [] }, defaults.config);
  }));

test("--here writes ./postern.toml and accepts it; what lies there unaccepted is not changed", () =>
  onMachine(async ({ run, cwd }) => {
    const path = join(cwd, "postern.toml");
    writeFileSync(path, "enable_git = true\n");
    const foreign = await run(["init", "--here"], { answers: ["", "", "2", "y"] });
    assert.deepEqual([foreign.code, read(path)], [1, "enable_git = true\n"]);
    assert.match(foreign.stderr, /you have not accepted it as it is/);
    writeFileSync(path, "");
    await run(["trust"]);
    const { code, stdout, stderr } = await run(["init", "--here"], { answers: ["", "", "2", "y"] });
    assert.deepEqual([code, stdout], [0, `Wrote ${path} and accepted it. Next: postern gateway\n`], stderr);
    assert.equal((await run(["config", "check"])).stdout, `${path} is fine\n`);
    assert.equal((await run(["init", "--here", "--config", path])).code, 2);
  }));

test("three answers decide over provider, folder and how far the agent may go", () =>
  onMachine(async ({ run, home }) => {
    mkdirSync(join(home, "project"));
    const { code, stderr } = await run(["init"], { answers: ["offline", "~/project", "write"] });
    assert.equal(code, 0, stderr);
    assert.match(read(ownOf({ home })), /^kind = "offline"$/m);
    const { config } = JSON.parse((await run(["config", "show", "--json"], { env: {} })).stdout);
    assert.equal(config.workspace, join(home, "project"));
    assert.deepEqual([config.autonomy.level, config.security.write_file.enabled, config.enable_git], [
      "supervised",
      true,
      true,
    ]);
  }));

test("flags are answers, so that a script asks nothing and a person only the rest", () =>
  onMachine(async ({ run, home, cwd }) => {
    mkdirSync(join(home, "project"));
    const flags = ["--provider", "offline", "--preset", "write", "--workspace", join(home, "project")];
    assert.equal((await run(["init", "--yes", ...flags])).code, 0);
    const { provider, workspace, security } = parsed(ownOf({ home }));
    assert.deepEqual([provider, workspace], [{ kind: "offline" }, join(home, "project")]);
    assert.deepEqual(security, { write_file: { enabled: true } });
    const asked = await run(["init", "--config", join(cwd, "other.toml"), ...flags.slice(0, 4)], { answers: [""] });
    assert.equal(asked.code, 0, asked.stderr);
    for (
      const [wrong, reason] of [
        [["--provider", "nobody"], /--provider: "nobody" is neither one of/],
        [["--preset", "all"], /the presets are look, write, code/],
        [["--workspace", "/nowhere/at/all"], /is no folder/],
        [["--model", "a"], /without --provider/],
      ] as const
    ) {
      const { code, stderr } = await run(["init", "--yes", "--config", "third.toml", ...wrong]);
      assert.equal(code, 2, stderr);
      assert.match(stderr, reason);
    }
    assert.deepEqual(readdirSync(cwd), ["other.toml"]);
  }));

test("a key is tried, stored in a file of its own, and shown nowhere", () =>
  withKeyServer(2, (server) =>
    onMachine(async (machine) => {
      const path = ownOf(machine);
      const keyFile = join(dirname(path), `${new URL(server.origin).host.replace(":", "_")}.key`);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(keyFile, "an older one\n", { mode: 0o644 });
      const answers = [`${server.origin}/v1`, "sk-wrong-1234567890", KEY, "2", "", ""];
      const { code, stdout, stderr } = await machine.run(["init"], { answers });
      assert.equal(code, 0, stderr);
      assert.match(stderr, /refuses the key, or wants one \(401\)\n/);
      assert.doesNotMatch(stdout + stderr, /sk-wrong|sk-right/);
      assert.equal(read(keyFile), `${KEY}\n`);
      if (!onWindows) assert.equal(modeOf(keyFile), 0o600);
      assert.doesNotMatch(read(path), /sk-/);
      const { provider } = parsed(path);
      assert.deepEqual(provider, {
        ...{ kind: "openai_compatible", model: "model-1", base_url: `${server.origin}/v1`, api_key_file: keyFile },
      });
      const told = await machine.run(["models"], { env: { POSTERN__PROVIDER__KIND: "openai_compatible" } });
      assert.match(told.stdout, /model-1/, told.stderr);
    })));

test("an empty key goes on without one, and a key whose file is named is tried before a byte is written", () =>
  withKeyServer(20, (server) =>
    onMachine(async (machine) => {
      const { run, cwd, home } = machine;
      writeFileSync(join(cwd, "wrong.key"), "sk-wrong-1234567890\n");
      writeFileSync(join(cwd, "right.key"), `${KEY}\n`);
      const flags = ["init", "--yes", "--provider", `${server.origin}/v1`];
      for (const more of [["--key-file", "wrong.key"], ["--key-file", "right.key", "--model", "other"], []]) {
        const refused = await run([...flags, ...more]);
        assert.equal(refused.code, 1, refused.stderr);
        assert.match(refused.stderr, /Nothing was written: .*(?:refuses the key|not among the models)/);
        assert.equal(existsSync(ownOf(machine)), false);
      }
      const { code, stderr } = await run([...flags, "--key-file", "right.key", "--model", "model-19"]);
      assert.equal(code, 0, stderr);
      assert.match(stderr, /answers with models: 20\n/);
      assert.match(read(ownOf(machine)), new RegExp(`^api_key_file = "${join(cwd, "right.key")}"$`, "m"));
      const answers = [`${server.origin}/v1`, "", "", ""];
      const without = await run(["init", "--config", join(home, "b.toml")], { answers });
      assert.equal(without.code, 0, without.stderr);
      assert.doesNotMatch(read(join(home, "b.toml")), /^api_key_file/m);
    })));

test("a server that cannot be reached is chosen all the same, and that is said", () =>
  onMachine(async (machine) => {
    const server = await startFakeServer(() => {});
    await server.close();
    const { code, stderr } = await machine.run(["init"], { answers: [`${server.origin}/v1`, "", ""] });
    assert.equal(code, 0, stderr);
    assert.match(stderr, /could not be tried: /);
    assert.match(read(ownOf(machine)), new RegExp(`^base_url = "${server.origin}/v1"$`, "m"));
  }));

test("a folder with AGENTS.md or CLAUDE.md gives a fourth question, and yes turns workspace_instructions on", () =>
  onMachine(async (machine) => {
    writeFileSync(join(machine.cwd, "CLAUDE.md"), "Use tabs.");
    const { code, stderr } = await machine.run(["init"], { answers: ["", "", "", "2"] });
    assert.equal(code, 0, stderr);
    assert.match(read(ownOf(machine)), /^workspace_instructions = true$/m);
  }));

test("empty answers keep every default, and a vendor without its key is told where the key goes", () =>
  onMachine(async (machine) => {
    const path = ownOf(machine);
    await machine.run(["init"], { answers: ["", "", ""] });
    assert.doesNotMatch(read(path), /^\w+ = /m);
    const { code, stderr } = await machine.run(["init"], { answers: ["anthropic", "", "", "2", "y"] });
    assert.equal(code, 0, stderr);
    assert.match(stderr, /needs an API key: put it into the environment as ANTHROPIC_API_KEY/);
    assert.match(read(path), /^kind = "anthropic"$/m);
    const { notes, accepted, written } = JSON.parse(
      (await machine.run(["init", "--json"], { answers: ["1", "", "", "y"] })).stdout,
    );
    // Where programs are not contained, that is the one note
    const others = notes.filter((note: string) => !note.startsWith("Commands are not contained here: "));
    assert.deepEqual([others, accepted, written], [[], false, path]);
    assert.match(read(path), /^kind = "auto"$/m);
  }));

test("a model server on this machine is offered with its models, and both are chosen by number", () =>
  onMachine(async (machine) => {
    const server = await startLocalServer("ollama");
    try {
      let asked = "";
      const answers = ["5", "2", "", ""];
      const { code } = await machine.run(["init"], {
        env: { OLLAMA_HOST: server.origin },
        onAsk: () => Promise.resolve(answers.shift()),
        onQuestion: (question) => asked += question,
      });
      assert.equal(code, 0);
      assert.ok(asked.includes(`5  Ollama at ${server.origin}/v1: nomic-embed-text:latest, llama3.2:latest`), asked);
      assert.match(asked, /Which of its models\?[\s\S]*Empty: llama3\.2:latest/);
      const { provider } = parsed(ownOf(machine));
      assert.deepEqual(provider, { kind: "ollama", model: "llama3.2:latest", base_url: `${server.origin}/v1` });
    } finally {
      await server.close();
    }
  }));

test("what makes no sense is asked again, and given up after five answers", () =>
  onMachine(async ({ run, cwd, home }) => {
    const wrong = await run(["init"], { answers: ["http://me:secret@127.0.0.1/", "ftp://a", "99", "0", "x"] });
    assert.equal(wrong.code, 1);
    assert.match(wrong.stderr, /user name or password/);
    const folder = await run(["init"], { answers: ["", "/nowhere/at/all", "", "7", "1"] });
    assert.equal(folder.code, 0);
    assert.match(folder.stderr, /"\/nowhere\/at\/all" is no folder\n"7" is none of/);
    assert.deepEqual([readdirSync(cwd), existsSync(ownOf({ home }))], [[], true]);
  }));

test("without a terminal it must be told --yes, and answers that end early write nothing", () =>
  onMachine(async ({ run, home }) => {
    for (const options of [{}, { answers: [] }, { answers: ["2"] }, { answers: ["1", ""] }]) {
      const { code, stdout, stderr } = await run(["init"], options);
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, /no terminal to ask.*say --yes/);
    }
    assert.equal(existsSync(ownOf({ home })), false);
  }));

test("a file that is there is changed after its difference was agreed to, and never with --yes", () =>
  onMachine(async (machine) => {
    const path = ownOf(machine);
    const mine = '# mine\n[provider]\nkind = "openai" # my own\n';
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, mine);
    const refused = await machine.run(["init", "--yes", "--preset", "write"]);
    assert.deepEqual([refused.code, read(path)], [1, mine]);
    assert.match(refused.stderr, /postern preset apply/);
    for (const last of ["n", ""]) {
      const { code, stderr } = await machine.run(["init"], { answers: ["offline", "", "2", last] });
      assert.deepEqual([code, read(path)], [1, mine]);
      assert.match(stderr, /^-kind = "openai" # my own$[\s\S]*^\+kind = "offline" # my own$/m);
    }
    assert.equal((await machine.run(["init"], { answers: ["offline", "", "2", "y"] })).code, 0);
    assert.match(read(path), /# mine\n\[provider\]\nkind = "offline" # my own\n[\s\S]*enabled = true\n/);
    const same = await machine.run(["init"], { answers: ["", "", "write"] });
    assert.deepEqual([same.code, same.stdout], [0, `Nothing to change in ${path}. Next: postern gateway\n`]);
  }));

test("a file that changes while the person reads its difference is not written over", () =>
  onMachine(async (machine) => {
    const path = ownOf(machine);
    await machine.run(["init", "--yes"]);
    const answers = ["", "", "2"];
    const { code, stderr } = await machine.run(["init"], {
      onAsk() {
        if (answers.length === 0) writeFileSync(path, "# theirs\n");
        return Promise.resolve(answers.shift() ?? "y");
      },
    });
    assert.deepEqual([code, read(path)], [1, "# theirs\n"]);
    assert.match(stderr, /was changed meanwhile/);
  }));

test("a file that comes while the person answers is not written over either", () =>
  onMachine(async (machine) => {
    const path = ownOf(machine);
    const { code } = await machine.run(["init"], {
      onAsk() {
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, "# theirs\n");
        return Promise.resolve("");
      },
    });
    assert.deepEqual([code, read(path)], [1, "# theirs\n"]);
  }));

test("--config and POSTERN_CONFIG name another place, and a file that is not used is said to be so", () =>
  onMachine(async ({ run, home, cwd }) => {
    const path = join(home, "conf/mine.toml");
    const { code, stdout } = await run(["init", "--yes", "--config", path]);
    assert.deepEqual([code, stdout], [0, `Wrote ${path}. Next: postern gateway --config ${path}\n`]);
    assert.equal((await run(["config", "check", "--config", path])).code, 0);
    const other = join(home, "conf/other.toml");
    assert.equal((await run(["init", "--yes"], { env: { POSTERN_CONFIG: other } })).code, 0);
    assert.equal(existsSync(other), true);
    writeFileSync(join(cwd, "postern.toml"), "");
    const hiding = await run(["init", "--yes"]);
    assert.match(hiding.stderr, /work\/postern\.toml is not used while .*\.config\/postern\/postern\.toml exists/);
    await run(["trust"]);
    const hidden = await run(["init", "--here"], { answers: ["", "", "2", "y"] });
    assert.match(hidden.stderr, /is not used while .*\.config\/postern\/postern\.toml exists/);
  }));

test("a gateway that runs without the file is said to use it from its next start", () =>
  onMachine(async (machine) => {
    await machine.withGateway([], async () => {
      const { code, stderr } = await machine.run(["init", "--yes"]);
      assert.equal(code, 0, stderr);
      assert.match(stderr, /A gateway is running without this file: it uses the file from its next start/);
    });
  }));
