import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { ProviderRequest } from "../../lib/providers/provider.ts";
import { lastOutput, scriptedTasks, toolTurn } from "../support/scripted_tasks.ts";
import { jsonOf, type RunningGateway, until, withWorld, type World } from "../support/world.ts";

const PHOTO = readFileSync(new URL("../../fixtures/documents/images/photo.png", import.meta.url));
const BASE64 = PHOTO.toString("base64");
const LOOK = toolTurn("image_info", { path: "photo.png", show: true });

async function served(world: World, sees: boolean): Promise<RunningGateway> {
  const workspace = await world.workspace({ "photo.png": new Uint8Array(PHOTO) });
  const script = scriptedTasks({ "Look": [LOOK, "Seen"], "And now?": [lastOutput] });
  return await world.gateway({ script, sees, workspace });
}

async function say(gateway: RunningGateway, message: string) {
  const body = { message, conversation_id: "pictures", durable: true };
  const { id } = await jsonOf(gateway.call("/v1/runs", { body }));
  await until(async () => (await jsonOf(gateway.call(`/v1/runs/${id}`))).status === "completed");
  return id as string;
}

/** Pictures that a request carries, as base64. */
function carried(request: ProviderRequest | undefined): readonly string[] {
  return [...request?.pictures?.values() ?? []];
}

test("a model that sees gets the picture, also in later turns; events and records hold words about it", () =>
  withWorld(async (world) => {
    const gateway = await served(world, true);
    const id = await say(gateway, "Look");
    await say(gateway, "And now?");
    assert.deepEqual(gateway.provider.requests.map(carried), [[], [BASE64], [BASE64]]);

    const events = await (await gateway.call(`/v1/runs/${id}/events`)).text();
    const { sha256 } = /"pictures":\[\{"sha256":"(?<sha256>\w{64})","media_type":"image\/png"/.exec(events)?.groups ??
      {};
    assert.ok(sha256, "the event names the picture");
    const messages = await (await gateway.call("/v1/conversations/pictures")).text();
    for (const text of [events, messages]) assert.equal(text.includes(BASE64.slice(100, 200)), false);
    const { entries, data } = await jsonOf(gateway.call("/v1/audit?limit=100"));
    assert.match(JSON.stringify(entries ?? data), new RegExp(`"picture_digests":\\["${sha256}"\\]`));
  }));

test("a model that does not see is told so by the tool", () =>
  withWorld(async (world) => {
    const gateway = await served(world, false);
    await say(gateway, "Look");
    assert.deepEqual(gateway.provider.requests.map(carried), [[], []]);
    const last = gateway.provider.requests.at(-1)?.messages.at(-1);
    assert.match(
      String(last?.content),
      /\[The picture is not shown: this model is not given pictures \(\[provider\] vision\)\]/,
    );
  }));
