import { constants } from "node:fs";
import { chmod, open } from "node:fs/promises";
import { join } from "node:path";
import * as v from "valibot";
import { writeAtomically } from "../../lib/base/durable_files.ts";
import { messageOf } from "../../lib/base/errors.ts";

/** History of the chats on a data directory: the messages that were typed, and the conversation of the last chat. */
export interface ChatHistory {
  /** Messages, the newest first */
  readonly lines: readonly string[];
  /** Id of the conversation of the last chat */
  readonly lastConversation: string | undefined;
  /** Keeps a message. A message that begins with a space, or is longer than 4,096 characters, is not kept. Never throws */
  add(line: string): Promise<void>;
  /** Keeps the conversation that `--continue` goes on with. Never throws */
  setConversation(id: string): Promise<void>;
}

const MAX_LINES = 1_000;
const MAX_LINE = 4_096;
/** Size above which the file is written again with the newest lines */
const MAX_BYTES = 1_048_576;
const MODE = 0o600;

const entrySchema = v.union([v.object({ text: v.string() }), v.object({ conversation_id: v.string() })]);
type Entry = v.InferOutput<typeof entrySchema>;

/**
 * Opens `{data_dir}/chat_history`, a file of mode 0600 with one JSON object a line. Skips a line that cannot be read.
 * @param say called once when nothing can be kept, for example because the name belongs to a folder or a link
 */
export async function openChatHistory(dataDir: string, say: (message: string) => void): Promise<ChatHistory> {
  const path = join(dataDir, "chat_history");
  let broken = false;
  const give = (error: unknown) => {
    if (!broken) say(`The chat's history is not kept: ${messageOf(error)}`);
    broken = true;
  };
  const entries = await load(path).catch((error: unknown) => {
    give(error);
    return [];
  });
  const append = async (entry: Entry) => {
    if (broken) return;
    try {
      await appendLine(path, `${JSON.stringify(entry)}\n`);
    } catch (error) {
      give(error);
    }
  };
  let last = entries.findLast((entry) => "conversation_id" in entry);
  return {
    lines: entries.flatMap((entry) => ("text" in entry ? [entry.text] : [])).slice(-MAX_LINES).toReversed(),
    lastConversation: last === undefined || !("conversation_id" in last) ? undefined : last.conversation_id,
    async add(line) {
      if (line.startsWith(" ") || line.length > MAX_LINE) return;
      await append({ text: line });
    },
    async setConversation(id) {
      if (last !== undefined && "conversation_id" in last && last.conversation_id === id) return;
      last = { conversation_id: id };
      await append(last);
    },
  };
}

/** Reads the entries, the oldest first. Shortens a file that grew too long. */
async function load(path: string): Promise<readonly Entry[]> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  if (file === undefined) return [];
  try {
    const info = await file.stat();
    if (!info.isFile()) throw new Error(`"${path}" is not a regular file`);
    if ((info.mode & 0o077) !== 0) await file.chmod(MODE);
    const start = Math.max(0, info.size - MAX_BYTES);
    const buffer = Buffer.alloc(info.size - start);
    const { bytesRead } = await file.read(buffer, 0, buffer.length, start);
    const text = buffer.subarray(0, bytesRead).toString("utf8");
    const entries = text.split("\n").flatMap(parseEntry);
    if (start === 0) return entries;
    const kept = newest(entries);
    await writeAtomically(path, kept.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
    await chmod(path, MODE);
    return kept;
  } finally {
    await file.close();
  }
}

function newest(entries: readonly Entry[]): readonly Entry[] {
  const last = entries.findLast((entry) => "conversation_id" in entry);
  const texts = entries.filter((entry) => "text" in entry).slice(-MAX_LINES);
  return last === undefined ? texts : [...texts, last];
}

function parseEntry(line: string): readonly Entry[] {
  if (line === "") return [];
  try {
    const parsed = v.safeParse(entrySchema, JSON.parse(line));
    return parsed.success ? [parsed.output] : [];
  } catch {
    return [];
  }
}

async function appendLine(path: string, line: string): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW;
  const file = await open(path, flags, MODE);
  try {
    await file.appendFile(line);
  } finally {
    await file.close();
  }
}
