import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { linkSync, mkdirSync, symlinkSync } from "node:fs";
import { describe, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "../../../lib/base/clock.ts";
import { SOP_LIMITS } from "../../../lib/automation/sops/definition.ts";
import { loadDefinitions, type LoadedSops } from "../../../lib/automation/sops/load_definitions.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";
import { triesOf } from "../../support/seeded_random.ts";
import { processorMs } from "../../support/processor_time.ts";

/** Loads `own/`, as a folder of the operator's, and what the workspace has. */
async function load({ root, path }: Workspace): Promise<LoadedSops> {
  return await loadDefinitions({
    files: createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] }),
    workspaceRoot: root,
    forbiddenPaths: [],
    folders: [
      { path: path("own"), shownAs: "own", inWorkspace: false },
      { path: path(".postern", "sops"), shownAs: ".postern/sops", inWorkspace: true },
    ],
  });
}

async function loadOne(name: string, text: string | Uint8Array): Promise<LoadedSops> {
  let loaded: LoadedSops | undefined;
  await withWorkspace({ [`own/${name}`]: text }, async (workspace) => {
    loaded = await load(workspace);
  });
  return loaded ?? assert.fail("Nothing was loaded");
}

async function problemsOf(name: string, text: string | Uint8Array) {
  const { sops, invalid } = await loadOne(name, text);
  assert.equal(sops.length, 0);
  return invalid.flatMap(({ problems }) => problems);
}

const STEP = '[[steps]]\nid = "look"\ntool = "read_file"\ninput = { path = "notes.txt" }\n';

const MARKDOWN = `---
name: Triage
inputs:
  service:
    type: string
    choices: [gate, door]
steps:
  - id: logs
    tool: content_search
    input:
      pattern: "ERROR {{inputs.service}}"
  - id: assess
    tools: [read_file]
  - id: call
    manual: Call the people of {{inputs.service}}
    requires_approval: true
---
# Triage of an incident

Keep calm.

## assess

Read what was found and say how bad it is:

\`\`\`
## not a heading
{{steps.logs.output}}
\`\`\`

## Notes

Written by hand.
`;

describe("a definition", () => {
  test("in TOML has inputs and steps with their defaults", async () => {
    const text = `name = "Release"\ndescription = "Puts out a version"\n[inputs.version]\npattern = '\\d+\\.\\d+'\n` +
      `[inputs.dry]\ntype = "boolean"\ndefault = false\n${STEP}[[steps]]\nid = "tell"\non_error = "continue"\n` +
      `instructions = "Tell about {{inputs.version}}: {{steps.look.output}}"\n`;
    const { sops: [found], invalid } = await loadOne("release.toml", text);
    assert.deepEqual(invalid, []);
    assert.match(found?.digest ?? "", /^[0-9a-f]{64}$/);
    assert.deepEqual(found?.definition, {
      id: "release",
      name: "Release",
      description: "Puts out a version",
      guide: "",
      inputs: [
        {
          name: "version",
          type: "string",
          description: "",
          required: true,
          default: null,
          choices: null,
          pattern: "\\d+\\.\\d+",
        },
        {
          name: "dry",
          type: "boolean",
          description: "",
          required: false,
          default: false,
          choices: null,
          pattern: null,
        },
      ],
      steps: [
        {
          id: "look",
          title: "look",
          requires_approval: false,
          on_error: "fail",
          work: { kind: "tool", tool: "read_file", input: { path: "notes.txt" } },
        },
        {
          id: "tell",
          title: "tell",
          requires_approval: false,
          on_error: "continue",
          work: { kind: "agent", instructions: "Tell about {{inputs.version}}: {{steps.look.output}}", tools: ["*"] },
        },
      ],
    });
  });

  test("in Markdown has instructions under the heading of their step, and the rest as a guide", async () => {
    const { sops: [found], invalid } = await loadOne("incident-triage.md", MARKDOWN.replaceAll("\n", "\r\n"));
    assert.deepEqual(invalid, []);
    const { id, guide, steps = [] } = found?.definition ?? {};
    assert.equal(id, "incident-triage");
    assert.equal(guide, "# Triage of an incident\n\nKeep calm.\n\n## Notes\n\nWritten by hand.");
    assert.deepEqual(steps.map(({ work }) => work.kind), ["tool", "agent", "manual"]);
    const [, assess] = steps;
    const said = "Read what was found and say how bad it is:\n\n```\n## not a heading\n{{steps.logs.output}}\n```";
    assert.deepEqual(assess?.work, { kind: "agent", instructions: said, tools: ["read_file"] });
  });

  test("of one id that an earlier folder has does not take its place", () =>
    withWorkspace(
      { "own/release.toml": STEP, ".postern/sops/mine.toml": `id = "release"\n${STEP}` },
      async (workspace) => {
        const { sops, invalid } = await load(workspace);
        assert.deepEqual(sops.map(({ file, inWorkspace }) => [file, inWorkspace]), [["own/release.toml", false]]);
        assert.match(
          invalid[0]?.problems[0]?.message ?? "",
          /\.postern\/sops\/mine\.toml\): its id "release" is taken by own/,
        );
      },
    ));

  test("that is bad hides no other, and other files are none of its business", () =>
    withWorkspace({
      "own/a.toml": "steps = 7",
      "own/b.toml": STEP,
      "own/README.md": "About these",
      "own/script.sh": "rm -rf /",
      "own/deep/c.toml": STEP,
    }, async (workspace) => {
      const { sops, invalid } = await load(workspace);
      assert.deepEqual(sops.map(({ definition }) => definition.id), ["b"]);
      assert.deepEqual(invalid.map(({ file }) => file), ["own/a.toml"]);
    }));

  test("may begin with a byte order mark", async () => {
    for (const [name, text] of [["a.toml", STEP], ["a.md", MARKDOWN]] as const) {
      assert.deepEqual((await loadOne(name, `\uFEFF${text}`)).sops.map(({ definition }) => definition.id), ["a"]);
    }
  });

  test("that there is none of is no error", () =>
    withWorkspace({}, async (workspace) => assert.deepEqual(await load(workspace), { sops: [], invalid: [] })));
});

