import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, join, resolve } from "node:path";
import { MAX_SENT_BYTES, MAX_SENT_FILES } from "../../handlers/wire/sent_files.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { withoutEnd } from "../../lib/base/text.ts";
import { type CommandContext, CommandError } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import type { ChatTopic } from "./chat_session.ts";
import { isYes } from "./require_yes.ts";
import { printableLine } from "./terminal_text.ts";

/** A path behind `@` at the beginning of a word, in quotes where it has blanks */
const NAMED = /(?:^|\s)@(?:"([^"\n]{1,1024})"|([^\s"]{1,1024}))/g;
/** Names that nobody typed, of which a file is looked for */
const MAX_FOREIGN = 100;

/** Source of the names in a message that its person wrote: words of the command line, or all but what was pasted. */
export type Typed = { readonly words: readonly string[] } | { readonly pastes: readonly string[] };

/**
 * Sends the files that a message names as `@path`, and returns their ids. The person names them, and this process reads them with the
 * person's rights: no rule of tools is asked. A word that names no file stays a word. A new conversation gets its id here, so that its files
 * go with it when it is deleted.
 *
 * Attack: somebody else's text, pasted, piped or put into an argument by a script, names a file of the person, such as `@~/.ssh/id_rsa`.
 * So a name that nobody typed is asked about, and where nobody can be asked its file is not sent.
 * @throws {CommandError} for a file that cannot be read, or that the gateway does not keep
 */
export async function sendNamedFiles(
  text: string,
  { context, gateway, topic, typed }: {
    readonly context: Pick<CommandContext, "say" | "io" | "flags">;
    readonly gateway: ReachedGateway;
    readonly topic: ChatTopic;
    readonly typed: Typed;
  },
): Promise<readonly string[]> {
  const paths = new Set<string>();
  const foreign = new Set<string>();
  const words = "words" in typed ? typed.words.filter((word) => word.startsWith("@")).map(nameOf) : [];
  let looks = 0;
  for (const name of new Set([...words, ...namesIn(text)])) {
    const isTyped = "words" in typed ? words.includes(name) : !isPasted(name, typed.pastes);
    if (!isTyped && ++looks > MAX_FOREIGN) continue;
    const path = await existing(name) ?? await existing(withoutEnd(name, ".,;:!?)"));
    if (path !== undefined) (isTyped ? paths : foreign).add(path);
  }
  if (paths.size > MAX_SENT_FILES) {
    throw new CommandError(`Cannot send more than ${MAX_SENT_FILES} files with one message`);
  }
  const asked = [...foreign].filter((path) => !paths.has(path)).slice(0, MAX_SENT_FILES - paths.size);
  for (const path of await mayGo(asked, context) ? asked : []) paths.add(path);
  const ids: string[] = [];
  for (const path of paths) {
    topic.conversationId ??= createSystemRandom().id("conv_");
    const { id, bytes } = await gateway.call("POST /v1/files", { raw: await formOf(path, topic.conversationId) });
    context.say(`Sent ${printableLine(path)}, ${bytes} bytes`);
    ids.push(id);
  }
  return ids;
}

/** Tells whether a message holds a name that was pasted. */
export function namesPasted(text: string, pastes: readonly string[]): boolean {
  return namesIn(text).some((name) => isPasted(name, pastes));
}

/** Asks about files that a text names, of which nobody typed the names. */
async function mayGo(
  paths: readonly string[],
  { io, flags, say }: Pick<CommandContext, "say" | "io" | "flags">,
): Promise<boolean> {
  if (paths.length === 0) return false;
  const list = paths.map(printableLine).join(", ");
  if (io.canAsk && !flags.json) {
    const answer = await io.ask(`The text names files that you did not: ${list}. Send them along? [y/N] `);
    if (isYes(answer ?? "")) return true;
  }
  say(`Not sent: ${list}. A file goes along as an argument of its own, such as @report.pdf, or typed in a chat`);
  return false;
}

function namesIn(text: string): readonly string[] {
  return [...text.matchAll(NAMED)].map(([, quoted, bare = ""]) => quoted ?? bare);
}

/** Returns the name in a word of the command line, whose quotes the shell may have taken away. */
function nameOf(word: string): string {
  return /^@"([^"]*)"$/.exec(word)?.[1] ?? word.slice(1);
}

/** A paste may end in the middle of a name, and keys may have gone on with it, or taken signs away from it. */
function isPasted(name: string, pastes: readonly string[]): boolean {
  return pastes.some((paste) => namesIn(paste).some((given) => name.startsWith(given) || given.startsWith(name)));
}

/** Returns the absolute path of a file that is there. */
async function existing(given: string): Promise<string | undefined> {
  if (given === "" || given.includes("\0")) return undefined;
  const path = resolve(given.startsWith("~/") ? join(homedir(), given.slice(2)) : given);
  const found = await stat(path).catch(() => undefined);
  return found?.isFile() === true ? path : undefined;
}

async function formOf(
  path: string,
  conversationId: string,
): Promise<{ readonly type: string; readonly bytes: Uint8Array }> {
  const form = new FormData();
  form.append("purpose", "user_data");
  form.append("conversation_id", conversationId);
  form.append("file", new File([await readBounded(path)], basename(path)));
  const sent = new Response(form);
  return { type: sent.headers.get("content-type") ?? "", bytes: new Uint8Array(await sent.arrayBuffer()) };
}

/** Reads a file as it comes: one that grows without end, such as a log, is not read into memory. */
async function readBounded(path: string): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const part of createReadStream(path)) {
      size += part.length;
      if (size > MAX_SENT_BYTES) break;
      parts.push(part);
    }
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CommandError(`Cannot read ${printableLine(path)}: ${reason}`);
  }
  if (size > MAX_SENT_BYTES) {
    throw new CommandError(`Cannot send ${printableLine(path)}: it has more than ${MAX_SENT_BYTES} bytes`);
  }
  return new Uint8Array(Buffer.concat(parts));
}
