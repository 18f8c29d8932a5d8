import type { OwnedWork, WorkKind } from "../cluster/owned_work.ts";
import type { WorkHold } from "../cluster/work_hold.ts";
import type { Write } from "../storage/store.ts";

/** A kind of work, each piece of which is marked as open in a collection. */
export interface WorkPartKind extends Omit<WorkKind, "takeUp"> {
  /** Lets a piece go on that is this gateway's from now on. @param hold undefined: nobody else can have the piece */
  readonly takeUp: (id: string, hold?: WorkHold) => void;
  /** Returns the pieces that are open. */
  readonly open: () => Promise<readonly string[]>;
}

/** This gateway's part in a kind of work, see `OwnedWork`, which shares the pieces with other gateways. */
export interface WorkPart extends
  Pick<
    OwnedWork,
    "start" | "stop" | "accepted" | "signal" | "waitsForWorkspace" | "tell" | "wake" | "news"
  > {
  /** Returns the write that marks a new piece as open, with its owner. Undefined: its mark names none */
  opening(id: string, isLocal?: boolean): Write | undefined;
}

/** Makes this gateway's part in a kind of work. */
export type MakeWork = (kind: WorkPartKind) => WorkPart;

/** The part of a gateway alone: every piece is its own, and goes on at once. */
class LoneWork implements WorkPart {
  readonly #kind: WorkPartKind;

  constructor(kind: WorkPartKind) {
    this.#kind = kind;
  }

  async start(): Promise<void> {
    for (const id of await this.#kind.open()) this.#kind.takeUp(id);
  }

  accepted(id: string): void {
    this.#kind.takeUp(id);
  }

  wake(id: string): void {
    this.#kind.takeUp(id);
  }

  signal(): Promise<readonly Write[]> {
    return Promise.resolve([]);
  }

  waitsForWorkspace(): Promise<boolean> {
    return Promise.resolve(false);
  }

  news(heard: Promise<void>): Promise<void> {
    return heard;
  }

  stop(): Promise<void> {
    return Promise.resolve();
  }

  opening(): undefined {}
  tell(): void {}
}

/** Makes the part of a gateway alone. */
export const loneWork: MakeWork = (kind) => new LoneWork(kind);
