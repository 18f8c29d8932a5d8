import { canonicalDigest } from "../base/json.ts";
import type { Random } from "../base/random.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store, Write } from "../storage/store.ts";
import { toPlace, type WorkspaceBody, WORKSPACES } from "./cluster_records.ts";
import { fenceCheck, type JoinedGateway } from "./leases.ts";
import { isOwnWorkspace } from "./workspace_id.ts";
import type { OtherGateway } from "./workspace_members.ts";
import { newFolderId, type ProofFiles } from "./workspace_proof.ts";

/** Workspace of a gateway, and the files that prove it. */
export interface OwnWorkspace {
  /** Id of the workspace, see workspace_id.ts. */
  readonly id: string;
  readonly files: ProofFiles;
  /** Real path of the workspace, for people. */
  readonly folder: string;
  /** Data directory of the gateway, for people. */
  readonly dataDir: string;
}

/** Options of `WorkspaceRecord`. */
export interface WorkspaceRecordOptions {
  readonly workspace: OwnWorkspace;
  readonly store: Store;
  readonly host: string;
  readonly random: Random;
  readonly log: Logger;
}

/** Record of the workspace as it was found. */
export interface FoundWorkspace {
  /** 0: there is none */
  readonly version: number;
  /** Undefined: there is none, or it cannot be read */
  readonly body: WorkspaceBody | undefined;
}

/**
 * Record of this gateway's workspace, which says in which folder the gateways of the workspace work.
 *
 * No file of a gateway tells anything once all gateways are dead. The folder of a workspace with a configured id therefore keeps an id of its own,
 * whose digest is in the record: a gateway that comes in must have that folder. A workspace of one gateway needs no such id, since the
 * id of the workspace names the folder.
 */
export class WorkspaceRecord {
  readonly id: string;
  readonly #options: WorkspaceRecordOptions;
  /** Id that the folder had when this gateway was let in. Undefined: the folder has none, as in a workspace without a configured id */
  #folderId: string | undefined = undefined;
  /** Other gateways of the workspace when the record was last kept, and whether they were let in. */
  #known = "";

  constructor(options: WorkspaceRecordOptions) {
    this.#options = options;
    this.id = options.workspace.id;
  }

  /** Reads the record. */
  async find(): Promise<FoundWorkspace> {
    const { value: body, version } = await WORKSPACES.readForChange(this.#options.store, this.id);
    return { version, body };
  }

  /**
   * Returns how this folder differs from the one that gateways of the workspace worked in before. Undefined: nothing says that it does.
   * Writes the id of the folder again when somebody has removed it since this gateway was let in.
   * @returns a reason for messages, and the time to wait for the right folder. Absent: as long as for the files of gateways
   */
  async mismatch(
    { version, body }: FoundWorkspace,
    { hasMembers }: { readonly hasMembers: boolean },
  ): Promise<{ readonly reason: string; readonly waitMs?: number } | undefined> {
    if (isOwnWorkspace(this.id)) return undefined;
    const { files, folder } = this.#options.workspace;
    const allow = `if "${this.id}" is to be this folder from now on: postern cluster forget-folder ${this.id}`;
    if (body === undefined) {
      // The files of gateways that are there tell more than the record
      if (version === 0 || hasMembers) return undefined;
      const reason =
        `the record of the workspace "${this.id}" cannot be read, so nobody knows in which folder its gateways worked`;
      return { reason: `${reason}; ${allow}` };
    }
    const known = body.folder_digest;
    if (known === undefined) return undefined;
    if (this.#folderId !== undefined && canonicalDigest(this.#folderId) === known) {
      await files.keepFolderId(this.#folderId);
    }
    const id = await files.folderId();
    if (id !== undefined && canonicalDigest(id) === known) {
      this.#folderId = id;
      return undefined;
    }
    const { last_gateway: last } = body;
    const before = last === undefined ? "" : `, in ${last.folder} on ${last.host}`;
    const found = id === undefined ? "it has no id" : "it has another id";
    const reason =
      `the folder of this gateway, ${folder}, is not the one in which gateways worked as "${this.id}" before${before} (${found})`;
    // A network file system may show a file late, and never a file with another content
    const wayOut = "give it that folder, or another [cluster] workspace_id";
    return { reason: `${reason}; ${wayOut}; ${allow}`, ...id === undefined ? {} : { waitMs: 0 } };
  }

  /** Returns the write of the record by which this gateway is let in. Gives the folder an id first when the record names none. */
  async letInWrite(found: FoundWorkspace): Promise<Write> {
    if (found.body?.folder_digest === undefined) this.#folderId = await this.#nameFolder();
    return this.#write(found);
  }

  /**
   * Keeps the file and the record that say which folder the workspace is. A command in the workspace may remove the file. A gateway of an
   * earlier version that is let in writes the record without the fields that it does not know.
   */
  async keep(own: JoinedGateway, others: readonly OtherGateway[]): Promise<void> {
    const { workspace, store } = this.#options;
    if (this.#folderId !== undefined) await workspace.files.keepFolderId(this.#folderId);
    const known = others.map(({ gateway, is_member }) => `${gateway} ${is_member}`).join();
    if (known === this.#known) return;
    const found = await this.find();
    const isWhole = found.body?.last_gateway !== undefined &&
      (this.#folderId === undefined || found.body.folder_digest !== undefined);
    if (isWhole || await store.batch([fenceCheck(own), this.#write(found)])) this.#known = known;
  }

  /** Returns the id of the folder, and makes one when the folder has none. Undefined: the folder can have none */
  async #nameFolder(): Promise<string | undefined> {
    if (isOwnWorkspace(this.id)) return undefined;
    const { workspace, random, log } = this.#options;
    try {
      return await workspace.files.nameFolder(newFolderId(random));
    } catch (error) {
      log.warn("The workspace cannot be written: nothing tells it from another folder once no gateway has it", {
        error,
      });
      return undefined;
    }
  }

  /** Returns the write that names this gateway and its folder, and that holds only while the record is as it was found. */
  #write({ version, body }: FoundWorkspace): Write {
    const { host, workspace } = this.#options;
    return WORKSPACES.putOver(this.id, version, {
      ...body,
      v: 1,
      ...this.#folderId === undefined ? {} : { folder_digest: canonicalDigest(this.#folderId) },
      last_gateway: toPlace({ host, folder: workspace.folder, data_dir: workspace.dataDir }),
    });
  }
}
