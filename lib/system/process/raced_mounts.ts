import { readFileSync } from "node:fs";
import { isWithin } from "../files/forbidden_paths.ts";

/**
 * bubblewrap goes through the workspace by names while it makes its mounts. A contained program that runs already may exchange a folder for a
 * link at that moment, so that something else is mounted, or a cover lies elsewhere. Before the new program begins, a shell in its sandbox
 * compares what is mounted with what was meant.
 */

/** Mount of a sandbox as it was meant. */
export interface MeantMount {
  /** Absolute path in the sandbox, and outside for a mount that shows what lies there */
  readonly path: string;
  /** True where it shows what lies at this path outside. False: anything may lie there, as the cover of a file */
  readonly shows: boolean;
}

const CHECK = `seen='
'
while read -r id parent device root point rest; do seen="$seen$device $root $point
"; done < /proc/self/mountinfo
while [ "$1" != -- ]; do case $seen in *"$1
"*) shift ;; *) echo "bwrap: a folder of the workspace was exchanged while the sandbox was made" >&2; exit 1 ;; esac; done
shift
exec "$@"`;

/** Returns the words before a program that begin it only where the mounts are the meant ones; else it fails as bubblewrap does. */
export function checkedMounts(mounts: readonly MeantMount[]): readonly string[] {
  const table = readFileSync("/proc/self/mountinfo", "utf8").split("\n").map((line) => line.split(" "));
  const lines = mounts.map(({ path, shows }) =>
    shows ? `\n${sourceOf(path, table)} ${written(path)}` : ` ${written(path)}`
  );
  return ["/bin/sh", "-c", CHECK, "sh", ...new Set(lines), "--"];
}

/** Returns device and root of a mount that shows a path, by the mounts outside, such as `8:1 /home/ada/work`. */
function sourceOf(path: string, table: readonly (readonly string[])[]): string {
  const own = written(path);
  let [device, root, point] = ["", "", ""];
  for (const [, , at = "", from = "", to = ""] of table) {
    // A later mount lies over an earlier one at the same place
    if (isWithin(own, to) && to.length >= point.length) [device, root, point] = [at, from, to];
  }
  const below = own.slice(point === "/" ? 0 : point.length);
  return `${device} ${root === "/" && below !== "" ? "" : root}${below}`;
}

/** Writes a path as Linux does in `mountinfo`: its UTF-8 bytes, and what parts fields by number. */
function written(path: string): string {
  return path.replace(/[ \t\n\\]/g, (sign) => `\\${sign.charCodeAt(0).toString(8).padStart(3, "0")}`);
}

/** Forbids links in each mount: one in the place of a folder may lead to `.git`. A machine that cannot do that for the first does it for none */
const NO_LINKS = `while [ "$1" != -- ]; do
  if mount -o remount,bind,nosymfollow "$1" 2> /dev/null; then held=1
  elif [ -n "$held" ]; then echo "bwrap: cannot keep git from links" >&2; exit 1
  fi
  shift
done
shift
exec "$@"`;

/** Returns the words before a program that make mounts which lead through no symbolic link, where the machine can (Linux 5.10, util-linux 2.38). */
export function withoutLinks(paths: readonly string[]): readonly string[] {
  return ["/bin/sh", "-c", NO_LINKS, "sh", ...paths, "--"];
}
