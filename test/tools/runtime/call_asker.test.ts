import type { ClientAbility } from "../../../lib/base/records/tool_info.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import type { Elicitation } from "../../../lib/guard/elicitation.ts";
import type { AskableClient, ElicitationAnswer } from "../../../lib/tools/runtime/askable_client.ts";
import { type AskingCall, CallAsker } from "../../../lib/tools/runtime/call_asker.ts";
import { TimeLimit } from "../../../lib/tools/runtime/time_limit.ts";
import type { CallingModel } from "../../../lib/tools/runtime/tool_executor.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

const FORM: Elicitation = { message: "Who?", schema: { type: "object", properties: {}, required: [] }, url: null };
const ADDRESS: Elicitation = { message: "Open", schema: null, url: "https://example.com/" };
const ACCEPT: ElicitationAnswer = { action: "accept", content: {} };

interface Asked {
  readonly can?: readonly ClientAbility[];
  readonly client?: Partial<AskableClient>;
  /** false: no approval can be filed. Default true */
  readonly hasApprovals?: boolean;
  readonly sample?: CallingModel["sample"];
}

/** Makes the questions of a call with a time limit of one second. */
function bench({ can = [], client = {}, hasApprovals = true, sample }: Asked = {}) {
  const clock = createFakeClock();
  let isOver = false;
  let approvals = 0;
  const limit = new TimeLimit({ clock, ms: 1000, onOver: () => isOver = true });
  const approver = Object.assign(() => Promise.reject(new Error("no approval of a call")), {
    ...(hasApprovals ? { elicit: () => (approvals++, Promise.resolve(ACCEPT)) } : {}),
  });
  const request = {
    approver,
    ...(sample === undefined ? {} : { model: { sample } }),
    client: {
      asks: {
        can: new Set(can),
        elicit: () => Promise.resolve(ACCEPT),
        sample: () => Promise.resolve({ text: "theirs", model: "m" }),
        roots: () => Promise.resolve([]),
        ...client,
      },
    },
  };
  // The parts that questions do not reach are left out
  const call = {
    ...{ tool: { name: "t" }, prepared: { input: {}, digest: "d", access: "read" }, request, limit },
    signal: new AbortController().signal,
  } as unknown as AskingCall;
  const asker = new CallAsker({ redact: (text) => text, workspaceRoot: "/w" }, call);
  return { clock, asker, ...asker.parts(request.client.asks), limit, isOver: () => isOver, approvals: () => approvals };
}

const QUESTION = { signal: new AbortController().signal };

test("a question goes to the client for the kinds that it answers, and becomes an approval otherwise", async () => {
  const { elicit, approvals, asker } = bench({ can: ["form"] });
  assert.equal((await elicit?.(ADDRESS))?.action, "accept");
  assert.deepEqual([approvals(), asker.taint], [1, []], "a person's answer is no content from outside");
  assert.equal((await elicit?.(FORM))?.action, "accept");
  assert.deepEqual([approvals(), asker.taint], [1, ["MCP client"]]);
});

test("where neither the client nor an approval can answer, the reason is said", async () => {
  const { elicit } = bench({ can: ["form"], hasApprovals: false });
  assert.deepEqual(await elicit?.(ADDRESS), {
    action: "cancel",
    reason: "the client does not answer questions by address",
  });
  assert.equal(bench({ can: ["roots"], hasApprovals: false }).elicit, undefined);
});

test("the time limit stands still while a client is asked for anything", async () => {
  const slow = Promise.withResolvers<never>();
  for (
    const ask of [
      ({ elicit }: ReturnType<typeof bench>) => elicit?.(FORM),
      ({ client }: ReturnType<typeof bench>) => client?.sample({ messages: [], maxTokens: 1 }, QUESTION),
      ({ client }: ReturnType<typeof bench>) => client?.roots(QUESTION),
    ]
  ) {
    const never = () => slow.promise;
    const { clock, limit, isOver, ...rest } = bench({
      can: ["form", "sample", "roots"],
      client: { elicit: never, sample: never, roots: never },
    });
    void ask({ clock, limit, isOver, ...rest });
    await clock.advance(60_000);
    assert.equal(isOver(), false);
    limit.clear();
  }
});

test("a client that refuses has brought its words into the call", async () => {
  const { client, asker } = bench({
    can: ["sample"],
    client: { sample: () => Promise.reject(new ToolError("client_refused", "their words")) },
  });
  await assert.rejects(client?.sample({ messages: [], maxTokens: 1 }, QUESTION) ?? Promise.resolve());
  assert.deepEqual(asker.taint, ["MCP client"]);
});

test("a server asks the run's model; where the call has no run, the model of the client that called", async () => {
  const request = { messages: [], maxTokens: 1 };
  const { signal } = QUESTION;
  const own = bench({ can: ["sample"], sample: () => Promise.resolve({ text: "ours", model: "o" }) });
  assert.equal((await own.sample?.(request, signal))?.text, "ours");
  assert.equal((await bench({ can: ["sample"] }).sample?.(request, signal))?.text, "theirs");
  assert.equal(bench({ can: ["form"] }).sample, undefined);
  assert.equal(bench().sample, undefined);
});

test("questions of all kinds count together, 16 for one call", async () => {
  const { elicit, client } = bench({ can: ["form", "sample", "roots"] });
  for (let count = 0; count < 8; count++) {
    assert.equal((await elicit?.(FORM))?.action, "accept");
    await client?.roots(QUESTION);
  }
  assert.equal((await elicit?.(FORM))?.action, "cancel");
  await assert.rejects(client?.roots(QUESTION) ?? Promise.resolve(), { code: "too_many_questions" });
  await assert.rejects(client?.sample({ messages: [], maxTokens: 1 }, QUESTION) ?? Promise.resolve());
});

test("a question that still waits when its call has ended is taken back", async () => {
  let taken: AbortSignal | undefined;
  const { elicit, asker } = bench({
    can: ["form"],
    client: {
      elicit: (_elicitation, { signal }) =>
        new Promise((_resolve, reject) => {
          taken = signal;
          signal.addEventListener("abort", () => reject(new CancelError("cancelled")));
        }),
    },
  });
  const question = elicit?.(FORM);
  asker.end();
  await assert.rejects(question ?? Promise.resolve(), CancelError);
  assert.equal(taken?.aborted, true);
});
