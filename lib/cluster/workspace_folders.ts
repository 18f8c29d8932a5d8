import { type HttpError, refuse } from "../base/errors.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import type { Store, Write } from "../storage/store.ts";
import { WORKSPACE_MEMBERS, WORKSPACES } from "./cluster_records.ts";
import type { GatewayView, Leases } from "./leases.ts";
import { isOwnWorkspace } from "./workspace_id.ts";

/** Parts of `WorkspaceFolders`. */
export interface WorkspaceFoldersOptions {
  readonly store: Pick<Store, "get" | "scan" | "batch" | "unreadable">;
  readonly leases: Pick<Leases, "list" | "now">;
  /** Tells gateways that wait to be let into a workspace. They look once a second too. */
  readonly tell: (workspace: string) => void;
}

/** Wish of a person that a workspace may be another folder. */
export interface ForgetRequest {
  /** Time by the database's clock, ISO 8601. */
  readonly requested_at: string;
  /** Door that it was asked for at, with the id of the token. */
  readonly by: { readonly via: string; readonly token_id: string | null };
}

/** Answer to the wish. */
export interface ForgottenFolder extends ForgetRequest {
  readonly workspace: string;
  /** False: it was not known which folder the workspace is, so nothing was forgotten. */
  readonly isForgotten: boolean;
}

/** Writes that others may be faster with. */
const MAX_TRIES = 20;
/** Most gateways of one workspace. */
const MAX_MEMBERS = 1_000;
/** Workspaces that a message names. */
const SHOWN = 20;

/** Knowledge of the database about the folders of workspaces, which a person may take from it: the workspace was moved or re-cloned. */
export class WorkspaceFolders {
  readonly #options: WorkspaceFoldersOptions;

  constructor(options: WorkspaceFoldersOptions) {
    this.#options = options;
  }

  /**
   * Forgets which folder a workspace is: the next gateway that is let in says it again.
   * @throws {HttpError} 404 `not_found`: no gateway was ever let into such a workspace; 409 `conflict`: a gateway has it now, or its id names the
   * folder
   */
  async forget(workspace: string, { by, write }: {
    readonly by: Actor;
    /** Makes the writes, with a record of them. @returns false when a precondition does not hold. Default: the writes alone */
    readonly write?: (asked: ForgetRequest, writes: readonly Write[]) => Promise<boolean>;
  }): Promise<ForgottenFolder> {
    const { store, leases } = this.#options;
    if (isOwnWorkspace(workspace)) throw ownWorkspace(workspace);
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      // Read before the leases: a gateway that is let in after them changes the version
      const { value: found, version } = await WORKSPACES.readForChange(store, workspace);
      if (version === 0) throw await this.#unknownWorkspace(workspace);
      const holder = await this.#holderOf(workspace);
      if (holder !== undefined) throw heldWorkspace(workspace, holder);
      const asked: ForgetRequest = { requested_at: new Date(await leases.now()).toISOString(), by: storedActor(by) };
      if (found !== undefined && found.folder_digest === undefined) {
        return { workspace, ...asked, isForgotten: false };
      }
      const { folder_digest: _, ...kept } = found ?? {};
      const writes = [WORKSPACES.putOver(workspace, version, { ...kept, v: 1 })];
      if (await (write?.(asked, writes) ?? store.batch(writes))) {
        this.#options.tell(workspace);
        return { workspace, ...asked, isForgotten: true };
      }
    }
    throw refuse(
      "conflict",
      `Cannot forget the folder of the workspace "${workspace}": gateways come in at the same time; try again`,
    );
  }

  /** Returns a gateway with a lease that was let into the workspace, or whose record does not tell. */
  async #holderOf(workspace: string): Promise<GatewayView | undefined> {
    const { store, leases } = this.#options;
    const prefix = `${workspace}/`;
    const page = await store.scan(WORKSPACE_MEMBERS.name, { prefix, limit: MAX_MEMBERS });
    const outside = WORKSPACE_MEMBERS.readable(store, page).filter(({ value }) => !value.is_member);
    const notIn = new Set(outside.map(({ key }) => key));
    const inside = new Set(page.filter(({ key }) => !notIn.has(key)).map(({ key }) => key.slice(prefix.length)));
    return (await leases.list()).find(({ id, leftMs }) => leftMs > 0 && inside.has(id));
  }

  async #unknownWorkspace(workspace: string): Promise<HttpError> {
    const page = await this.#options.store.scan(WORKSPACES.name, { limit: 10 * SHOWN });
    const names = page.map(({ key }) => key).filter((key) => !isOwnWorkspace(key)).slice(0, SHOWN);
    const known = names.length === 0 ? "there is none with a workspace_id" : `there are ${names.join(", ")}`;
    const message = `Cannot find the workspace "${workspace}": no gateway was let into it; ${known}`;
    return refuse("not_found", message, { param: "id" });
  }
}

function heldWorkspace(workspace: string, { id, about, leftMs }: GatewayView): HttpError {
  const left = (leftMs / 1_000).toFixed(1);
  return refuse(
    "conflict",
    `Cannot forget the folder of the workspace "${workspace}": the gateway ${id} on ${about.host} works in it, with a lease for ${left} s; ` +
      "stop the gateways of the workspace first; the lease of one that was killed runs out by itself",
  );
}

function ownWorkspace(workspace: string): HttpError {
  return refuse(
    "conflict",
    `Cannot forget the folder of the workspace "${workspace}": it is that of one gateway, and its id is made of the data directory and the ` +
      "folder; start the gateway with both, or cancel the runs that wait for it",
  );
}
