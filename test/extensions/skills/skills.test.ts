import assert from "node:assert/strict";
import { existsSync, linkSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { suite, test } from "node:test";
import { writeTar } from "../../../lib/extensions/plugins/tar.ts";
import type { Skills } from "../../../lib/extensions/skills/skills.ts";
import { BY, skillText, withSkills } from "./skill_bench.ts";

const states = async (skills: Skills) =>
  (await skills.list()).skills.map(({ name, state, source }) => `${name} ${state} ${source}`);
const find = async (skills: Skills, name: string) => (await skills.list()).skills.find((skill) => skill.name === name);
const trust = async (skills: Skills, name: string) =>
  await skills.trust(name, { digest: (await skills.show(name)).digest, by: BY });

test("skills are found in all folders; those of the workspace are off until they are trusted", () =>
  withSkills(async ({ skills }) => {
    assert.deepEqual(await states(skills), [
      "data untrusted workspace",
      "dir on own",
      "other untrusted workspace",
      "own on own",
      "shared on user",
      "theirs on user",
    ]);
    const reason = (await find(skills, "data"))?.reason ?? "";
    assert.match(reason, /nobody trusts it; .*postern skill enable data/);
    assert.equal((await skills.offer()).prompt.includes("- data"), false);
    await trust(skills, "data");
    assert.equal((await find(skills, "data"))?.state, "on");
    assert.match((await skills.offer()).prompt, /^- data: Does data$/m);
  }, {
    dirs: ["dirs"],
    files: {
      "dirs/dir/SKILL.md": skillText("dir"),
      "data/skills/own/SKILL.md": skillText("own"),
      "home/.agents/skills/shared/SKILL.md": skillText("shared"),
      "home/.claude/skills/theirs/SKILL.md": skillText("theirs"),
      "workspace/.agents/skills/data/SKILL.md": skillText("data"),
      "workspace/.claude/skills/other/SKILL.md": skillText("other"),
    },
  }));

test("the operator's skill wins over the user's and the workspace's of the same name, which are named", () =>
  withSkills(async ({ skills, logged, at }) => {
    const found = await find(skills, "pdf");
    assert.equal(found?.folder, at("data/skills/pdf"));
    assert.deepEqual(found?.hides, ["~/.agents/skills/pdf", ".agents/skills/other-folder"]);
    assert.match(logged.join("\n"), /hides others with its name/);
  }, {
    files: {
      "data/skills/pdf/SKILL.md": skillText("pdf"),
      "home/.agents/skills/pdf/SKILL.md": skillText("pdf"),
      "workspace/.agents/skills/other-folder/SKILL.md": skillText("pdf"),
    },
  }));

test("what lies in the workspace is the workspace's, whichever folder leads to it", () =>
  withSkills(async ({ skills, at }) => {
    mkdirSync(at("home/.agents/skills"), { recursive: true });
    symlinkSync(at("workspace/tools/skill-a"), at("home/.agents/skills/skill-a"));
    assert.deepEqual(await states(skills), ["skill-a untrusted workspace", "skill-b untrusted workspace"]);
  }, {
    dirs: ["workspace/shared"],
    files: {
      "workspace/tools/skill-a/SKILL.md": skillText("skill-a"),
      "workspace/shared/skill-b/SKILL.md": skillText("skill-b"),
    },
  }));

suite("a skill whose file is called otherwise is found, with a warning", () => {
  for (const name of ["skill.md", "Skill.md", "SKILL.MD"]) {
    test(name, () =>
      withSkills(async ({ skills }) => {
        assert.deepEqual(await states(skills), ["pdf on own"]);
        const [skill] = (await skills.list()).skills;
        assert.deepEqual(skill?.warnings.map(({ reason }) => reason), [
          `its file is called ${name}; the format calls it SKILL.md`,
        ]);
        assert.match((await skills.read("PDF")).text, /Do it/);
      }, { files: { [`data/skills/pdf/${name}`]: skillText("pdf") } }));
  }
});

suite("a trusted skill of the workspace is off again when", () => {
  const changes: readonly (readonly [string, (at: (path: string) => string) => void])[] = [
    ["its instructions change", (at) => writeFileSync(at("SKILL.md"), skillText("pdf", { body: "Send it to me." }))],
    ["one of its files changes", (at) => writeFileSync(at("scripts/run.sh"), "rm -rf ~")],
    ["a file comes", (at) => writeFileSync(at("scripts/more.sh"), "")],
    ["a file goes", (at) => rmSync(at("scripts/run.sh"))],
    ["a link comes", (at) => symlinkSync("/etc/passwd", at("more.md"))],
  ];
  for (const [what, change] of changes) {
    test(what, () =>
      withSkills(async ({ skills, at, logged }) => {
        await trust(skills, "pdf");
        assert.match((await skills.read("pdf")).text, /Do it/);
        change((path) => at(`workspace/.agents/skills/pdf/${path}`));
        await assert.rejects(skills.read("pdf"), { code: "skill_changed" });
        assert.deepEqual(await states(skills), ["pdf changed workspace"]);
        assert.equal((await skills.offer()).prompt, "");
        assert.match(logged.join("\n"), /has changed and is off/);
        await assert.rejects(skills.read("pdf"), { code: "skill_off" });
      }, {
        files: {
          "workspace/.agents/skills/pdf/SKILL.md": skillText("pdf"),
          "workspace/.agents/skills/pdf/scripts/run.sh": "ls",
        },
      }));
  }
});

test("every change changes the text that a person looks at, also of what is not shown", () =>
  withSkills(async ({ skills, write, at }) => {
    let { text } = await skills.show("pdf");
    assert.match(text, /=== long\.md \(too long to be shown, 160000 bytes, SHA-256/);
    assert.match(text, /=== picture\.png \(no text, 3 bytes/);
    const changes = [
      () => write("workspace/.agents/skills/pdf/long.md", "y".repeat(160_000)),
      () => write("workspace/.agents/skills/pdf/picture.png", "a\0c"),
      () => write("workspace/.agents/skills/pdf/SKILL.md", `${skillText("pdf")} `),
      () => symlinkSync("long.md", at("workspace/.agents/skills/pdf/link.md")),
    ];
    for (const change of changes) {
      await trust(skills, "pdf");
      change();
      const now = await skills.show("pdf");
      assert.notEqual(now.text, text);
      assert.notEqual(now.difference, "");
      ({ text } = now);
    }
  }, {
    files: {
      "workspace/.agents/skills/pdf/SKILL.md": skillText("pdf"),
      "workspace/.agents/skills/pdf/long.md": "x".repeat(160_000),
      "workspace/.agents/skills/pdf/picture.png": "a\0b",
    },
  }));

test("a change is shown as a difference, and only what was looked at is trusted", () =>
  withSkills(async ({ skills, write }) => {
    const before = await skills.show("pdf");
    assert.deepEqual([before.trusted_digest, before.difference], [null, null]);
    assert.match(before.text, /=== SKILL\.md\n---\nname: pdf/);
    await trust(skills, "pdf");
    write("workspace/.agents/skills/pdf/SKILL.md", skillText("pdf", { body: "Do it twice." }));
    const after = await skills.show("pdf");
    assert.equal(after.trusted_digest, before.digest);
    assert.match(after.difference ?? "", /\n-Do it\.\n\+Do it twice\./);
    const by = BY;
    await assert.rejects(skills.trust("pdf", { digest: before.digest, by }), { code: "skill_changed" });
    await assert.rejects(skills.trust("pdf", { digest: after.digest, before: null, by }), { code: "conflict" });
    assert.equal((await skills.trust("pdf", { digest: after.digest, before: before.digest, by })).on, true);
    assert.equal((await skills.untrust("pdf", { by })).state, "untrusted");
  }, { files: { "workspace/.agents/skills/pdf/SKILL.md": skillText("pdf") } }));

test("a skill has its instructions and files, and the workspace's taint a run", () =>
  withSkills(async ({ skills }) => {
    await trust(skills, "pdf");
    assert.deepEqual(await skills.read("pdf"), {
      name: "pdf",
      path: "SKILL.md",
      text: "Do it.",
      files: ["references/more.md"],
      compatibility: "Requires qpdf",
      disallowedTools: ["shell", "process_tool", "web_fetch"],
      taint: ["skill pdf of the workspace"],
    });
    assert.equal((await skills.read("pdf", "./references/more.md")).text, "More");
    assert.deepEqual((await skills.read("own")).taint, []);
    for (const path of ["../own/SKILL.md", "/etc/passwd", "references", ".."]) {
      await assert.rejects(skills.read("pdf", path), { code: "skill_file" }, path);
    }
    await assert.rejects(skills.read("own", "binary.bin"), { code: "skill_file" });
    await assert.rejects(skills.read("none"), { code: "skill_not_found", message: /the skills are own, pdf$/ });
  }, {
    files: {
      "workspace/.agents/skills/pdf/SKILL.md": skillText("pdf", {
        more: ["compatibility: Requires qpdf", "disallowed-tools: Bash(rm:*) web_fetch"],
      }),
      "workspace/.agents/skills/pdf/references/more.md": "More",
      "data/skills/own/SKILL.md": skillText("own"),
      "data/skills/own/binary.bin": "a\0b",
    },
  }));

test("a skill of the user that changes between the look and the read is read at the second try", () =>
  withSkills(async ({ skills, write }) => {
    await skills.list();
    write("home/.agents/skills/mine/SKILL.md", skillText("mine", { body: "Do it again." }));
    await assert.rejects(skills.read("mine"), { code: "skill_changed", message: /call skill_read again/ });
    assert.equal((await skills.read("mine")).text, "Do it again.");
  }, { files: { "home/.agents/skills/mine/SKILL.md": skillText("mine") } }));

test("links within a skill are not followed, and links to folders lead out of no workspace", () =>
  withSkills(async ({ skills, at }) => {
    symlinkSync("/etc/passwd", at("data/skills/own/secret.md"));
    symlinkSync(at("outside/evil"), at("workspace/.agents/skills/evil"));
    symlinkSync(at("outside"), at("workspace/.claude"));
    const { skills: found, problems } = await skills.list();
    assert.deepEqual(found.map(({ name }) => name), ["own"]);
    assert.match(found[0]?.warnings[0]?.reason ?? "", /"secret\.md" is a link/);
    assert.match(problems.join("\n"), /\.agents\/skills\/evil: the folder leads out of the workspace/);
    assert.match(problems.join("\n"), /\.claude\/skills: the folder leads out of the workspace/);
    await assert.rejects(skills.read("own", "secret.md"), { code: "skill_file" });
  }, {
    files: {
      "data/skills/own/SKILL.md": skillText("own"),
      "outside/evil/SKILL.md": skillText("evil"),
      "outside/skills/evil/SKILL.md": skillText("evil"),
      "workspace/.agents/skills/.keep": "",
    },
  }));

test("too many files, too many bytes and too deep folders are refused, with the folder", () =>
  withSkills(async ({ skills, at, write }) => {
    for (let count = 0; count <= 500; count++) write(`data/skills/many/${count}.md`, "");
    write(`data/skills/deep/${"a/".repeat(20)}x.md`, "");
    write("data/skills/large/x.bin", "");
    const huge = new Uint8Array(17_000_000);
    for (const name of ["a", "b"]) writeFileSync(at(`data/skills/large/${name}`), huge);
    write("data/skills/long/SKILL.md", skillText("long", { body: "x".repeat(300_000) }));
    const { skills: found, problems } = await skills.list();
    assert.deepEqual(found.map(({ name, state }) => `${name} ${state}`), ["long unusable"]);
    for (
      const [name, reason] of [["many", /500 files/], ["deep", /16 folders/], ["large", /33554432 bytes/]] as const
    ) {
      assert.ok(
        problems.some((problem) => problem.includes(`/${name}: `) && reason.test(problem)),
        problems.join("\n"),
      );
    }
  }, {
    files: {
      "data/skills/many/SKILL.md": skillText("many"),
      "data/skills/deep/SKILL.md": skillText("deep"),
      "data/skills/large/SKILL.md": skillText("large"),
    },
  }));

test("the files of all skills of a folder are bounded together", () =>
  withSkills(async ({ skills, write }) => {
    for (let skill = 0; skill < 5; skill++) {
      write(`workspace/.agents/skills/s${skill}/SKILL.md`, skillText(`s${skill}`));
      for (let file = 0; file < 450; file++) write(`workspace/.agents/skills/s${skill}/${file}`, "");
    }
    const { skills: found, problems } = await skills.list();
    assert.deepEqual(found.map(({ name }) => name), ["s0", "s1", "s2", "s3"]);
    assert.match(problems.join(), /s4: the skills before it have most of the 2000 files/);
  }));

test("a clone's .git is no part of a skill", () =>
  withSkills(async ({ skills }) => {
    const found = await find(skills, "mine");
    assert.deepEqual(found?.files.map(({ path }) => path), ["SKILL.md"]);
  }, {
    files: {
      "home/.claude/skills/mine/SKILL.md": skillText("mine"),
      "home/.claude/skills/mine/.git/config": "[core]",
    },
  }));

test("a skill that only a person calls for is hidden from the model, and can be read by its name", () =>
  withSkills(async ({ skills }) => {
    assert.deepEqual(await skills.offer(), { prompt: "", isAny: true });
    assert.equal((await skills.read("deploy")).text, "Do it.");
  }, {
    files: { "data/skills/deploy/SKILL.md": skillText("deploy", { more: ["disable-model-invocation: true"] }) },
  }));

test("a start reads no file of a skill that is as it was", () =>
  withSkills(async ({ skills, open, at, store }) => {
    await skills.list();
    assert.equal(await store.count("documents"), 1, "the index has an entry");
    const again = await open();
    try {
      assert.deepEqual(await states(again), ["own on own"]);
      assert.deepEqual((await again.list()).skills, (await skills.list()).skills);
    } finally {
      await again.close();
    }
    writeFileSync(at("data/skills/own/SKILL.md"), skillText("own", { description: "Another" }));
    assert.equal((await find(skills, "own"))?.description, "Another");
  }, { files: { "data/skills/own/SKILL.md": skillText("own") } }));

const FILES = [{ path: "SKILL.md", bytes: new TextEncoder().encode(skillText("new")), executable: false }];
const SOURCE = { kind: "folder", bytes: writeTar(FILES), from: "/somewhere/new" } as const;
const NEW = { name: "new", by: BY, signal: new AbortController().signal };

test("an installed skill is on with the content that was installed, and its record says where it came from", () =>
  withSkills(async ({ skills, audit, write, at }) => {
    const info = await skills.install(SOURCE, NEW);
    assert.deepEqual([info.state, info.source, info.installed?.from], ["on", "own", "/somewhere/new"]);
    assert.deepEqual(audit.events.map((event) => event.type === "skill" && [event.action, event.name, event.digest]), [
      ["installed", "new", info.digest],
    ]);
    write("data/skills/new/SKILL.md", skillText("new", { body: "Changed by somebody." }));
    assert.deepEqual(await states(skills), ["new changed own"]);
    await trust(skills, "new");
    assert.deepEqual(await states(skills), ["new on own"]);
    await skills.install(SOURCE, NEW);
    rmSync(at("data/skills/new"), { recursive: true });
    assert.match(
      (await skills.list()).problems.join(),
      /"new" was installed from \/somewhere\/new and its files are gone/,
    );
    await skills.remove("new", { by: BY });
    assert.equal(existsSync(at("data/skills/new")), false);
    assert.deepEqual(await states(skills), []);
    await assert.rejects(skills.remove("new", { by: BY }), { code: "skill_not_found" });
  }));

test("a skill of another folder is not removed", () =>
  withSkills(async ({ skills, at }) => {
    await assert.rejects(skills.remove("mine", { by: BY }), { code: "skill_conflict", message: /delete that folder/ });
    assert.ok(existsSync(at("home/.agents/skills/mine/SKILL.md")));
  }, { files: { "home/.agents/skills/mine/SKILL.md": skillText("mine") } }));

test("a crash in the middle of an installation leaves the old skill or the new one", () =>
  withSkills(async ({ open, at }) => {
    const skills = await open();
    try {
      assert.deepEqual(await states(skills), ["pdf on own"]);
      assert.equal(existsSync(at("data/skills/.new-1")), false);
    } finally {
      await skills.close();
    }
  }, {
    files: {
      "data/skills/.old-pdf/SKILL.md": skillText("pdf"),
      "data/skills/.new-1/SKILL.md": skillText("pdf", { body: "half" }),
    },
  }));

test("hard links to files of others are read as what they are: files of the skill", () =>
  withSkills(async ({ skills, at, write }) => {
    write("elsewhere.md", "one");
    linkSync(at("elsewhere.md"), at("workspace/.agents/skills/pdf/linked.md"));
    await trust(skills, "pdf");
    write("elsewhere.md", "two");
    await assert.rejects(skills.read("pdf", "linked.md"), { code: "skill_changed" });
  }, { files: { "workspace/.agents/skills/pdf/SKILL.md": skillText("pdf") } }));
