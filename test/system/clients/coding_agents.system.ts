import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../../support/world.ts";
import { codingAgents, installClients, modelOf, MODES, runClient, startClient, working } from "./run_clients.ts";

const { folder, skip } = await installClients();
const AGENTS = codingAgents(folder);

const entries = (path: string) => readdirSync(path).filter((entry) => !entry.startsWith("."));

describe("coding agents do their work through the gateway, unchanged", { skip }, () => {
  for (const [name, { tool, prepare, missing = false, isSlow = false }] of Object.entries(AGENTS)) {
    for (const mode of MODES) {
      test(
        `${name}: three rounds with a tool, and a further task: ${mode}`,
        { skip: missing },
        () =>
          withWorld((world) =>
            withTemporaryFolder(async (home) => {
              const gateway = await world.gateway({ script: working(...tool) });
              const call = prepare(gateway, { model: modelOf(mode), home });
              // A further task in the conversation sends what the first one left
              const calls = [call("Write a file"), ...(isSlow ? [] : [call("Go on", { goesOn: true })])];
              for (const one of calls) assert.match(await runClient(one), /All done/);
              const { cwd = "" } = calls[0] ?? {};
              assert.equal(readFileSync(join(cwd, "one.txt"), "utf8"), "one\n".repeat(calls.length));
              assert.deepEqual(entries(cwd), ["one.txt"]);
              assert.deepEqual(gateway.log.filter(({ level }) => level === "error"), []);
            })
          ),
      );
    }
  }
});

const WRITE = { path: "notes.txt", content: "new\n", overwrite: true };
const CONFIG = { security: { write_file: { enabled: true } }, gateway: { rate_limit_max: 0 } };
const FILES = { "notes.txt": "old\n" };
const notes = ({ workspace }: RunningGateway) => readFileSync(workspace.path("notes.txt"), "utf8");
const resultsOf = ({ messages }: ProviderRequest) =>
  messages.filter(({ role }) => role === "tool").map(({ content }) => JSON.stringify(content));

/** Returns the name by which a client offers a tool of Postern over MCP, with the names of the client's own form around it. */
const overMcp = ({ tools }: ProviderRequest, tool: string) =>
  tools.find(({ name }) => name !== tool && name.endsWith(tool))?.name;

const PAIRS = Object.entries({ codex: AGENTS.codex, "claude code": AGENTS["claude code"] });

