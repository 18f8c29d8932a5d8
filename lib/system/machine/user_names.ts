import { readFile } from "node:fs/promises";

/** Users of this machine as `/etc/passwd` lists them, by name. */
export type UserNames = ReadonlyMap<string, number>;

const MAX_CHARACTERS = 4_194_304;

/** Reads which users there are. Empty where there is no such list. */
export async function readUserNames(): Promise<UserNames> {
  const text = await readFile("/etc/passwd", "utf8").catch(() => "");
  return parseUserNames(text.slice(0, MAX_CHARACTERS));
}

/** Reads the lines `name:password:uid:...`; of two with one name the first counts. */
export function parseUserNames(text: string): UserNames {
  const users = new Map<string, number>();
  for (const line of text.split("\n")) {
    const [name = "", , uid = ""] = line.split(":");
    if (name !== "" && /^\d{1,10}$/.test(uid) && !users.has(name)) users.set(name, Number(uid));
  }
  return users;
}
