import type { Clock, Timer } from "../../lib/base/clock.ts";
import { httpError } from "../wire/http_errors.ts";
import type { ConversationResources } from "./conversation_resources.ts";

/** How often a watched conversation is looked at, in milliseconds. */
const LOOK_MS = 2_000;
/** Watched conversations of all clients. */
const MAX_WATCHED = 1_024;

/** A conversation that a client wants to hear of. */
interface Watched {
  readonly uri: string;
  readonly tell: () => void;
  /** Time of its last change that the client knows. undefined before the first look, and where there is none */
  changedAt: string | undefined;
  isKnown: boolean;
}

/** Tells clients that subscribed to a conversation when it changes. It sleeps while nobody does. */
export class ConversationWatch {
  readonly #resources: Pick<ConversationResources, "find">;
  readonly #clock: Clock;
  readonly #watched = new Set<Watched>();
  #timer: Timer | undefined = undefined;

  constructor(
    { resources, clock }: { readonly resources: Pick<ConversationResources, "find">; readonly clock: Clock },
  ) {
    this.#resources = resources;
    this.#clock = clock;
  }

  /** Watches the resource at an address. @returns a function that ends this. @throws {HttpError} 503 overloaded */
  add(uri: string, tell: () => void): () => void {
    if (this.#watched.size >= MAX_WATCHED) {
      throw httpError("overloaded", `Cannot subscribe: ${MAX_WATCHED} resources are watched already`);
    }
    const watched: Watched = { uri, tell, changedAt: undefined, isKnown: false };
    this.#watched.add(watched);
    void this.#look(watched);
    this.#timer ??= this.#clock.every(LOOK_MS, () => void this.#lookAtAll());
    return () => {
      this.#watched.delete(watched);
      if (this.#watched.size === 0) this.stop();
    };
  }

  stop(): void {
    this.#timer?.clear();
    this.#timer = undefined;
  }

  async #lookAtAll(): Promise<void> {
    for (const watched of [...this.#watched]) await this.#look(watched);
  }

  async #look(watched: Watched): Promise<void> {
    const now = await this.#resources.find(watched.uri).then(({ updated_at }) => updated_at, () => undefined);
    if (!this.#watched.has(watched)) return;
    const hasChanged = watched.isKnown && now !== watched.changedAt;
    watched.isKnown = true;
    watched.changedAt = now;
    if (hasChanged) watched.tell();
  }
}
