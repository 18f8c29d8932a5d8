import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { OUTSIDE, type Workspace } from "../workspace.ts";
import type { World } from "../world.ts";
import { attemptBare } from "./bare_client.ts";
import { type Attempt, type ModelDoor, type ModelTask, TASK_KINDS, TASK_TOOLS } from "./model_tasks.ts";
import { attemptByPostern, startTrialGateway } from "./postern_client.ts";

/** Clients that are tried, the bare one for comparison. */
export const CLIENTS = ["postern", "bare loop"] as const;
/** Client that is tried. */
export type Client = (typeof CLIENTS)[number];

/** Why a task is not done, the first that holds. */
export const FAULTS = [
  "ended early",
  "call written as text",
  "no call",
  "call refused",
  "wrong result",
] as const;
/** Reason why a task is not done. */
export type Fault = (typeof FAULTS)[number];

/** A task after a client had it. */
export interface TrialResult {
  readonly client: Client;
  readonly task: ModelTask;
  readonly attempt: Attempt;
  /** Folder beside its workspace */
  readonly outside: string;
  /** Undefined: the task is done */
  readonly fault: Fault | undefined;
}

/** Options of a trial. */
export interface TrialOptions {
  readonly door: ModelDoor;
  readonly tasks: readonly ModelTask[];
  /** Tells before each task whether there is time for it. Default: always */
  readonly goesOn?: () => boolean;
  readonly onResult?: (result: TrialResult) => void;
}

/**
 * Has each client do each task, in a workspace of its own.
 * @throws {Error} something outside the workspace changed
 */
export async function tryModel(world: World, options: TrialOptions): Promise<readonly TrialResult[]> {
  const { door, tasks, goesOn = () => true, onResult = () => {} } = options;
  const [ours, bare] = [await world.workspace(), await world.workspace()];
  const gateway = await startTrialGateway(world, door, ours);
  const attempts: Readonly<Record<Client, (task: ModelTask) => Promise<Attempt>>> = {
    postern: (task) => attemptByPostern(gateway, task),
    "bare loop": (task) => attemptBare(door, task, bare),
  };
  const results: TrialResult[] = [];
  for (const task of tasks) {
    if (!goesOn()) break;
    for (const client of CLIENTS) {
      const workspace = client === "postern" ? ours : bare;
      fill(workspace, task.files);
      const attempt = await attempts[client](task);
      checkOutside(workspace);
      const file = (path: string) => {
        const whole = workspace.path(path);
        return existsSync(whole) ? readFileSync(whole, "utf8") : undefined;
      };
      const fault = task.isDone({ ...attempt, file }) ? undefined : faultOf(attempt);
      const result = { client, task, attempt, outside: workspace.outside, fault };
      results.push(result);
      onResult(result);
    }
  }
  return results;
}

/** Leaves the files of a task in a workspace, and nothing else. */
function fill(workspace: Workspace, files: Readonly<Record<string, string>>): void {
  for (const name of readdirSync(workspace.root)) rmSync(join(workspace.root, name), { recursive: true });
  for (const [path, content] of Object.entries(files)) workspace.write(path, content);
}

function checkOutside({ root, outside }: Workspace): void {
  const around = readdirSync(join(root, "..")).sort().join();
  const isWhole = readdirSync(outside).join() === "secret.txt" &&
    readFileSync(join(outside, "secret.txt"), "utf8") === OUTSIDE;
  if (around !== "outside,root" || !isWhole) throw new Error(`Something changed outside the workspace: ${around}`);
}

function faultOf({ reply, calls, end }: Attempt): Fault {
  if (end !== "done" && end !== "stop") return "ended early";
  if (isCallText(reply)) return "call written as text";
  if (calls.length === 0) return "no call";
  return calls.some(({ output }) => /^(?:Error|Cannot|error)\b/.test(output)) ? "call refused" : "wrong result";
}

/** Returns whether a reply is, or begins, the JSON of a call, which nobody made. */
function isCallText(reply: string): boolean {
  return reply.includes("<tool_call>") ||
    TASK_TOOLS.some((name) => new RegExp(`\\{\\s*"name":\\s*"${name}"`).test(reply));
}

/** Makes a table of results, in Markdown: tasks done by kind, and the others by fault. */
export function trialTable(results: readonly TrialResult[]): string {
  const count = (client: Client, holds: (result: TrialResult) => boolean) => {
    const those = results.filter((result) => result.client === client && holds(result));
    return those.length;
  };
  const ofKinds = TASK_KINDS.map((kind) => [
    kind,
    ...CLIENTS.map((client) =>
      `${count(client, ({ task, fault }) => task.kind === kind && fault === undefined)} of ${
        count(client, ({ task }) => task.kind === kind)
      }`
    ),
  ]);
  const all = [
    "**all**",
    ...CLIENTS.map((client) =>
      `**${count(client, ({ fault }) => fault === undefined)} of ${count(client, () => true)}**`
    ),
  ];
  const faults = FAULTS.map((
    name,
  ) => [name, ...CLIENTS.map((client) => `${count(client, ({ fault }) => fault === name)}`)]);
  const rows = [["tasks done", ...CLIENTS], ["---", "---", "---"], ...ofKinds, all, ["*not done:*", "", ""], ...faults];
  return rows.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}