describe("what is wrong is said with file, line, key and the way out", () => {
  const toml:
    readonly (readonly [what: string, text: string, line: number, key: string | undefined, reason: RegExp])[] = [
      ["broken TOML", `${STEP}id = = 3`, 5, undefined, /it is not valid TOML/],
      ["a Windows path", `${STEP}manual = "C:\\Users"`, 5, undefined, /write a Windows path in single quotes/],
      ["an unknown key", `nmae = "x"\n${STEP}`, 1, "nmae", /there is no such key; did you mean "name"\?/],
      [
        "an unknown key of a step",
        `${STEP}requires_aproval = true`,
        5,
        "steps.0.requires_aproval",
        /did you mean "requires_approval"/,
      ],
      ["a wrong type", `${STEP}requires_approval = "yes"`, 5, "steps.0.requires_approval", /it must be true or false/],
      ["no steps", 'name = "Nothing"', 1, "steps", /it must be given/],
      ["an empty list of steps", "steps = []", 1, "steps", /it must not be empty/],
      ["a step that does nothing", '[[steps]]\nid = "rest"', 1, "steps.0", /it does nothing: give it tool/],
      [
        "two kinds of work",
        `${STEP}manual = "x"`,
        5,
        "steps.0.manual",
        /a step has one of tool, instructions and manual/,
      ],
      [
        "an input of no tool",
        '[[steps]]\nid = "a"\nmanual = "x"\ninput = { a = 1 }',
        4,
        "steps.0.input",
        /it belongs to a tool/,
      ],
      [
        "an input in text form",
        '[[steps]]\nid = "a"\ntool = "shell"\ninput = "ls"',
        4,
        "steps.0.input",
        /it must be a table.*name the fields/,
      ],
      ["two steps of one id", STEP + STEP, 6, "steps.1.id", /"look" is the id of an earlier step/],
      ["a bad id", STEP.replace("look", "Look up"), 2, "steps.0.id", /1-64 of a-z/],
      [
        "a procedure that runs itself",
        STEP.replace("read_file", "sop_execute"),
        3,
        "steps.0.tool",
        /neither runs nor steers procedures/,
      ],
      [
        "a step that names itself",
        STEP.replace("notes.txt", "{{steps.look.output}}"),
        4,
        "steps.0.input.path",
        /does not come before this one/,
      ],
      [
        "a step that names a later one",
        `${STEP.replace("notes.txt", "{{steps.b.output}}")}${STEP.replace("look", "b")}`,
        4,
        "steps.0.input.path",
        /does not come before/,
      ],
      [
        "an input that is not declared",
        STEP.replace("notes.txt", "{{inputs.path}}"),
        4,
        "steps.0.input.path",
        /is not declared; there are none/,
      ],
      [
        "a value of any words in a command",
        `[inputs.x]\n${STEP.replace("path =", "command =").replace("notes.txt", "ls {{inputs.x}}")}`,
        5,
        "steps.0.input.command",
        /"{{inputs.x}}" could be more words than meant/,
      ],
      [
        "a default of another type",
        `[inputs.n]\ntype = "integer"\ndefault = "x"\n${STEP}`,
        3,
        "inputs.n.default",
        /it must be a whole number/,
      ],
      [
        "a default that is no choice",
        `[inputs.n]\nchoices = ["a"]\ndefault = "x"\n${STEP}`,
        3,
        "inputs.n.default",
        /it must be one of "a"/,
      ],
      [
        "a bad pattern",
        `[inputs.n]\npattern = "(?=x)"\n${STEP}`,
        2,
        "inputs.n.pattern",
        /no regular expression in RE2 syntax/,
      ],
      [
        "a pattern of a number",
        `[inputs.n]\ntype = "number"\npattern = "x"\n${STEP}`,
        3,
        "inputs.n.pattern",
        /only a string has a pattern/,
      ],
      [
        "a huge pattern",
        `[inputs.n]\npattern = "(a{1000}){1000}"\n${STEP}`,
        2,
        "inputs.n.pattern",
        /RE2 syntax|too large/,
      ],
      ["a date", `${STEP}title = 2026-01-01`, 5, "steps.0.title", /put it into quotes/],
      ["a number without end", STEP.replace('"notes.txt"', "inf"), 4, "steps.0.input.path", /finite/],
    ];
  for (const [what, text, line, key, reason] of toml) {
    test(`${what} in TOML`, async () => {
      const [problem] = await problemsOf("bad.toml", text);
      assert.deepEqual([problem?.file, problem?.line, problem?.key], ["own/bad.toml", line, key]);
      assert.match(problem?.message ?? "", reason);
      assert.match(problem?.message ?? "", new RegExp(`^Cannot use .*own/bad.toml:${line}\\): `));
    });
  }

  const front = (...lines: readonly string[]) => `---\nname: x\n${lines.join("\n")}\n---\n`;
  const markdown:
    readonly (readonly [what: string, text: string, line: number, key: string | undefined, reason: RegExp])[] = [
      ["no front matter", "# Release\n", 1, undefined, /it must begin with front matter/],
      ["front matter without an end", "---\nname: x\n", 1, undefined, /it must begin with front matter/],
      ["broken YAML", front("steps: [1"), 3, undefined, /it is not valid YAML, [^()]+$/],
      ["an alias", front("a: &a [x]", "b: [*a, *a]"), 4, undefined, /it is not valid YAML/],
      ["a tag that runs", front("steps: !!js/function 'x'"), 3, undefined, /Unresolved tag/],
      ["a key twice", front("steps: []", "steps: []"), 4, undefined, /Map keys must be unique/],
      ["a key that is no text", front("steps: []", "? [a]", ": 3"), 4, undefined, /it is not valid YAML/],
      ["brackets without end", front(`steps: ${"[".repeat(20_000)}`), 3, undefined, /it is nested too deep/],
      [
        "a value in braces",
        front("steps:", "  - {id: a,", "     manual: 3}"),
        5,
        "steps.0.manual",
        /it must be a text/,
      ],
      [
        "a value in a list under its key",
        front("steps:", "-", "  id: a", "  manual: 3"),
        6,
        "steps.0.manual",
        /it must be/,
      ],
      ["no mapping", "---\n- 1\n---\n", 2, undefined, /it must be a table/],
      [
        "a wrong type deep inside",
        front("steps:", "- id: a", "  tool: look", "  input:", "    path: x", "- id: b", "  manual: 3"),
        9,
        "steps.1.manual",
        /it must be a text/,
      ],
      [
        "an unknown name under a heading",
        `${front("steps:", "  - id: a")}\ntext\n\n## a\nSay {{inputs.x}}\n`,
        9,
        "steps.0.instructions",
        /is not declared/,
      ],
    ];
  for (const [what, text, line, key, reason] of markdown) {
    test(`${what} in Markdown`, async () => {
      const [problem] = await problemsOf("bad.md", text);
      assert.deepEqual([problem?.line, problem?.key], [line, key], problem?.message);
      assert.match(problem?.message ?? "", reason);
    });
  }

  test("everything is said at once, within bounds", async () => {
    const text = Array.from({ length: 30 }, (_, index) => `[[steps]]\nid = "S${index}"\nmanual = 1\n`).join("");
    assert.equal((await problemsOf("bad.toml", text)).length, 10);
  });
});

