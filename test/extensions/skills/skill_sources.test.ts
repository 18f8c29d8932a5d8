import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { gzipSync } from "node:zlib";
import { writeTar } from "../../../lib/extensions/plugins/tar.ts";
import { ExtensionError } from "../../../lib/extensions/extension_error.ts";
import { skillFromArchive } from "../../../lib/extensions/skills/skill_sources.ts";
import { foreignTar, gzipped, paxRecord, type TarEntry, zipOf } from "./pack_files.ts";
import { skillText } from "./skill_bench.ts";

const MAIN = skillText("pdf");
const bytesOf = (text: string) => new TextEncoder().encode(text);
const pathsIn = async (bytes: Uint8Array, name = "pdf") =>
  (await skillFromArchive(bytes, name)).map(({ path }) => path).sort();

suite("a skill is taken from", () => {
  const tar = writeTar(
    ["pdf/SKILL.md", "pdf/scripts/run.sh"].map((path) => ({ path, bytes: bytesOf(MAIN), executable: false })),
  );
  const entries: readonly TarEntry[] = [
    { name: "pax_global_header", type: "g", text: paxRecord("comment", "0".repeat(40)) },
    { name: "./", type: "5" },
    { name: "x", type: "x", text: paxRecord("mtime", "1.5") + paxRecord("path", "./pdf/SKILL.md") },
    { name: "cut", text: MAIN },
    { name: "././@LongLink", type: "L", text: "./pdf/scripts/run.sh\0" },
    { name: "cut", text: "ls" },
  ];
  const archives: readonly (readonly [string, Uint8Array])[] = [
    ["a tar", tar],
    ["a tar.gz", gzipped(tar)],
    ["a tar of another program, with long names, times and modes", foreignTar(entries)],
    [
      "a zip",
      zipOf([{ name: "pdf/", text: "" }, { name: "pdf/SKILL.md", text: MAIN }, {
        name: "pdf/scripts/run.sh",
        text: "",
      }]),
    ],
    ["a zip without a folder", zipOf([{ name: "SKILL.md", text: MAIN }, { name: "scripts/run.sh", text: "" }])],
    [
      "a zip with skill.md",
      zipOf([{ name: "pdf/skill.md", text: MAIN }, { name: "pdf/scripts/run.sh", text: "" }]),
    ],
    [
      "a repository with other skills, by its name",
      zipOf([
        { name: "repo-main/skills/pdf/SKILL.md", text: MAIN },
        { name: "repo-main/skills/pdf/scripts/run.sh", text: "" },
        { name: "repo-main/skills/docx/SKILL.md", text: skillText("docx") },
        { name: "repo-main/.git/config", text: "" },
      ]),
    ],
  ];
  for (const [what, bytes] of archives) {
    test(what, async () => assert.deepEqual(await pathsIn(bytes), ["SKILL.md", "scripts/run.sh"]));
  }

  test("an archive with the right of programs to start", async () => {
    const zip = zipOf([{ name: "SKILL.md", text: MAIN }, { name: "run.sh", text: "ls", mode: 0o100755 }]);
    const files = await skillFromArchive(zip, "pdf");
    assert.deepEqual(files.map(({ path, executable }) => [path, executable]), [["SKILL.md", false], ["run.sh", true]]);
  });
});