describe("coding agents go on where a person decides, or stops them", { skip }, () => {
  for (const [name, { tool, prepare }] of PAIRS) {
    for (const mode of MODES) {
      test(`${name}: a call over MCP waits for a person's answer, and the work goes on: ${mode}`, () =>
        withWorld((world) =>
          withTemporaryFolder(async (home) => {
            const answered = Promise.withResolvers<void>();
            const gateway = await world.gateway({
              config: CONFIG,
              files: FILES,
              script(request) {
                const write = overMcp(request, "write_file");
                // Claude Code connects beside its first request, and has a tool to wait for that
                const waiting = request.tools.find((one) => one.name === "WaitForMcpServers");
                if (write === undefined) {
                  return waiting === undefined ? "A title" : { toolCalls: [{ name: waiting.name }] };
                }
                const call = { toolCalls: [{ name: write, arguments: WRITE }] };
                const results = resultsOf(request);
                if (results.some((text) => text.includes("dry_run=false"))) return "All done";
                if (!results.some((text) => text.includes("then repeat exactly this call"))) return call;
                return { reasoning: "I wait for the answer", holdUntil: answered.promise, ...call };
              },
            });
            const call = prepare(gateway, { model: modelOf(mode), home });
            const client = startClient(call("Change the notes"));
            const closed = once(client.child, "close");
            try {
              let id = "";
              await until(async () => {
                const { data } = await jsonOf(gateway.call("/v1/approvals?status=pending"));
                return (id = data[0]?.id ?? "") !== "" && gateway.provider.active > 0;
              }, client.output);
              assert.equal(notes(gateway), "old\n");
              await gateway.call(`/v1/approvals/${id}`, { body: { decision: "approve" } });
            } finally {
              answered.resolve();
            }
            assert.deepEqual(await closed, [0, null], client.output());
            assert.match(client.output(), /All done/);
            assert.equal(notes(gateway), "new\n");
          })
        ));
    }

    test(`${name}: the agent's own call that nobody can be asked about is denied, and the work goes on`, () =>
      withWorld((world) =>
        withTemporaryFolder(async (home) => {
          const gateway = await world.gateway({
            config: CONFIG,
            files: FILES,
            script(request) {
              if (!request.tools.some((one) => one.name === tool[0])) return "A title";
              const results = resultsOf(request);
              if (results.length === 0) return { toolCalls: [{ name: "write_file", arguments: WRITE }] };
              assert.match(results[0] ?? "", /nobody_could_answer|auto_approve/);
              return "All done";
            },
          });
          const call = prepare(gateway, { model: modelOf("agent"), home });
          assert.match(await runClient(call("Change the notes")), /All done/);
          assert.equal(notes(gateway), "old\n");
        })
      ));

    for (const mode of MODES) {
      test(`${name}: killed in the middle of a stream, it ends the gateway's work, and the next turn goes on: ${mode}`, () =>
        withWorld((world) =>
          withTemporaryFolder(async (home) => {
            const never = Promise.withResolvers<void>();
            let isCut = true;
            const play = working(...tool);
            const gateway = await world.gateway({
              script(request) {
                const turn = play(request);
                const isWork = turn.toolCalls !== undefined;
                return isWork && isCut ? { text: ["I begin", " and go on"], holdUntil: never.promise } : turn;
              },
            });
            const call = prepare(gateway, { model: modelOf(mode), home });
            const client = startClient(call("Write a file"));
            const closed = once(client.child, "close");
            await until(() => gateway.provider.active > 0, client.output);
            client.child.kill("SIGKILL");
            await closed;
            await until(() => gateway.provider.active === 0, "the gateway goes on without its reader");
            assert.ok(gateway.provider.aborted > 0);
            isCut = false;
            assert.match(await runClient(call("Go on", { goesOn: true })), /All done/);
            assert.deepEqual(gateway.log.filter(({ level }) => level === "error"), []);
          })
        ));
    }
  }

  // Codex asks for a compaction where the provider has this name, and condenses by a turn of its own elsewhere
  for (const provider of ["Postern", "OpenAI"]) {
    for (const mode of MODES) {
      test(`codex: a conversation past its limit is condensed, and goes on with the summary: ${provider}, ${mode}`, () =>
        withWorld((world) =>
          withTemporaryFolder(async (home) => {
            const full = { prompt_tokens: 90_000, completion_tokens: 5, total_tokens: 90_005 };
            const gateway = await world.gateway({
              script: [
                { toolCalls: [{ name: "exec_command", arguments: { cmd: "echo a-long-result" } }], usage: full },
                "This was done so far",
                "All done",
              ],
            });
            const call = AGENTS.codex.prepare(gateway, { model: modelOf(mode), home });
            const words = [
              "-c",
              "model_auto_compact_token_limit=50000",
              "-c",
              `model_providers.postern.name=${provider}`,
            ];
            assert.match(await runClient(call("Write a file", { words })), /All done/);
            const [, asked, after] = gateway.provider.requests.map((request) => JSON.stringify(request.messages));
            assert.match(asked ?? "", /a-long-result/);
            assert.match(after ?? "", /This was done so far/);
            assert.doesNotMatch(after ?? "", /a-long-result/);
          })
        ));
    }
  }

  test("claude code: /compact condenses a conversation, the next task goes on, and /context counts it", () =>
    withWorld((world) =>
      withTemporaryFolder(async (home) => {
        const { tool, prepare } = AGENTS["claude code"];
        const play = working(...tool);
        const gateway = await world.gateway({
          script(request) {
            const isAsked = /detailed summary/.test(JSON.stringify(request.messages.at(-1)?.content));
            return isAsked ? { text: "<summary>This was done so far</summary>" } : play(request);
          },
        });
        const call = prepare(gateway, { model: modelOf("plain"), home });
        assert.match(await runClient(call("Write a file")), /All done/);
        await runClient(call("/compact", { goesOn: true }));
        const before = gateway.provider.requests.length;
        assert.match(await runClient(call("Go on", { goesOn: true })), /All done/);
        const after = JSON.stringify(gateway.provider.requests[before]?.messages);
        assert.match(after, /This was done so far/);
        assert.doesNotMatch(after, /I run cat/);
        assert.match(await runClient(call("/context", { goesOn: true })), /Context Usage/);
        const counts = gateway.log.filter(({ fields }) => fields?.["route"] === "/v1/messages/count_tokens");
        assert.deepEqual([...new Set(counts.map(({ fields }) => fields?.["status"]))], [200]);
      })
    ));

  test("claude code: its own names of models are served by aliases, and it looks at the address first", () =>
    withWorld((world) =>
      withTemporaryFolder(async (home) => {
        const upstream = await world.upstream();
        const aliases = { "claude-*": "up/upstream-model", "claude-haiku-*": "up/upstream-small" };
        const gateway = await world.gateway({
          config: { provider: { kind: "offline", aliases }, providers: { up: { base_url: upstream.baseUrl } } },
        });
        for (const [model, served] of [["sonnet", "upstream-model"], ["haiku", "upstream-small"]] as const) {
          const { env, ...call } = AGENTS["claude code"].prepare(gateway, { model, home })("Say hello");
          const { ANTHROPIC_DEFAULT_HAIKU_MODEL: _, ...others } = env;
          assert.match(await runClient({ ...call, env: others }), /Hello from upstream/);
          assert.equal((upstream.turns.at(-1)?.json as { readonly model: string }).model, served);
        }
        const seen = gateway.log.map(({ fields }) =>
          `${fields?.["method"]} ${fields?.["route"]} ${fields?.["status"]}`
        );
        assert.ok(seen.includes("HEAD / 200"), seen.join());
      })
    ));
});
