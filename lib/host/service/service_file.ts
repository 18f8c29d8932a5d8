import { chmod, readFile, rm } from "node:fs/promises";
import { messageOf, systemCodeOf } from "../../base/errors.ts";
import { writeAtomically } from "../../base/durable_files.ts";
import { ServiceError } from "./service_manager.ts";

/** Text of a service's file; undefined when there is none. */
export async function readServiceFile(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (systemCodeOf(error) === "ENOENT") return undefined;
    throw fileError("read", path, error);
  }
}

/** Writes a service's file in one step where it differs. @returns whether it did */
export async function writeServiceFile(path: string, text: string, mode: number): Promise<boolean> {
  const before = await readServiceFile(path);
  try {
    if (before !== text) await writeAtomically(path, text);
    await chmod(path, mode);
  } catch (error) {
    throw fileError("write", path, error);
  }
  return before !== text;
}

/** Removes it; nothing when there is none. */
export async function removeServiceFile(path: string): Promise<void> {
  try {
    await rm(path, { force: true });
  } catch (error) {
    throw fileError("remove", path, error);
  }
}

function fileError(action: string, path: string, cause: unknown): ServiceError {
  return new ServiceError(`Cannot ${action} "${path}": ${messageOf(cause)}`, { cause });
}
