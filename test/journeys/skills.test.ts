import assert from "node:assert/strict";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { suite, test } from "node:test";
import { writeTar } from "../../lib/extensions/plugins/tar.ts";
import { git, gitTest, initRepository } from "../support/git_fixture.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";
import { withGitServer } from "../tools/git/git_server.ts";

const SAMPLE = join(PROJECT_ROOT, "fixtures/skills/release-notes");
const NAME = "release-notes";
const MAIN = readFileSync(join(SAMPLE, "SKILL.md"), "utf8");
const FILES = ["SKILL.md", "references/template.md", "scripts/authors.sh"].map((path) => ({
  path: `${NAME}/${path}`,
  bytes: new Uint8Array(readFileSync(join(SAMPLE, path))),
  executable: path.endsWith(".sh"),
}));

gitTest(
  "a skill is installed from a git repository, which cannot do anything else",
  () =>
    withGitServer(async (server) => {
      await withWorld(async (world) => {
        const gateway = await world.gateway({ config: { url_access: { allow_loopback: true } } });
        const source = await world.folder();
        initRepository(source);
        cpSync(SAMPLE, join(source, "skills", NAME), { recursive: true });
        mkdirSync(join(source, "skills/other"), { recursive: true });
        writeFileSync(join(source, "skills/other/SKILL.md"), "broken");
        writeFileSync(join(source, ".gitattributes"), "* filter=evil\n");
        git(source, "add", "-A", "-f");
        git(source, "commit", "-q", "-m", "skills");
        server.push(source);
        const install = (url: string, name = NAME) =>
          gateway.call("/v1/skill-installations", { method: "POST", body: { name, url } });
        const skill = await jsonOf(await install(server.url));
        assert.deepEqual([skill.state, skill.installed.kind, skill.installed.from], ["on", "git", server.url]);
        assert.equal(skill.installed.commit, git(source, "rev-parse", "HEAD").trim());
        assert.deepEqual(skill.files.map(({ path }: { path: string }) => path), [
          "SKILL.md",
          "references/template.md",
          "scripts/authors.sh",
        ]);
        assert.equal((await install(`${server.url}#main`)).status, 201);
        const refused: readonly (readonly [string, number, RegExp])[] = [
          [`${server.url}#none`, 502, /none/],
          [`${server.url}#--upload-pack=touch /tmp/x`, 400, /no name of a branch/],
          [`${server.url}#-x`, 400, /no name of a branch/],
          ["--upload-pack=touch", 400, /only plain http/],
          ["ext::sh -c touch%20/tmp/x", 400, /only plain http/],
          ["ssh://git@127.0.0.1/x", 400, /over ssh .*https address .*git clone/],
          ["git@127.0.0.1:x.git#main", 400, /over ssh .*https address .*git clone/],
          ["git+ssh://git@127.0.0.1/x", 400, /over ssh .*https address .*git clone/],
          ["file:///etc", 400, /only plain http/],
          [server.url.replace("//", "//user:secret@"), 400, /^(?!.*secret).*only plain http/],
          ["http://169.254.169.254/x.git", 409, /169\.254/],
          [`${server.url}?--upload-pack=x`, 400, /only plain http/],
        ];
        for (const [url, status, reason] of refused) {
          const reply = await install(url);
          const { error } = await jsonOf(reply);
          assert.deepEqual([reply.status, reason.test(error.message)], [status, true], `${url}: ${error.message}`);
        }
        assert.equal((await install(server.url, "other")).status, 400);
        const again = await jsonOf(await gateway.call("/v1/skills"));
        assert.deepEqual(again.data.map(({ name }: { name: string }) => name), [NAME]);
      });
    }),
);

suite("a run with an installed skill", () => {
  test("reads it and its files, and a change of a workspace's skill turns that off while the gateway runs", () =>
    withWorld(async (world) => {
      const call = (input: object) => ({ toolCalls: [{ name: "skill_read", arguments: { ...input } }] });
      const script = [call({ name: NAME }), call({ name: NAME, path: "references/template.md" }), "Done"];
      const gateway = await world.gateway({ script, files: { [`.agents/skills/${NAME}/SKILL.md`]: MAIN } });
      const state = async () => (await jsonOf(await gateway.call(`/v1/skills/${NAME}`)));
      const { digest } = await state();
      const trust = (body: object) => gateway.call(`/v1/skills/${NAME}/trust`, { method: "POST", body });
      assert.equal((await trust({ digest: "0".repeat(64) })).status, 409);
      assert.equal((await jsonOf(await trust({ digest, before: null }))).state, "on");
      const log = gateway.log.length;
      gateway.workspace.write(`.agents/skills/${NAME}/SKILL.md`, `${MAIN}More\n`);
      await until(() => gateway.log.slice(log).some(({ message }) => /has changed and is off/.test(message)));
      assert.equal((await state()).state, "changed");
      assert.match((await state()).difference, /\n\+More/);
      const archive = writeTar(FILES);
      const installed = await gateway.call(`/v1/skills?name=${NAME}&from=here`, {
        method: "POST",
        body: archive,
        headers: { "content-type": "application/octet-stream" },
      });
      assert.equal(installed.status, 201, await installed.clone().text());
      assert.deepEqual((await state()).hides, [`.agents/skills/${NAME}`]);
      assert.equal((await jsonOf(await gateway.call("/api/chat", { body: { message: "Notes" } }))).message, "Done");
      const outputs = gateway.provider.requests.map(({ messages }) => JSON.stringify(messages.at(-1)));
      assert.match(outputs[1] ?? "", /For the rest of this run these tools are off: http_request, web_fetch/);
      assert.match(outputs[2] ?? "", /# Version X\.Y\.Z/);
      const { data: [run] } = await jsonOf(await gateway.call("/v1/runs"));
      assert.equal(run.taint, undefined, "an installed skill is the operator's");
    }));
});
