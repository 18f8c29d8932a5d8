import type { Clock, Timer } from "../../lib/base/clock.ts";
import { httpError } from "../wire/http_errors.ts";
import type { ConversationResources } from "./conversation_resources.ts";
import { isConversation } from "./mcp_methods.ts";

/** How often watched conversations are looked at, in milliseconds. */
const LOOK_MS = 2_000;
/** Time in which changes of one resource are told once, in milliseconds. */
const TOGETHER_MS = 100;
/** Subscriptions of all clients. */
const MAX_WATCHED = 1_024;

/** A resource that clients want to hear of. */
interface Watched {
  readonly uri: string;
  /** Functions that tell clients, each with the number of its subscriptions */
  readonly tells: Map<Tell, number>;
  /** Time of its last change that the clients know. undefined before the first look, and where there is none */
  changedAt: string | undefined;
  isKnown: boolean;
}

/** Tells clients that the resource at an address has changed. */
export type Tell = (uri: string) => void;

/** Tells clients that subscribed to a resource when it changes: conversations by looking at them, others when their program says so. */
export class ResourceWatch {
  readonly #conversations: Pick<ConversationResources, "find">;
  readonly #clock: Clock;
  readonly #watched = new Map<string, Watched>();
  /** Addresses whose change is about to be told */
  readonly #changed = new Set<string>();
  #subscriptions = 0;
  #looking: Timer | undefined = undefined;
  #telling: Timer | undefined = undefined;

  constructor(
    { conversations, clock }: { readonly conversations: Pick<ConversationResources, "find">; readonly clock: Clock },
  ) {
    this.#conversations = conversations;
    this.#clock = clock;
  }

  /**
   * Watches the resource at an address. One function that is given several times for an address is called once for each change.
   * @returns a function that ends this
   * @throws {HttpError} 503 overloaded
   */
  add(uri: string, tell: Tell): () => void {
    if (this.#subscriptions >= MAX_WATCHED) {
      throw httpError("overloaded", `Cannot subscribe: ${MAX_WATCHED} resources are watched already`);
    }
    this.#subscriptions++;
    const watched = this.#watched.get(uri) ?? this.#begin(uri);
    watched.tells.set(tell, (watched.tells.get(tell) ?? 0) + 1);
    let isOver = false;
    return () => {
      if (!isOver) this.#remove(watched, tell);
      isOver = true;
    };
  }

  /** Tells the clients that subscribed to an address of a change. Changes that come together are told once. */
  changed(uri: string): void {
    if (!this.#watched.has(uri)) return;
    this.#changed.add(uri);
    this.#telling ??= this.#clock.after(TOGETHER_MS, () => {
      this.#telling = undefined;
      const changed = [...this.#changed];
      this.#changed.clear();
      for (const one of changed) this.#tell(this.#watched.get(one));
    });
  }

  stop(): void {
    this.#looking?.clear();
    this.#looking = undefined;
    this.#telling?.clear();
    this.#telling = undefined;
    this.#changed.clear();
  }

  #begin(uri: string): Watched {
    const watched: Watched = { uri, tells: new Map(), changedAt: undefined, isKnown: false };
    this.#watched.set(uri, watched);
    if (isConversation(uri)) {
      void this.#look(watched);
      this.#looking ??= this.#clock.every(LOOK_MS, () => void this.#lookAtAll());
    }
    return watched;
  }

  #remove(watched: Watched, tell: Tell): void {
    this.#subscriptions--;
    const left = (watched.tells.get(tell) ?? 1) - 1;
    if (left > 0) return void watched.tells.set(tell, left);
    watched.tells.delete(tell);
    if (watched.tells.size > 0) return;
    this.#watched.delete(watched.uri);
    if (this.#watched.size === 0) this.stop();
  }

  async #lookAtAll(): Promise<void> {
    for (const watched of [...this.#watched.values()]) if (isConversation(watched.uri)) await this.#look(watched);
  }

  async #look(watched: Watched): Promise<void> {
    const now = await this.#conversations.find(watched.uri).then(({ updated_at }) => updated_at, () => undefined);
    if (this.#watched.get(watched.uri) !== watched) return;
    const hasChanged = watched.isKnown && now !== watched.changedAt;
    watched.isKnown = true;
    watched.changedAt = now;
    if (hasChanged) this.#tell(watched);
  }

  #tell(watched: Watched | undefined): void {
    for (const tell of watched?.tells.keys() ?? []) tell(watched?.uri ?? "");
  }
}
