import { readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import * as v from "valibot";
import type { BackupPart } from "../../../storage/back_up.ts";
import { packageFolderName, packageFolderOf, packagesFolder, readInstalledPackage } from "./installed_package.ts";
import { parseAddTarget, shownPackage } from "./package_spec.ts";

/** Package that a backup names. Its files are not in the backup: they belong to one machine and its programs. */
export interface NamedPackage {
  /** Name of its folder */
  readonly folder: string;
  /** Package with its exact version, as `postern mcp add` takes it */
  readonly spec: string;
  /** Number of arguments that the package itself begins with */
  readonly ownArgs: number;
}

/** Package that a restored gateway lacks, with the server that needs it. */
export interface LostPackage {
  /** Name of the server; null: no entry of the configuration leads to it */
  readonly server: string | null;
  /** Package as `postern mcp add` takes it; null: nothing says which it was */
  readonly spec: string | null;
  /** True for a server that has arguments of the person */
  readonly hasArgs: boolean;
}

/** Servers of a configuration, as far as their command lines go. */
type Servers = Readonly<Record<string, { readonly command: string; readonly args: readonly string[] }>>;

const NAME = /^mcp\/packages\/([^/]+)\.json$/;
const MAX_PART_BYTES = 4_096;
const MAX_PACKAGES = 1_000;

const partSchema = v.strictObject({
  v: v.literal(1),
  registry: v.picklist(["npm", "pypi"]),
  name: v.pipe(v.string(), v.maxLength(214)),
  version: v.pipe(v.string(), v.maxLength(64)),
  own_args: v.pipe(v.number(), v.integer(), v.minValue(0)),
});

/** Reads the names and versions of installed packages, each as `mcp/packages/<folder>.json`. At most MAX_PACKAGES. */
export async function* packagesForBackup(dataDir: string): AsyncIterable<BackupPart> {
  const root = packagesFolder(dataDir);
  const folders = await readdir(root).catch(() => []);
  for (const folder of folders.sort().slice(0, MAX_PACKAGES)) {
    const found = await readInstalledPackage(join(root, folder));
    if (found === undefined) continue;
    const { registry, name, version, args } = found.program;
    const text = JSON.stringify({ v: 1, registry, name, version, own_args: args.length });
    const part = { name: `mcp/packages/${folder}.json`, content: new TextEncoder().encode(text) };
    if (readNamedPackage(part) !== undefined) yield part;
  }
}

/** Reads a part of a backup that names a package. Undefined for any other part, and for one that is forged. */
export function readNamedPackage({ name: part, content }: BackupPart): NamedPackage | undefined {
  const folder = NAME.exec(part)?.[1];
  if (folder === undefined || content.length > MAX_PART_BYTES) return undefined;
  try {
    const { own_args: ownArgs, ...found } = v.parse(partSchema, JSON.parse(new TextDecoder().decode(content)));
    const spec = shownPackage(found);
    // Attack: a person copies this line into a shell
    parseAddTarget(spec);
    return packageFolderName(found) === folder ? { folder, spec, ownArgs } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Returns the packages that are to be installed again, those of servers first.
 * @param options.dataDir the restored data directory, which has none
 * @param options.servers those of the configuration; empty where it cannot be read
 */
export function lostPackages(
  named: readonly NamedPackage[],
  { dataDir, servers }: { readonly dataDir: string; readonly servers: Servers },
): readonly LostPackage[] {
  const used = new Set<string>();
  const ofServers = Object.entries(servers).flatMap(([server, { command, args }]): readonly LostPackage[] => {
    const path = packageFolderOf(dataDir, [command, ...args]);
    if (path === undefined) return [];
    const known = named.find(({ folder }) => folder === basename(path));
    if (known !== undefined) used.add(known.folder);
    return [{ server, spec: known?.spec ?? null, hasArgs: known !== undefined && args.length > known.ownArgs }];
  });
  const others = named.filter(({ folder }) => !used.has(folder));
  return [...ofServers, ...others.map(({ spec }) => ({ server: null, spec, hasArgs: false }))];
}
