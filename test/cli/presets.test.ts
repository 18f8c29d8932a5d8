import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { EXIT } from "../../cli/command.ts";
import { requireSandboxFor, tryBubblewrapHere } from "../../cli/doctor/check_containment.ts";
import { applyPreset, PRESET_ROWS, presetOf, PRESETS } from "../../cli/presets.ts";
import { defaultConfig } from "../../lib/config/config.ts";
import { checkConfigText } from "../../lib/config/load_config.ts";
import { type Machine, onMachine } from "./support/run_in.ts";

const DECISIONS = { yes: "allow", "asks you": "ask", no: "deny" } as const;
const { kind: sandbox } = await tryBubblewrapHere();
const skip = sandbox === "bubblewrap" ? false : "the preset code needs bubblewrap";

/** Writes the user's own configuration. @returns its path */
function writeOwn({ home }: Machine, text: string): string {
  const path = join(home, ".config/postern/postern.toml");
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
  return path;
}

for (const preset of PRESETS) {
  test(
    `the policy says to each call what the table of presets says: ${preset}`,
    { skip: preset === "code" && skip },
    () =>
      onMachine(async (machine) => {
        writeOwn(machine, await applyPreset("", preset));
        for (const [work, answers, tool, input] of PRESET_ROWS) {
          const said = await machine.run(["policy", "explain", tool, "--input", JSON.stringify(input), "--json"]);
          assert.notEqual(said.code, EXIT.internal, said.stderr);
          // A command that is not allowed is refused before the policy looks at it
          const { decision, rule, path = [] } = JSON.parse(said.stdout || '{"decision":"deny"}');
          const says = path.find((step: { readonly rule: string }) => step.rule === rule)?.says;
          const answer = answers[PRESETS.indexOf(preset)] ?? "no";
          assert.equal(
            decision === "unknown" ? says : decision,
            DECISIONS[answer],
            `${work}: ${said.stdout}${said.stderr}`,
          );
        }
      }),
  );
}

test("a configuration without a word is look, and each preset is known by its values", async () => {
  assert.equal(presetOf(defaultConfig()), "look");
  for (const preset of PRESETS) {
    assert.equal(presetOf(await checkConfigText(await applyPreset("", preset), "a")), preset);
  }
  assert.equal(presetOf(await checkConfigText('[autonomy]\nlevel = "full"\n', "a")), undefined);
});

test("every preset takes back what another opened, and leaves all else of the file", async () => {
  const mine = "# mine\n[gateway]\nport = 8080 # a port\n";
  for (const from of PRESETS) {
    const there = await applyPreset(mine, from);
    for (const to of PRESETS) {
      const text = await applyPreset(there, to);
      assert.ok(text.includes(mine.trimEnd()), `${from} to ${to}`);
      assert.equal(presetOf(await checkConfigText(text, "a")), to, `${from} to ${to}`);
      assert.equal(await applyPreset(text, to), text, "a second time changes nothing");
    }
  }
});

test("lists keep what a person has put into them, and any command is taken back", async () => {
  const mine = '[autonomy]\nauto_approve = ["web_fetch"]\n[security]\nallowed_commands = ["ls", "npm"]\n';
  assert.equal(await applyPreset(mine, "look"), mine);
  const { autonomy, security } = await checkConfigText(await applyPreset(mine, "code"), "a");
  assert.deepEqual([autonomy.auto_approve, security.allowed_commands], [["web_fetch", "shell", "process_tool"], ["*"]]);
  const back = await checkConfigText(await applyPreset(await applyPreset(mine, "code"), "write"), "a");
  assert.deepEqual([back.autonomy.auto_approve, back.security.allowed_commands], [
    ["web_fetch"],
    defaultConfig().security.allowed_commands,
  ]);
});

test("a switch is changed where it stands", async () => {
  const text = await applyPreset("[security]\nenable_git = false\n", "write");
  assert.match(text, /^\[security\]\nenable_git = true\n/);
  assert.doesNotMatch(text.split("[security]")[0] ?? "", /enable_git/);
});

test("preset apply shows the difference and writes nothing without a yes", () =>
  onMachine(async (machine) => {
    const path = writeOwn(machine, "# mine\n");
    for (const answers of [["n"], [""], []]) {
      const { code, stdout, stderr } = await machine.run(["preset", "apply", "write"], { answers });
      assert.deepEqual([code, stdout, readFileSync(path, "utf8")], [1, "", "# mine\n"]);
      assert.match(stderr, /^\+enable_git = true$/m);
      assert.match(stderr, /^\+\[security\.write_file\]\n\+enabled = true$/m);
    }
    const unasked = await machine.run(["preset", "apply", "write"]);
    assert.deepEqual([unasked.code, readFileSync(path, "utf8")], [1, "# mine\n"]);
    assert.match(unasked.stderr, /no terminal to ask; say --yes/);
    const { code, stdout } = await machine.run(["preset", "apply", "write"], { answers: ["y"] });
    assert.deepEqual([code, stdout], [0, `Applied write to ${path}\n`]);
    assert.match(readFileSync(path, "utf8"), /^enable_git = true$/m);
    const again = await machine.run(["preset", "apply", "write"]);
    assert.deepEqual([again.code, again.stdout], [0, `Nothing to change: ${path} has the values of write already\n`]);
    assert.equal((await machine.run(["preset", "apply", "look", "--yes"])).code, 0);
    assert.match((await machine.run(["preset", "show"])).stdout, /\nIn use: look\n$/);
  }));

test("preset show has the table and, with a name, the change that it would make", () =>
  onMachine(async ({ run, home }) => {
    const { stdout } = await run(["preset", "show", "write"]);
    assert.match(stdout, /^look +write +code +the agent may\n/);
    assert.match(stdout, /^no +asks you +asks you +write, edit and patch files$/m);
    assert.match(stdout, /^Never: secret files/m);
    assert.match(stdout, new RegExp(`changes ${join(home, ".config/postern/postern.toml")}:\\n@@`));
    const { in_use, settings, change } = JSON.parse((await run(["preset", "show", "look", "--json"])).stdout);
    assert.deepEqual([in_use, settings["security.write_file.enabled"], change], ["look", false, ""]);
    const wrong = await run(["preset", "apply", "everything"]);
    assert.deepEqual([wrong.code, wrong.stderr], [
      2,
      'Cannot use the preset "everything": the presets are look, write, code\n',
    ]);
  }));

test("the preset code is refused where no sandbox works, with the cure, and the others are not", async () => {
  const look = () => Promise.resolve({ kind: "unanswered", reason: "bubblewrap did not answer within 10 s" } as const);
  for (const preset of ["look", "write"] as const) await requireSandboxFor(preset, look);
  await assert.rejects(requireSandboxFor("code", look), {
    message: "Cannot use the preset code here: its commands run in the sandbox alone, and bubblewrap did not answer " +
      "within 10 s; postern doctor, once the machine has less to do",
  });
});

test(
  "the preset code is applied where a sandbox works, and its file can be used",
  { skip },
  () =>
    onMachine(async ({ run }) => {
      assert.equal((await run(["preset", "apply", "code", "--yes"])).code, 0);
      assert.equal((await run(["config", "check"])).code, 0);
    }),
);
