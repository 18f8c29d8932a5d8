import { execFile } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { promisify } from "node:util";
import OpenAI from "openai";
import type { Workspace } from "../workspace.ts";
import type { Attempt, ModelDoor, ModelTask, TaskTool } from "./model_tasks.ts";

const PROMPT = "You are a helpful assistant with tools for one folder of files. Paths are relative to it.";
/** Replies of one task, as many as the agent of Postern has */
const MAX_TURNS = 6;

type Input = Readonly<Record<string, string>>;
type BareTool = readonly [
  description: string,
  parameters: readonly string[],
  call: (input: Input) => string | Promise<string>,
];

/** Has the official client do a task in its own loop (`runTools`), with the plainest tools of the same names. */
export async function attemptBare(door: ModelDoor, task: ModelTask, workspace: Workspace): Promise<Attempt> {
  const memory = new Map(Object.entries(task.memory));
  const schedules: string[] = [];
  const calls: { name: string; output: string }[] = [];
  const tools = bareTools(workspace, memory, schedules);
  const client = new OpenAI({ baseURL: door.baseUrl, apiKey: "none", maxRetries: 0, timeout: 3_600_000 });
  const runner = client.chat.completions.runTools({
    model: door.model,
    messages: [{ role: "system", content: PROMPT }, { role: "user", content: task.say }],
    tools: Object.entries(tools).map(([name, [description, parameters, call]]) => ({
      type: "function" as const,
      function: {
        name,
        description,
        parameters: {
          type: "object",
          required: [...parameters],
          properties: Object.fromEntries(parameters.map((parameter) => [parameter, { type: "string" }])),
        },
        parse: (text: string): Input => JSON.parse(text),
        function: async (input: Input) => {
          const output = await Promise.resolve().then(() => call(input)).catch((error) => `Error: ${error.message}`);
          calls.push({ name, output });
          return output;
        },
      },
    })),
  }, { maxChatCompletions: MAX_TURNS });
  // An answer beside its tools, such as a name that there is none of, is a message too
  // A reply that is cut is an error of this loop
  const ended = await runner.done().then(
    () => "done",
    (error) => String(error).includes("the length limit was reached") ? "length" : String(error),
  );
  const words = runner.messages.findLast(({ role }) => role === "assistant")?.content;
  const turns = runner.messages.filter(({ role }) => role === "assistant").length;
  return {
    reply: typeof words === "string" ? words : "",
    calls,
    end: ended !== "done" ? ended : turns >= MAX_TURNS ? "turns" : "done",
    memory: [...memory].map((record) => JSON.stringify(record)),
    schedules,
    transcript: runner.messages,
  };
}

function bareTools(
  { root }: Workspace,
  memory: Map<string, string>,
  schedules: string[],
): Readonly<Record<TaskTool, BareTool>> {
  const inside = (path: string) => {
    const whole = join(root, path);
    if (relative(root, whole).startsWith("..")) throw new Error("the path leads out of the folder");
    return whole;
  };
  const all = () =>
    readdirSync(root, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).map((entry) =>
      relative(root, join(entry.parentPath, entry.name))
    );
  const write = (path: string, content: string) => {
    mkdirSync(dirname(inside(path)), { recursive: true });
    writeFileSync(inside(path), content);
    return "ok";
  };
  return {
    read_file: ["Reads a file", ["path"], ({ path = "" }) => readFileSync(inside(path), "utf8")],
    glob_search: ["Lists the files whose path has these words", ["pattern"], ({ pattern = "" }) => {
      const words = pattern.split(/[*?/]+/).filter((word) => word !== "");
      return all().filter((path) => words.every((word) => path.includes(word))).join("\n");
    }],
    content_search: [
      "Finds the lines with a text in all files",
      ["pattern"],
      ({ pattern = "" }) =>
        all().flatMap((path) =>
          readFileSync(inside(path), "utf8").split("\n").flatMap((line, at) =>
            line.includes(pattern) ? [`${path}:${at + 1}: ${line}`] : []
          )
        ).join("\n"),
    ],
    file_edit: [
      "Replaces a text in a file",
      ["path", "old_text", "new_text"],
      ({ path = "", old_text = "", new_text = "" }) => {
        const text = readFileSync(inside(path), "utf8");
        if (!text.includes(old_text)) throw new Error("the file does not have old_text");
        return write(path, text.replace(old_text, () => new_text));
      },
    ],
    write_file: [
      "Writes a whole file",
      ["path", "content"],
      ({ path = "", content = "" }) => write(path, content),
    ],
    apply_patch: [
      "Applies a unified diff to the folder",
      ["patch"],
      ({ patch = "" }) => run("patch", ["-p0", "--batch"], root, patch),
    ],
    shell: ["Runs a command line", ["command"], ({ command = "" }) => run("bash", ["-c", command], root)],
    memory_store: ["Keeps a text under a key", ["key", "value"], ({ key = "", value = "" }) => {
      memory.set(key, value);
      return "ok";
    }],
    memory_recall: [
      "Finds what was kept",
      ["query"],
      () => [...memory].map(([key, value]) => `${key}: ${value}`).join("\n"),
    ],
    cron_add: ["Adds a schedule: five cron fields, and what to do then", ["schedule", "prompt"], (input) => {
      schedules.push(JSON.stringify(input));
      return "ok";
    }],
  };
}

/** Runs a program that sees the folder to write and the system to read, and no network: a model chooses what it does. */
async function run(program: string, argv: readonly string[], root: string, input = ""): Promise<string> {
  const wall = ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"];
  const more = ["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"];
  const rest = ["--bind", root, root, "--chdir", root, "--unshare-all", "--die-with-parent"];
  const running = promisify(execFile)("bwrap", [...wall, ...more, ...rest, "--", program, ...argv], {
    timeout: 20_000,
    maxBuffer: 1024 * 1024,
  });
  running.child.stdin?.end(input);
  const { stdout, stderr } = await running.catch((error) => ({
    stdout: String(error.stdout ?? ""),
    stderr: `${error.stderr ?? ""}\nexit ${error.code ?? error.signal}`,
  }));
  return `${stdout}${stderr}`.slice(0, 4_000);
}
