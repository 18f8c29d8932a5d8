import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { toDelta, toSse, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import { appliedText } from "./applied_text.ts";
import type { LinkFront } from "./link_front.ts";
import { FollowedStream } from "./linked_gateways.ts";
import { jsonOf, type KillableGateway, readSse, until, type World } from "./world.ts";

/** A model that says a first word at once, and the rest when it is told to. */
export interface HeldModel {
  readonly baseUrl: string;
  /** Number of answers that have begun so far. */
  readonly begun: () => number;
  /** Lets the answers go on that have begun. */
  goOn(): void;
  /** Words of the next answers: the first at once, the others later. */
  words: readonly string[];
}

/** Starts a model that a test holds. */
export async function startHeldModel(world: World): Promise<HeldModel> {
  let begun = 0;
  let waiting: (() => void)[] = [];
  const model = { words: ["one ", "two"] as readonly string[] };
  const { origin } = await world.server((_seen, response: ServerResponse) => {
    const [first = "", ...rest] = model.words;
    begun++;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(toSse(toDelta({ content: first })));
    waiting.push(() => {
      const chunks = [...rest.map((content) => toDelta({ content })), toDelta({}, "stop"), USAGE_CHUNK];
      response.end(`${chunks.map(toSse).join("")}data: [DONE]\n\n`);
    });
  });
  return Object.assign(model, {
    baseUrl: `${origin}/v1`,
    begun: () => begun,
    goOn() {
      for (const go of waiting) go();
      waiting = [];
    },
  });
}

/** Variables of a gateway that has links. */
export function linkEnvironment(records: string, more: Readonly<Record<string, string>> = {}): Record<string, string> {
  return {
    POSTERN__STORAGE__DRIVER: "postgres",
    POSTERN__STORAGE__URL_ENV: "RECORDS",
    POSTERN__CLUSTER__LEASE_SECS: "1",
    POSTERN__CLUSTER__TOKEN_ENV: "LINK_TOKEN",
    LINK_TOKEN: "token-of-the-links-0123456789abcdef",
    // A run without tools needs no workspace, and goes on at any gateway
    POSTERN__AGENT__TOOLS: "[]",
    RECORDS: records,
    ...more,
  };
}

/** Starts a gateway behind a front, whose address the others get. */
export async function startBehind(
  world: World,
  front: LinkFront,
  { baseUrl, env }: { readonly baseUrl: string; readonly env: Readonly<Record<string, string>> },
): Promise<KillableGateway> {
  const gateway = await world.killableGateway({ baseUrl, env: { ...env, POSTERN__CLUSTER__ADVERTISE_URL: front.url } });
  front.forward(gateway.url);
  return gateway;
}

/** A run that two clients of another gateway follow: one over HTTP, one over the WebSocket. */
export interface FollowedRun {
  readonly id: string;
  readonly stream: FollowedStream;
  /** Resolves with the events that the WebSocket has had, once it has had the last one. */
  readonly frames: Promise<readonly AgentEvent[]>;
}

/** Starts a run, and returns its id. */
export async function startRun(gateway: KillableGateway): Promise<string> {
  return (await jsonOf(gateway.call("/v1/runs", { body: { message: "Hi" } }))).id;
}

/** Starts a run at a gateway, and follows it at another until that has shown the first word. */
export async function followElsewhere(
  { owner, other, word }: { readonly owner: KillableGateway; readonly other: KillableGateway; readonly word: string },
): Promise<FollowedRun> {
  const id = await startRun(owner);
  const stream = new FollowedStream(other.call(`/v1/runs/${id}/events`));
  stream.ended.catch(() => {});
  const client = await other.chat();
  client.send({ type: "hello", events: true });
  client.send({ type: "resume", run_id: id, after: 0 });
  const hasWord = ({ type, delta }: Readonly<Record<string, unknown>>) => type === "text_delta" && delta === word;
  const early = await client.readUntil(hasWord);
  await until(() => stream.events.includes(word), () => `the other gateway shows no "${word}": ${stream.text}`);
  assert.equal(stream.isEnded, false);
  const frames = client.readReply().then(async (late) => {
    await client.leave();
    return [...early, ...late].map(({ run_id: _, live: __, ...event }) => event as unknown as AgentEvent);
  });
  frames.catch(() => {});
  return { id, stream, frames };
}

/** Asserts that both clients have had what the journal has, and in sum what is stored. @returns the events */
export async function checkFollowed(
  { id, stream, frames }: FollowedRun,
  gateways: readonly KillableGateway[],
  { isWhole }: { readonly isWhole: boolean },
): Promise<readonly AgentEvent[]> {
  await stream.ended;
  const events = readSse(stream.text).data.map((data) => JSON.parse(data) as AgentEvent);
  assert.deepEqual(await frames, events);
  for (const gateway of gateways) {
    const { status, result } = await jsonOf(gateway.call(`/v1/runs/${id}`));
    assert.deepEqual([status, result], ["completed", appliedText(events)]);
    const text = await (await gateway.call(`/v1/runs/${id}/events`)).text();
    if (isWhole) assert.equal(text, stream.events, "the same bytes");
  }
  return events;
}
