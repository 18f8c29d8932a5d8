import type { Clock, Timer } from "../../lib/base/clock.ts";
import { refuse } from "../../lib/base/errors.ts";
import { Poller } from "../../lib/base/poller.ts";
import type { ConversationResources } from "./conversation_resources.ts";
import { isConversation } from "./mcp_methods.ts";

/** How often watched conversations are looked at, in milliseconds. */
const LOOK_MS = 2_000;
/** Time in which changes of one resource are told once, in milliseconds. */
const TOGETHER_MS = 100;
/** Subscriptions of all clients, and of one token: no client takes the room of all others. */
export const WATCH_LIMITS = { all: 1_024, perToken: 256 } as const;
/** Characters of an address. */
const MAX_URI = 2_048;

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
  readonly #byToken = new Map<string | null, number>();
  readonly #poller = new Poller(() => this.#lookAtAll());
  #isLooking = false;
  #telling: Timer | undefined = undefined;

  constructor(
    { conversations, clock }: { readonly conversations: Pick<ConversationResources, "find">; readonly clock: Clock },
  ) {
    this.#conversations = conversations;
    this.#clock = clock;
  }

  /**
   * Watches the resource at an address. One function that is given several times for an address is called once for each change.
   * @param tokenId of the client; null while pairing is off
   * @returns a function that ends this
   * @throws {HttpError} 400 invalid_request for a long address, 503 overloaded
   */
  add(uri: string, tell: Tell, tokenId: string | null): () => void {
    const own = this.#byToken.get(tokenId) ?? 0;
    if (uri.length > MAX_URI) {
      throw refuse("invalid_request", `Cannot subscribe: an address has at most ${MAX_URI} characters`);
    }
    const { all, perToken } = WATCH_LIMITS;
    if (this.#subscriptions >= all || own >= perToken) {
      const [count, whose] = own < perToken ? [all, "all clients"] : [perToken, "this token"];
      throw refuse("overloaded", `Cannot subscribe: ${count} resources of ${whose} are watched already`);
    }
    this.#subscriptions++;
    this.#byToken.set(tokenId, own + 1);
    const watched = this.#watched.get(uri) ?? this.#begin(uri);
    watched.tells.set(tell, (watched.tells.get(tell) ?? 0) + 1);
    let isOver = false;
    return () => {
      if (!isOver) this.#remove(watched, tell, tokenId);
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
    void this.#poller.stop();
    this.#isLooking = false;
    this.#telling?.clear();
    this.#telling = undefined;
    this.#changed.clear();
  }

  #begin(uri: string): Watched {
    const watched: Watched = { uri, tells: new Map(), changedAt: undefined, isKnown: false };
    this.#watched.set(uri, watched);
    if (isConversation(uri)) {
      void this.#look(watched);
      if (!this.#isLooking) this.#poller.start(this.#clock, LOOK_MS);
      this.#isLooking = true;
    }
    return watched;
  }

  #remove(watched: Watched, tell: Tell, tokenId: string | null): void {
    this.#subscriptions--;
    const own = (this.#byToken.get(tokenId) ?? 1) - 1;
    if (own > 0) this.#byToken.set(tokenId, own);
    else this.#byToken.delete(tokenId);
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
