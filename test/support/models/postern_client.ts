import { applyPreset } from "../../../cli/presets.ts";
import { parseToml } from "../../../lib/config/toml.ts";
import type { ChatClient, ReceivedFrame, RunningGateway, World } from "../world.ts";
import type { Workspace } from "../workspace.ts";
import { type Attempt, type ModelDoor, type ModelTask, TASK_TOOLS } from "./model_tasks.ts";

const MAX_TURNS = 6;
const ENDS = ["done", "error", "approval_needed"];

/** Starts a gateway under the preset `code` with the tools of the tasks, whose model stands behind the door. */
export async function startTrialGateway(world: World, door: ModelDoor, workspace: Workspace): Promise<RunningGateway> {
  return await world.gateway({
    config: {
      ...parseToml(await applyPreset("", "code"), "postern.toml"),
      gateway: { rate_limit_max: 0 },
      cron: { enabled: true },
      agent: { tools: TASK_TOOLS, max_iterations: MAX_TURNS },
      provider: {
        kind: "openai_compatible",
        base_url: door.baseUrl,
        model: door.model,
        max_retries: 0,
        timeout_secs: 3_600,
      },
    },
    workspace,
  });
}

/** Has Postern's agent do a task in a conversation of its own, and says yes to each question. */
export async function attemptByPostern(gateway: RunningGateway, task: ModelTask): Promise<Attempt> {
  await gateway.services.memory.forgetAll({});
  for (const [key, value] of Object.entries(task.memory)) await gateway.services.memory.store({ key, value });
  const known = new Set((await listed(gateway, "/v1/schedules")).map(({ id }) => id));
  const chat = await gateway.chat();
  const frames: ReceivedFrame[] = [];
  chat.send({ type: "hello", events: true });
  chat.send(task.say);
  let last: ReceivedFrame | undefined;
  do {
    frames.push(...await chat.readUntil(({ type }) => ENDS.includes(type)));
    last = frames.at(-1);
    if (last?.type === "approval_needed") chat.send({ type: "approve", approval_id: last["approval_id"] });
  } while (last?.type === "approval_needed");
  if (last?.["finish_reason"] !== "stop") await goOn(chat);
  await chat.leave();
  const lastCall = frames.findLastIndex(({ type }) => type === "tool_end");
  const reply = frames.slice(lastCall + 1).filter(({ type }) => type === "text_delta").map(({ delta }) => delta);
  const schedules = (await listed(gateway, "/v1/schedules")).filter(({ id }) => !known.has(id));
  return {
    reply: reply.join(""),
    calls: frames.filter(({ type }) => type === "tool_end").map(({ tool, output }) => ({
      name: String(tool),
      output: String(output),
    })),
    end: last?.type === "error" ? String(last["code"]) : String(last?.["finish_reason"] ?? "done"),
    memory: (await listed(gateway, "/v1/memory")).map((record) => JSON.stringify(record)),
    schedules: schedules.map((record) => JSON.stringify(record)),
    transcript: frames,
  };
}

/** Says one more thing: whatever the model did, its conversation goes on. @throws {Error} the run ends with an error */
async function goOn(chat: ChatClient): Promise<void> {
  chat.send("Thanks");
  const end = (await chat.readUntil(({ type }) => ENDS.includes(type))).at(-1);
  // A model that repeats itself does so again
  if (end?.type === "error" && end["code"] !== "loop_detected") {
    throw new Error(`The conversation cannot go on: ${JSON.stringify(end)}`);
  }
}

async function listed(gateway: RunningGateway, path: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const reply = await gateway.call(path);
  return (await reply.json() as { readonly data: readonly Readonly<Record<string, unknown>>[] }).data;
}
