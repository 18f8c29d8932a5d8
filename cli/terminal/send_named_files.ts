import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, join, resolve } from "node:path";
import { withoutEnd } from "../../lib/base/text.ts";
import { type CommandContext, CommandError } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import { printableLine } from "./terminal_text.ts";

/** A path behind `@` at the beginning of a word, in quotes where it has blanks */
const NAMED = /(?:^|\s)@(?:"([^"\n]{1,1024})"|([^\s"]{1,1024}))/g;
/** Files of one message */
const MAX_FILES = 20;
/** Bytes of a file that this command reads; the gateway has a bound of its own */
const MAX_BYTES = 67_108_864;

/**
 * Sends the files that a message names as `@path`, and returns their ids. The person names them, and this process reads them with the
 * person's rights: no rule of tools is asked. A word that names no file stays a word.
 * @throws {CommandError} for a file that cannot be read, or that the gateway does not keep
 */
export async function sendNamedFiles(
  text: string,
  { context, gateway }: { readonly context: Pick<CommandContext, "say">; readonly gateway: ReachedGateway },
): Promise<readonly string[]> {
  const paths = new Set<string>();
  for (const [, quoted, bare = ""] of text.matchAll(NAMED)) {
    const given = quoted ?? bare;
    const path = await existing(given) ?? await existing(withoutEnd(given, ".,;:!?)"));
    if (path !== undefined) paths.add(path);
  }
  if (paths.size > MAX_FILES) throw new CommandError(`Cannot send more than ${MAX_FILES} files with one message`);
  const ids: string[] = [];
  for (const path of paths) {
    const { id, filename, bytes } = await gateway.call("POST /v1/files", { raw: await formOf(path) });
    context.say(`Sent ${printableLine(filename)}, ${bytes} bytes`);
    ids.push(id);
  }
  return ids;
}

/** Returns the absolute path of a file that is there. */
async function existing(given: string): Promise<string | undefined> {
  if (given === "" || given.includes("\0")) return undefined;
  const path = resolve(given.startsWith("~/") ? join(homedir(), given.slice(2)) : given);
  const found = await stat(path).catch(() => undefined);
  return found?.isFile() === true ? path : undefined;
}

async function formOf(path: string): Promise<{ readonly type: string; readonly bytes: Uint8Array }> {
  const form = new FormData();
  form.append("purpose", "user_data");
  form.append("file", new File([await readBounded(path)], basename(path)));
  const sent = new Response(form);
  return { type: sent.headers.get("content-type") ?? "", bytes: new Uint8Array(await sent.arrayBuffer()) };
}

/** Reads a file as it comes: one that grows without end, as a log, is not read into memory. */
async function readBounded(path: string): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const part of createReadStream(path)) {
      size += part.length;
      if (size > MAX_BYTES) break;
      parts.push(part);
    }
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CommandError(`Cannot read ${printableLine(path)}: ${reason}`);
  }
  if (size > MAX_BYTES) {
    throw new CommandError(`Cannot send ${printableLine(path)}: it has more than ${MAX_BYTES} bytes`);
  }
  return new Uint8Array(Buffer.concat(parts));
}
