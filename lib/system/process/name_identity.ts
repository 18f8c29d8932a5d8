import { lstatSync, statSync } from "node:fs";

/**
 * Tells what lies at a path: device, inode and time of birth, and those of what a symbolic link leads to. Another file, or a link
 * that leads to another place by now, has another identity.
 * @throws the error of the system where nothing can be seen
 */
export function nameIdentity(path: string): string {
  const found = lstatSync(path, { bigint: true });
  const own = idOf(found);
  if (!found.isSymbolicLink()) return own;
  try {
    return `${own}>${idOf(statSync(path, { bigint: true }))}`;
  } catch {
    return `${own}>none`;
  }
}

function idOf({ dev, ino, birthtimeNs }: { readonly dev: bigint; readonly ino: bigint; readonly birthtimeNs: bigint }) {
  return `${dev}:${ino}:${birthtimeNs}`;
}
