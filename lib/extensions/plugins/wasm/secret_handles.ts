import { CancelError } from "../../../base/cancel.ts";
import { ToolError } from "../../../base/errors.ts";
import type { Random } from "../../../base/random.ts";
import type { SecretPlace } from "../../../config/schema/value.ts";
import type { ToolSecrets } from "../../../tools/secrets/tool_secrets.ts";
import { nameSecrets, type PluginSettings } from "../plugin_settings.ts";

/** Begin of every handle, which no other text has by chance. */
const PREFIX = "postern-secret-";
const HANDLE = /postern-secret-\w*/g;
/** Headers that would get an echo of a secret in forms or pieces that cannot be masked. */
const WITHHELD: ReadonlySet<string> = new Set(["accept-encoding", "if-range", "range"]);

/** Parts of a SecretHandles. */
export interface SecretHandlesOptions {
  /** Id of the plugin */
  readonly id: string;
  /** Names the plugin in errors, such as `plugin "weather"` */
  readonly title: string;
  readonly settings: PluginSettings | undefined;
  readonly secrets: Pick<ToolSecrets, "fill">;
  readonly random: Random;
}

/** Headers by their names. */
type Headers = Readonly<Record<string, string>>;

/**
 * Handles that stand for the secrets of one plugin: texts that its module gets in their place, and puts into the headers of its requests.
 * They are worth nothing to anybody else, and nothing outside of headers.
 */
export class SecretHandles {
  /** Settings as the module gets them, all as texts */
  readonly settings: Headers;
  readonly #options: SecretHandlesOptions;
  readonly #places = new Map<string, SecretPlace>();
  #areKnown = false;

  constructor(options: SecretHandlesOptions) {
    this.#options = options;
    const entries = Object.entries(options.settings ?? {}).map(([key, value]): [string, string] => {
      if (typeof value !== "object") return [key, String(value)];
      const handle = options.random.id(PREFIX);
      this.#places.set(handle, { ...value, prefix: "" });
      return [key, value.prefix + handle];
    });
    this.settings = Object.fromEntries(entries);
  }

  /** True when the plugin has a secret, so that what comes back is masked. */
  get isUsed(): boolean {
    return nameSecrets(this.#options.settings);
  }

  /**
   * Returns the headers of a request by the address that they go to: with the values in the places of the handles at the origin that the
   * request is for, and without those headers at any other origin that it is redirected to.
   * @throws {ToolError} `secret_refused` for a handle outside of headers, and one that is not the plugin's own; as ToolSecrets.fill
   */
  async headersFor(
    { url, headers, body }: { readonly url: string; readonly headers: Headers; readonly body: Uint8Array | undefined },
    signal: AbortSignal,
  ): Promise<(url: URL) => Headers> {
    const target = URL.parse(url);
    const names = Object.keys(headers).join("\n");
    for (const [where, text] of [["URL", url], ["URL", decoded(url)], ["names of headers", names]] as const) {
      if (text.includes(PREFIX)) throw this.#refused(`its ${where} holds a secret, which goes in a header`);
    }
    if (body !== undefined && Buffer.from(body.buffer, body.byteOffset, body.length).includes(PREFIX)) {
      throw this.#refused("its body holds a secret, which goes in a header");
    }
    if (!this.isUsed || target === null) return this.#withoutHandles(headers);
    await this.#makeKnown(signal);
    const sent = Object.entries(headers).filter(([name]) => !WITHHELD.has(name.toLowerCase()));
    const plain = sent.filter(([, value]) => !value.includes(PREFIX));
    const secret = sent.filter(([, value]) => value.includes(PREFIX));
    const filled = await Promise.all(
      secret.map(async ([name, value]) => [name, await this.#fill(value, { url: target, signal })] as const),
    );
    const [without, whole] = [Object.fromEntries(plain), Object.fromEntries([...plain, ...filled])];
    return (to) => to.origin === target.origin ? whole : without;
  }

  #withoutHandles(headers: Headers): () => Headers {
    if (Object.values(headers).some((value) => value.includes(PREFIX))) throw this.#notOwn();
    return () => headers;
  }

  /** Makes all secrets of the plugin known to the redactor once: a server may send back one that it got before. */
  async #makeKnown(signal: AbortSignal): Promise<void> {
    if (this.#areKnown) return;
    const { id, secrets } = this.#options;
    for (const place of this.#places.values()) {
      try {
        await secrets.fill({ value: place }, { child: { kind: "plugins", name: id }, signal });
      } catch (error) {
        // The use of a secret says what is wrong with it. A call that is aborted leaves the rest to the next one
        if (error instanceof CancelError) throw error;
      }
    }
    // Set last: a call beside this one must not go on while a secret is unknown
    this.#areKnown = true;
  }

  async #fill(value: string, { url, signal }: { readonly url: URL; readonly signal: AbortSignal }): Promise<string> {
    const { id, secrets } = this.#options;
    const places = Object.fromEntries(
      (value.match(HANDLE) ?? []).map((handle) => {
        const place = this.#places.get(handle);
        if (place === undefined) throw this.#notOwn();
        return [handle, place] as const;
      }),
    );
    const values = await secrets.fill(places, { child: { kind: "plugins", name: id }, url, signal });
    return value.replace(HANDLE, (handle) => values[handle] ?? "");
  }

  #notOwn(): ToolError {
    return this.#refused("its headers name a secret that is none of its settings");
  }

  #refused(reason: string): ToolError {
    return new ToolError("secret_refused", `Cannot send the request of ${this.#options.title}: ${reason}`);
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
