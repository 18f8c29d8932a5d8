import { systemClock } from "../../lib/base/clock.ts";
import { canonicalDigest } from "../../lib/base/json.ts";
import { type GatewayPlace, WORKSPACE_MEMBERS, WORKSPACES } from "../../lib/cluster/cluster_records.ts";
import type { OpenedOverview } from "../../lib/cluster/open_overview.ts";
import { createProofFiles } from "../../lib/cluster/workspace_proof.ts";
import type { Config } from "../../lib/config/config.ts";
import { failure, type Finding } from "./finding.ts";

/** Gateways of the workspace whose files are looked for. */
const MAX_MEMBERS = 100;
/** Time after which a file that is missing is looked for again: its gateway may just have written it. Milliseconds */
const AGAIN_MS = 1_000;

/**
 * Checks that the workspace is the folder that living gateways with the same `workspace_id` have, by the files that they keep in it, and the one
 * that those before them had, by its id. Writes none: whether living gateways find the file of this one shows at its start alone.
 */
export async function checkWorkspace(
  name: string,
  opened: Pick<OpenedOverview, "store" | "leases">,
  { config: { cluster }, workspace }: { readonly config: Config; readonly workspace: string },
): Promise<readonly Finding[]> {
  if (cluster.workspace_id === "") return [];
  const look = () => findStranger(opened, { id: cluster.workspace_id, workspace });
  const lookBack = () => findFolderBefore(opened, { id: cluster.workspace_id, workspace });
  if (await look() === undefined && await lookBack() === undefined) return [];
  await systemClock.sleep(AGAIN_MS);
  const stranger = await look();
  if (stranger === undefined) {
    const before = await lookBack();
    if (before === undefined) return [];
    const where = before === "unknown" ? "" : `, in ${before.folder} on ${before.host}`;
    const message =
      `The folder ${workspace} is not the one in which gateways worked as the workspace "${cluster.workspace_id}" before${where}`;
    const fix =
      `give that folder by --workspace, set another cluster.workspace_id, or postern cluster forget-folder ${cluster.workspace_id}`;
    return [failure(name, message, fix)];
  }
  const message =
    `The folder ${workspace} is not the one that others have as the workspace "${cluster.workspace_id}": ` +
    `it lacks the file of the gateway ${stranger.gateway} on ${stranger.host}`;
  return [failure(name, message, "give their folder by --workspace, or set another cluster.workspace_id")];
}

/** Finds where the folder of a workspace is known to be, if it is not this one. `unknown`: nobody says where. */
async function findFolderBefore(
  { store }: Pick<OpenedOverview, "store">,
  { id, workspace }: { readonly id: string; readonly workspace: string },
): Promise<GatewayPlace | "unknown" | undefined> {
  const found = await WORKSPACES.tryRead(store, id);
  if (found?.value.folder_digest === undefined) return undefined;
  const own = await createProofFiles(workspace).folderId();
  if (own !== undefined && canonicalDigest(own) === found.value.folder_digest) return undefined;
  return found.value.last_gateway ?? "unknown";
}

/** Finds a living gateway of a workspace whose file is not in a folder. */
async function findStranger(
  { store, leases }: Pick<OpenedOverview, "store" | "leases">,
  { id, workspace }: { readonly id: string; readonly workspace: string },
): Promise<{ readonly gateway: string; readonly host: string } | undefined> {
  const prefix = `${id}/`;
  const [page, gateways] = await Promise.all([
    WORKSPACE_MEMBERS.page(store, { prefix, limit: MAX_MEMBERS }),
    leases.list(),
  ]);
  const fences = new Map(gateways.filter(({ leftMs }) => leftMs > 0).map(({ id, fence }) => [id, fence]));
  const files = createProofFiles(workspace);
  for (const { key, value: { is_member, fence, digest, host } } of page) {
    const gateway = key.slice(prefix.length);
    if (!is_member || fences.get(gateway) !== fence) continue;
    if (await files.read(gateway) !== digest) return { gateway, host };
  }
  return undefined;
}