suite("an archive is refused that has", () => {
  const main = { name: "pdf/SKILL.md", text: MAIN };
  const many = Array.from({ length: 501 }, (_, at) => ({ name: `pdf/${at}.md`, text: "" }));
  const large = "0".repeat(20_000_000);
  const refused: readonly (readonly [string, Uint8Array, RegExp])[] = [
    ["a link in a tar", foreignTar([main, { name: "pdf/x", type: "2", target: "/etc/passwd" }]), /a symbolic link/],
    ["a hard link in a tar", foreignTar([main, { name: "pdf/x", type: "1", target: "pdf/SKILL.md" }]), /a hard link/],
    ["a device", foreignTar([main, { name: "pdf/x", type: "3" }]), /a character device/],
    ["a link in a zip", zipOf([main, { name: "pdf/x", text: "/etc/passwd", mode: 0o120777 }]), /is a link/],
    ["a name that leads out", zipOf([main, { name: "../../x", text: "" }]), /leads out/],
    ["an absolute name", zipOf([main, { name: "/etc/cron.d/x", text: "" }]), /leads out/],
    ["a name of Windows that leads out", zipOf([main, { name: "pdf\\..\\..\\x", text: "" }]), /leads out/],
    [
      "a name that leads out in an extended header",
      foreignTar([main, { name: "a", type: "x", text: paxRecord("path", "../x") }, { name: "a" }]),
      /leads out/,
    ],
    ["a name twice", zipOf([main, { name: "pdf/SKILL.md", text: "" }]), /in it twice/],
    [
      "names that are one on some systems",
      zipOf([main, { name: "pdf/a.md", text: "" }, { name: "pdf/A.md", text: "" }]),
      /twice/,
    ],
    [
      "names that are one in another normal form",
      zipOf([main, { name: "pdf/\u00e4.md", text: "" }, { name: "pdf/a\u0308.md", text: "" }]),
      /normal form|same name/,
    ],
    ["a name that nobody sees", zipOf([main, { name: "pdf/a\u202eb.md", text: "" }]), /cannot see/],
    ["the name of a device", zipOf([main, { name: "pdf/con.md", text: "" }]), /device on Windows/],
    ["too many files", zipOf([main, ...many]), /over 500 files/],
    ["too many bytes", zipOf([main, { name: "pdf/a", text: large }, { name: "pdf/b", text: large }]), /over 33554432/],
    [
      "more bytes than it says",
      zipOf([main, { name: "pdf/a", text: large, says: 10 }]),
      /larger than its archive says/,
    ],
    ["a bomb", gzipSync(new Uint8Array(140_000_000)), /over 134217728 bytes/],
    [
      "a header for all files that names one",
      foreignTar([{ name: "g", type: "g", text: paxRecord("path", "x") }]),
      /names one/,
    ],
    ["a broken extended header", foreignTar([{ name: "x", type: "x", text: "99 path=x\n" }]), /cannot be read/],
    ["a broken gzip", new Uint8Array([0x1f, 0x8b, 1, 2, 3]), /cannot be unpacked/],
    ["a broken zip", new Uint8Array([0x50, 0x4b, 1, 2]), /no ZIP archive/],
    ["nothing", new Uint8Array(), /no tar/],
    ["no skill", zipOf([{ name: "README.md", text: "" }]), /it has no SKILL\.md/],
    [
      "several skills, none of the name",
      zipOf(["a", "b"].map((name) => ({ name: `${name}/SKILL.md`, text: skillText(name) }))),
      /several skills; name one of them: a, b/,
    ],
    ["a skill of another name", zipOf([{ name: "SKILL.md", text: skillText("other") }]), /it is called "other"/],
    [
      "a skill that breaks the format",
      zipOf([{ name: "SKILL.md", text: "---\nname: pdf\n---\n" }]),
      /SKILL\.md:2: "description": it is missing/,
    ],
    ["an alias", zipOf([{ name: "SKILL.md", text: "---\nname: &a pdf\ndescription: *a\n---\n" }]), /aliases/],
  ];
  for (const [what, bytes, reason] of refused) {
    test(what, async () => {
      await assert.rejects(skillFromArchive(bytes, "pdf"), (error: Error) => {
        assert.match(error instanceof ExtensionError ? error.code : "", /^skill_/);
        assert.match(error.message, reason);
        return true;
      });
    });
  }
});

test("no name leads out of the folder of skills", async () => {
  for (const name of ["", ".", "..", "../x", "a/b", "/x", ".new-1", "A", "a\\b", "a--b", "-a", "x".repeat(65)]) {
    await assert.rejects(skillFromArchive(zipOf([]), name), { code: "skill_invalid", message: /cannot be used/ }, name);
  }
});
