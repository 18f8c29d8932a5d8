import { constants } from "node:fs";
import { lstat, mkdir, mkdtemp, open, rm } from "node:fs/promises";
import { join } from "node:path";
import { CancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { Poller } from "../../base/poller.ts";
import type { ProcessResult } from "../process/run_command.ts";
import type { DesktopOptions, DesktopSession, ScreenPicture, SessionKind } from "./desktop_session.ts";

/** A program that writes a picture of the screen to a file. */
interface ScreenProgram {
  readonly name: string;
  readonly sessions: readonly SessionKind[];
  /** Arguments before the file. */
  readonly args: readonly string[];
}

/** Programs in the order in which they are tried. X programs see nothing of a Wayland session, though it may have an X display. */
const PROGRAMS: readonly ScreenProgram[] = [
  { name: "grim", sessions: ["wayland"], args: ["-t", "png"] },
  { name: "gnome-screenshot", sessions: ["wayland", "x11"], args: ["-f"] },
  { name: "spectacle", sessions: ["wayland", "x11"], args: ["-b", "-n", "-o"] },
  { name: "scrot", sessions: ["x11"], args: [] },
  { name: "import", sessions: ["x11"], args: ["-silent", "-window", "root"] },
  { name: "maim", sessions: ["x11"], args: [] },
  { name: "screencapture", sessions: ["macos"], args: ["-x", "-t", "png"] },
];
/** Relative to the program's own folder, so that no character of a path means something to it, as "%" does to scrot */
const FILE = "screen.png";
const LIMITS = { timeoutMs: 20_000, maxBytes: 33_554_432 };
const LOOK_MS = 50;
const MAX_MESSAGE_BYTES = 1024;

type TakeOptions = DesktopOptions & { readonly signal: AbortSignal };

/** Takes the screen of a session, see `Desktop`. A program that fails is followed by the next one. */
export async function takeScreen(session: DesktopSession, options: TakeOptions): Promise<ScreenPicture> {
  const fitting = PROGRAMS.filter(({ sessions }) => sessions.includes(session.kind));
  const problems: string[] = [];
  for (const program of fitting) {
    if (await options.commands.find(program.name) === undefined) continue;
    const taken = await inPrivateFolder(options.folder, (folder) => tryProgram(program, { folder, session, options }));
    if (typeof taken !== "string") return { bytes: taken, program: program.name };
    problems.push(`${program.name} ${taken}`);
  }
  if (problems.length > 0) throw new ToolError("screen_failed", `Cannot take the screen: ${problems.join("; ")}`);
  const names = fitting.map(({ name }) => name).join(", ");
  throw new ToolError(
    "no_screen_program",
    `Cannot take the screen: no program for a session of type ${session.kind} is installed, looked for ${names}`,
  );
}

/** Runs `use` with a folder that only this user reaches, which is removed afterwards. */
async function inPrivateFolder<T>(parent: string, use: (folder: string) => Promise<T>): Promise<T> {
  await mkdir(parent, { recursive: true, mode: 0o700 });
  const folder = await mkdtemp(join(parent, "take-"));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

interface Attempt {
  readonly folder: string;
  readonly session: DesktopSession;
  readonly options: TakeOptions;
}

/** @returns the picture, or what went wrong, as the end of a sentence that begins with the program */
async function tryProgram({ name, args }: ScreenProgram, attempt: Attempt): Promise<Uint8Array | string> {
  const { folder, session, options: { processes, clock, signal, limits = LIMITS } } = attempt;
  const { timeoutMs, maxBytes } = limits;
  const file = join(folder, FILE);
  const tooLarge = new AbortController();
  const watch = new Poller(async () => {
    if (await sizeOf(file) > maxBytes) tooLarge.abort(new CancelError("timeout"));
  });
  watch.start(clock, LOOK_MS);
  let result: ProcessResult;
  try {
    result = await processes.run({
      words: [name, ...args, FILE],
      scope: { workspaceRoot: folder, forbiddenPaths: [], workspaceOnly: true, allowSensitive: true },
      // No display reaches into the sandbox
      sandbox: "off",
      timeoutMs,
      maxOutputBytes: MAX_MESSAGE_BYTES,
      signal: AbortSignal.any([signal, tooLarge.signal]),
      composed: { env: session.env, network: true, writes: true, graceMs: 0 },
    });
  } finally {
    await watch.stop();
  }
  if (tooLarge.signal.aborted) throw pictureTooLarge(name, maxBytes);
  const problem = problemOf(result, timeoutMs);
  return problem ?? await readPicture(file, { name, maxBytes });
}

function problemOf({ ending, stdout, stderr }: ProcessResult, timeoutMs: number): string | undefined {
  const said = `${stderr.text}\n${stdout.text}`.trim().split("\n")[0]?.slice(0, 200) ?? "";
  const says = said === "" ? "" : ` and said ${JSON.stringify(said)}`;
  switch (ending.kind) {
    case "exit":
      return ending.code === 0 ? undefined : `ended with status ${ending.code}${says}`;
    case "signal":
      return `was killed by ${ending.name}${says}`;
    case "uncovered":
      return "was ended";
    case "timeout":
      return `was stopped after ${timeoutMs / 1000} s`;
    case "flood":
      return "wrote too much to its output";
  }
}

async function sizeOf(path: string): Promise<number> {
  return await lstat(path).then(({ size }) => size, () => 0);
}

/** Reads a regular file, and follows no link. @returns what went wrong as `tryProgram` */
async function readPicture(
  path: string,
  { name, maxBytes }: { readonly name: string; readonly maxBytes: number },
): Promise<Uint8Array | string> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(path, flags).catch(() => undefined);
  if (file === undefined) return "wrote no picture";
  try {
    const about = await file.stat();
    if (!about.isFile()) return "wrote no picture";
    if (about.size > maxBytes) throw pictureTooLarge(name, maxBytes);
    const bytes = new Uint8Array(about.size);
    const { bytesRead } = await file.read(bytes, 0, bytes.length, 0);
    return bytes.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

function pictureTooLarge(name: string, maxBytes: number): ToolError {
  return new ToolError(
    "screen_too_large",
    `Cannot take the screen: ${name} wrote more than ${maxBytes} bytes, which is the limit of a picture`,
  );
}