describe("hostile files", () => {
  const refused: readonly (readonly [what: string, text: string | Uint8Array, reason: RegExp])[] = [
    ["a huge one", `# ${"x".repeat(SOP_LIMITS.fileBytes)}\n${STEP}`, /it is larger than 65536 bytes/],
    ["one that is no text", new Uint8Array([0xff, 0xfe, 0x41]), /it is not UTF-8 text/],
    ["one with NUL", `${STEP}\0`, /it is not UTF-8 text/],
    ["one that is nested without end", `a = ${"[".repeat(500)}${"]".repeat(500)}`, /nested deeper|not valid TOML/],
    ["one with too many steps", STEP.repeat(51), /it may be 50 long at most/],
    ["one with too many values", `a = [${"1,".repeat(6000)}]\n${STEP}`, /it holds over 5000 values/],
    ["one with a prototype for a key", `${STEP}[inputs.x]\n"__proto__" = { required = false }`, /__proto__/],
  ];
  for (const [what, text, reason] of refused) {
    test(`${what} is refused with the reason`, async () => {
      const problems = await problemsOf("bad.toml", text);
      assert.match(problems.map(({ message }) => message).join("\n"), reason);
    });
  }

  test("whatever is done to a definition, it is one or is refused with a place", () =>
    withWorkspace({}, async (workspace) => {
      const edit = fc.tuple(fc.nat(), fc.nat(20), fc.string({ maxLength: 8 }));
      const property = fc.asyncProperty(
        fc.constantFrom(MARKDOWN, STEP),
        fc.array(edit, { maxLength: 4 }),
        async (text, edits) => {
          const changed = edits.reduce<string>((whole, [at, length, put]) => {
            const from = at % whole.length;
            return whole.slice(0, from) + put + whole.slice(from + length) || " ";
          }, text);
          const name = text === STEP ? "x.toml" : "x.md";
          workspace.write(`own/${name}`, changed);
          const { sops, invalid } = await load(workspace);
          for (const { problems } of invalid) {
            for (const { message } of problems) assert.match(message, /^Cannot use .*\(own\/x\.(toml|md)(:\d+)?\): /s);
          }
          assert.ok(sops.length + invalid.length >= 1);
        },
      );
      await fc.assert(property, { numRuns: triesOf(25) });
    }));

  test("texts that make parsers slow are answered in time", async () => {
    const spaces = " ".repeat(50_000);
    for (
      const text of [
        `---\na${spaces}x\n---\n`,
        `---\nsteps:\n  - a${spaces}b\n---\n##${spaces}#x\n`,
        `---\nx: 'a\n${"- ".repeat(20_000)}\n---\n`,
      ]
    ) {
      const begun = processorMs();
      assert.ok((await problemsOf("bad.md", text)).length > 0);
      assert.ok(processorMs() - begun < 10_000);
    }
  });

  test("links out, second names and FIFOs are refused with file and reason", () =>
    withWorkspace({ "own/good.toml": STEP, ".postern/sops/good2.toml": STEP }, async (workspace) => {
      const { path, outside } = workspace;
      for (const folder of [["own"], [".postern", "sops"]]) {
        symlinkSync(`${outside}/secret.txt`, path(...folder, "link.toml"));
        execFileSync("mkfifo", [path(...folder, "pipe.toml")]);
        linkSync(`${outside}/secret.txt`, path(...folder, "twin.toml"));
        mkdirSync(path(...folder, "folder.toml"));
      }
      const { sops, invalid } = await load(workspace);
      assert.deepEqual(sops.map(({ definition }) => definition.id), ["good", "good2"]);
      assert.equal(invalid.length, 8);
      for (const { file, problems: [problem] } of invalid) {
        assert.match(problem?.message ?? "", /not a regular file|outside the allowed root|hard link/, file);
        assert.doesNotMatch(problem?.message ?? "", /must never be read/);
      }
    }));

  test("a folder of the workspace that leads out is not even listed", () =>
    withWorkspace({ ".postern/x": "" }, async (workspace) => {
      workspace.write("../outside/mine.toml", STEP);
      symlinkSync(workspace.outside, workspace.path(".postern", "sops"));
      const { sops, invalid } = await load(workspace);
      assert.deepEqual(sops, []);
      assert.deepEqual(invalid.map(({ file }) => file), [".postern/sops"]);
      assert.match(invalid[0]?.problems[0]?.message ?? "", /leads out of the workspace/);
    }));

  test("a folder of too many is refused as a whole", () =>
    withWorkspace(
      Object.fromEntries(Array.from({ length: 201 }, (_, index) => [`own/s${index}.toml`, STEP])),
      async (workspace) => {
        const { sops, invalid } = await load(workspace);
        assert.deepEqual([sops.length, invalid.length], [0, 1]);
        assert.match(invalid[0]?.problems[0]?.message ?? "", /over 200 definitions/);
      },
    ));
});
