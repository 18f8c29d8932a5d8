/** Files that a run wrote: listed with digests, and given while each still is that. Through the public door. */
import assert from "node:assert/strict";
import { hash } from "node:crypto";
import { linkSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { jsonOf, readRefusal, type RunningGateway, until, withWorld } from "../support/world.ts";

const CONFIG = {
  autonomy: { level: "full", allow_sensitive_file_writes: true },
  security: { write_file: { enabled: true } },
};
const SECRET = "sk-proj-0123456789abcdefghij";
const PATCH =
  "*** Begin Patch\n*** Add File: new.txt\n+n\n*** Update File: old.txt\n*** Move to: moved.txt\n@@\n-o\n+O\n" +
  "*** Delete File: gone.txt\n*** End Patch";

const write = (path: string, content: string, more = {}) => ({
  name: "write_file",
  arguments: { path, content, ...more },
});

/** Runs these calls in one turn. @returns the run's id */
async function run(gateway: RunningGateway): Promise<string> {
  const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Write" } }));
  await until(async () => (await jsonOf(gateway.call(`/v1/runs/${id}`))).status === "completed", "the run ends");
  return String(id);
}

const filesOf = async (gateway: RunningGateway, id: string, query = "") =>
  await jsonOf(gateway.call(`/v1/runs/${id}/files${query}`));

const digestOf = (text: string) => hash("sha256", text);

test("a run's files are listed by the bytes of each call, page by page, also after a restart", () =>
  withWorld(async (world) => {
    const options = {
      dataDir: join(await world.folder(), "data"),
      workspace: await world.workspace({ "old.txt": "o\n", "gone.txt": "g\n" }),
      config: CONFIG,
    };
    const calls = [
      write("a/plan.md", "one\n"),
      write("a/plan.md", "refused\n"),
      write("dry.md", "dry\n", { dry_run: true }),
      write("a/plan.md", "two, ü\n", { overwrite: true }),
      { name: "apply_patch", arguments: { patch: PATCH } },
      { name: "read_file", arguments: { path: "a/plan.md" } },
    ];
    let id = "";
    const seen = [
      ["a/plan.md", 4, digestOf("one\n"), "write_file"],
      ["a/plan.md", 8, digestOf("two, ü\n"), "write_file"],
      ["new.txt", 2, digestOf("n\n"), "apply_patch"],
      ["moved.txt", 2, digestOf("O\n"), "apply_patch"],
      ["old.txt", null, null, "apply_patch"],
      ["gone.txt", null, null, "apply_patch"],
    ];
    // deno-lint-ignore no-explicit-any -- the body is looked at by the assertions
    const rows = (data: any[]) => data.map(({ path, bytes, sha256, tool }) => [path, bytes, sha256, tool]);
    await withWorld(async (first) => {
      const gateway = await first.gateway({ ...options, script: [{ toolCalls: calls }, "Done"] });
      id = await run(gateway);
      assert.deepEqual(rows((await filesOf(gateway, id)).data), seen);
    });
    const gateway = await world.gateway({ ...options, script: ["-"] });
    const { data, has_more, last_id } = await filesOf(gateway, id);
    assert.deepEqual(rows(data), seen);
    assert.deepEqual([has_more, last_id, data[0].object], [false, data.at(-1).id, "run.file"]);
    const events = (await (await gateway.call(`/v1/runs/${id}/events?follow=0`)).text()).split("\n")
      .filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
    const ends = events.filter(({ type }) => type === "tool_end");
    assert.deepEqual(ends.map(({ files }) => files?.length), [1, undefined, undefined, 1, 4, undefined]);
    assert.deepEqual([data[0].call_id, data[0].written_at], [ends[0].call_id, ends[0].time]);
    const paged: unknown[] = [];
    for (let after = "0-0", more = true; more;) {
      const page = await filesOf(gateway, id, `?limit=1&after=${after}`);
      paged.push(...page.data);
      [after, more] = [page.last_id, page.has_more];
    }
    assert.deepEqual(paged, data);
    const content = (file: string) => gateway.call(`/v1/runs/${id}/files/${file}/content`);
    const given = await content(data[1].id);
    assert.equal(await given.text(), "two, ü\n");
    assert.equal(given.headers.get("content-disposition"), "attachment; filename*=UTF-8''plan.md");
    assert.equal(given.headers.get("content-security-policy"), "sandbox; default-src 'none'");
    for (
      const [file, status, why] of [
        [data[0].id, 409, /it was changed since the run wrote it/],
        [data[4].id, 404, /the call removed the file/],
        ["1-0", 404, /Cannot find this file of the run/],
        ["999999-0", 400, /have not come that far/],
        ["..%2f..", 400, /it is no id of a file/],
      ] as const
    ) {
      const refused = await readRefusal(await content(file));
      assert.equal(refused.status, status, file);
      assert.match(refused.message, why);
    }
    assert.equal((await gateway.call("/v1/runs/run_none/files")).status, 404);
  }));

test("no other bytes are given as a run's: not by a link, a hard link, a swap or a folder, nor what read_file may not read", () =>
  withWorld(async (world) => {
    const script = [
      {
        toolCalls: [
          write("swapped.txt", "mine\n"),
          write("linked.txt", "mine\n"),
          write("hard.txt", "mine\n"),
          write("folder/file.txt", "mine\n"),
          write("gone.txt", "mine\n"),
          write(".env", "A=1\n"),
          write("ruled.txt", "mine\n"),
          write("key.txt", `key = ${SECRET}\n`),
          write("fine.txt", "mine\n"),
        ],
      },
      "Done",
    ];
    const rules = [{ name: "ruled", tool: "read_file", path: "ruled.txt", then: "deny" }];
    const config = { ...CONFIG, autonomy: { ...CONFIG.autonomy, rules } };
    const gateway = await world.gateway({ script, config, environment: { OPENAI_API_KEY: SECRET } });
    const id = await run(gateway);
    const { data } = await filesOf(gateway, id);
    assert.equal(data.length, 9);
    const outside = join(await world.folder(), "secret.txt");
    // The same size, and even the same bytes outside: neither is the run's
    writeFileSync(outside, "mine\n");
    const at = (path: string) => gateway.workspace.path(path);
    writeFileSync(at("swapped.txt"), "your\n");
    for (const name of ["linked.txt", "gone.txt"]) rmSync(at(name));
    symlinkSync(outside, at("linked.txt"));
    linkSync(at("hard.txt"), at("second.txt"));
    renameSync(at("folder"), at("moved"));
    mkdirSync(at("folder/file.txt"), { recursive: true });
    const expected: Record<string, readonly [status: number, why: RegExp]> = {
      "swapped.txt": [409, /it was changed since/],
      "linked.txt": [409, /outside the allowed root|symbolic link/],
      "hard.txt": [409, /hard link/],
      "folder/file.txt": [409, /not a (regular )?file|folder/],
      "gone.txt": [404, /deleted or moved/],
      ".env": [409, /sensitive/],
      "ruled.txt": [409, /read_file may not read it now/],
      "key.txt": [409, /it holds a secret/],
    };
    for (const file of data) {
      const reply = await gateway.call(`/v1/runs/${id}/files/${file.id}/content`);
      const wanted = expected[file.path];
      if (wanted === undefined) {
        assert.deepEqual([file.path, await reply.text()], ["fine.txt", "mine\n"]);
        continue;
      }
      const { status, message } = await readRefusal(reply);
      assert.equal(status, wanted[0], `${file.path}: ${message}`);
      assert.match(message, wanted[1]);
    }
  }));
