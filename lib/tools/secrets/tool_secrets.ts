import { CancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { createKeyedMutex, type KeyedMutex } from "../../base/keyed_queues.ts";
import type { Config } from "../../config/config.ts";
import type { SecretPlace } from "../../config/schema/value.ts";
import type { SecretChildKind } from "../../config/secret_checks.ts";
import { readSecretFile } from "../../config/secrets.ts";
import { hostAndPort, isLoopbackName } from "../../system/net/address.ts";
import type { GuardedFetch } from "../../system/net/guarded_fetch.ts";
import { isAmongHosts, type UrlRules } from "../../system/net/url_rules.ts";
import { createOAuthTokens, type OAuthClient, type OAuthTokens } from "./oauth_tokens.ts";

/** Shorter values cannot be masked where they appear: they would match by chance. */
const MIN_BYTES = 8;
/** Characters that no variable may hold. */
const UNFIT = /\0/;
// deno-lint-ignore no-control-regex
const UNFIT_IN_HEADER = /[\0-\x08\x0a-\x1f\x7f-\x9f]|[^\0-\xff]/;
/** Line of a key. Its first and last line are the same in all keys, and have blanks. */
const KEY_LINE = /^\S{16,}$/;
/** Time that the output of a command is used before it runs again. */
const COMMAND_TTL_MS = 300_000;

/** Program or server of others that has settings, as `[secrets.<name>]` names it: an MCP server, or a plugin by its id. */
export interface SecretChild {
  readonly kind: SecretChildKind;
  readonly name: string;
}

/** Use of the secrets in the settings of a child. */
export interface ChildUse {
  readonly child: SecretChild;
  /** Address that a request with the value goes to. Default: the child gets the value itself, and nobody can say where it takes it */
  readonly url?: URL | undefined;
  readonly signal: AbortSignal;
}

/** Value of a setting: the value itself, or the name of a secret in its place. */
export type ChildSetting = string | number | boolean | SecretPlace;

/** Use of one secret: by a tool, for a request to this address. */
export interface SecretUse {
  readonly tool: string;
  readonly url: URL;
  readonly signal: AbortSignal;
}

/** Values that a tool may use and the model may not see (docs/design/tools.md "Secrets"). */
export interface ToolSecrets {
  /**
   * Returns the value of `[secrets.<name>]`. It is known to the redactor before it is returned.
   * @throws {ToolError} `secret_unknown`, `secret_refused` for a tool or host that it is not for, `secret_exposed` for plain http to
   * another machine, `secret_missing` when it cannot be read or is too short
   * @throws {CancelError} when the signal aborts
   */
  value(name: string, use: SecretUse): Promise<string>;
  /**
   * Returns the settings of a child with the values of secrets in the places of their names. Each is known to the redactor before. Call it
   * where the settings are used, as late as possible, and keep nothing of what it returns.
   * @throws {ToolError} as `value`; `secret_refused` for a child that `mcp` or `plugins` of the secret does not name
   * @throws {CancelError} when the signal aborts
   */
  fill<T extends ChildSetting>(
    settings: Readonly<Record<string, T>>,
    use: ChildUse,
  ): Promise<Readonly<Record<string, Exclude<T, SecretPlace> | string>>>;
  /**
   * Makes a value known to the redactor and checks that it may go to an address.
   * @throws {ToolError} `secret_exposed`, `secret_missing`
   */
  guard(value: string, from: { readonly source: string; readonly url: URL }): Promise<string>;
  /**
   * Returns a token of an OAuth client, fetched at its first use and again before it expires, by one request at a time.
   * @throws {ToolError} as `value` and a guarded fetch, and `token_refused`
   * @throws {CancelError} when the signal aborts
   */
  token(client: OAuthClient, use: SecretUse): Promise<string>;
  /** Drops a token that was refused, so that the next use fetches another. */
  dropToken(client: OAuthClient, token: string): Promise<void>;
}

/** Options of `SecretStore`. */
export interface ToolSecretsOptions {
  /** Returns the newest configuration */
  readonly config: () => Pick<Config, "secrets"> & { readonly url_access: UrlRules };
  readonly clock: Clock;
  readonly environment: (name: string) => string | undefined;
  /** Makes a secret known to the redactor, by a name for a person */
  readonly onSecret: (secret: string, name: string) => void;
  /** Makes tokens known to the redactor in place of those of the same name before */
  readonly onTokens: (name: string, secrets: readonly string[]) => void;
  /** Runs the command of a secret and returns its output. @throws {ToolError} */
  readonly run: (words: readonly string[], signal: AbortSignal) => Promise<string>;
  readonly guardedFetch: () => Promise<GuardedFetch>;
}

/** The store of secrets for tools. Nothing is read before the first use. */
export class SecretStore implements ToolSecrets {
  readonly #options: ToolSecretsOptions;
  /** Outputs of commands by their words as JSON, until they are to be read again */
  readonly #printed = new Map<string, { readonly value: string; readonly until: number }>();
  readonly #oneAtATime: KeyedMutex = createKeyedMutex();
  readonly #tokens: OAuthTokens;

  constructor(options: ToolSecretsOptions) {
    this.#options = options;
    const { clock, guardedFetch, config, onSecret, onTokens } = options;
    const rules = () => config().url_access;
    this.#tokens = createOAuthTokens({ clock, guardedFetch, rules, onSecret, onTokens });
  }

  async value(name: string, use: SecretUse): Promise<string> {
    const secret = this.#entitled(name, use);
    const value = await this.#read(secret, use.signal);
    return await this.guard(value, { source: `[secrets.${name}]`, url: use.url });
  }

  async fill<T extends ChildSetting>(
    settings: Readonly<Record<string, T>>,
    use: ChildUse,
  ): Promise<Readonly<Record<string, Exclude<T, SecretPlace> | string>>> {
    const filled = await Promise.all(
      Object.entries(settings).map(async ([key, value]) => {
        if (typeof value !== "object") return [key, value] as const;
        return [key, `${value.prefix}${await this.#childValue(value.secret, use)}`] as const;
      }),
    );
    // Each place of a secret is a text now
    return Object.fromEntries(filled) as Readonly<Record<string, Exclude<T, SecretPlace> | string>>;
  }

  async #childValue(name: string, { child: { kind, name: child }, url, signal }: ChildUse): Promise<string> {
    const secret = this.#known(name);
    if (!secret[kind].includes(child)) {
      const what = kind === "mcp" ? "MCP server" : "plugin";
      throw refused(name, `add "${child}" to ${kind} of [secrets.${name}] to allow it for this ${what}`);
    }
    if (url !== undefined) requireHost(name, { secret, url });
    const value = await this.#read(secret, signal);
    return this.#checked(value, { source: `[secrets.${name}]`, isSent: url !== undefined });
  }

  #known(name: string): Config["secrets"][string] {
    const { secrets } = this.#options.config();
    const secret = Object.hasOwn(secrets, name) ? secrets[name] : undefined;
    if (secret !== undefined) return secret;
    throw new ToolError("secret_unknown", `Cannot use the secret "${name}": there is no [secrets.${name}]`);
  }

  /** Returns a secret that this use is allowed, by the newest configuration. */
  #entitled(name: string, { tool, url }: SecretUse): Config["secrets"][string] {
    const secret = this.#known(name);
    if (!secret.tools.includes(tool)) {
      throw refused(name, `add "${tool}" to tools of [secrets.${name}] to allow it for this tool`);
    }
    requireHost(name, { secret, url });
    return secret;
  }

  guard(value: string, { source, url }: { readonly source: string; readonly url: URL }): Promise<string> {
    requireCover(source, url);
    return Promise.resolve(this.#checked(value, { source, isSent: true }));
  }

  /** Makes a value known to the redactor. @param options.isSent it goes into a header. @throws {ToolError} `secret_missing` */
  #checked(value: string, { source, isSent }: { readonly source: string; readonly isSent: boolean }): string {
    const fault = faultOf(value, isSent ? UNFIT_IN_HEADER : UNFIT);
    if (fault !== undefined) throw new ToolError("secret_missing", `Cannot use the value of ${source}: ${fault}`);
    this.#options.onSecret(value, source);
    // A child may show a key of many lines line by line
    for (const line of value.split("\n")) if (KEY_LINE.test(line.trim())) this.#options.onSecret(line.trim(), source);
    return value;
  }

  async token(client: OAuthClient, { tool, url, signal }: SecretUse): Promise<string> {
    requireCover(`[${client.table}]`, url);
    const use = { tool, url: new URL(client.tokenUrl), signal };
    // A kept token is no longer given when the configuration takes the right to its secret away
    this.#entitled(client.secret, use);
    return await this.#tokens.get(client, () => this.value(client.secret, use), signal);
  }

  dropToken(client: OAuthClient, token: string): Promise<void> {
    this.#tokens.drop(client, token);
    return Promise.resolve();
  }

  async #read({ env, file, command }: Config["secrets"][string], signal: AbortSignal): Promise<string> {
    if (env !== "") return this.#options.environment(env)?.trim() ?? "";
    if (file !== "") return await readSecretFile(file);
    const key = JSON.stringify(command);
    return await this.#oneAtATime(key, async () => {
      const now = this.#options.clock.monotonic();
      const known = this.#printed.get(key);
      if (known !== undefined && known.until > now) return known.value;
      const value = await this.#print(command, signal);
      this.#printed.set(key, { value, until: now + COMMAND_TTL_MS });
      return value;
    });
  }

  /** Runs a command. Its failure names no word of it: arguments may be secret. */
  async #print(command: readonly string[], signal: AbortSignal): Promise<string> {
    try {
      return (await this.#options.run(command, signal)).trim();
    } catch (error) {
      if (error instanceof CancelError || !(error instanceof ToolError)) throw error;
      throw new ToolError("secret_missing", `Cannot read the secret: ${error.message}`, { cause: error });
    }
  }
}

/** Returns why a value cannot be used; undefined for one that can. */
function faultOf(value: string, unfit: RegExp): string | undefined {
  if (value === "") return "it cannot be read or is empty";
  if (Buffer.byteLength(value) < MIN_BYTES) return `it has fewer than ${MIN_BYTES} bytes, too few to be masked`;
  // The runtime would quote such a value in its refusal of a header or a variable
  return unfit.test(value)
    ? "it holds a character that cannot be passed on, such as a line break in a header"
    : undefined;
}

/** Refuses a host that a secret is not for. */
function requireHost(
  name: string,
  { secret, url }: { readonly secret: Config["secrets"][string]; readonly url: URL },
): void {
  const { host } = hostAndPort(url);
  if (!isAmongHosts(host, secret.hosts)) {
    throw refused(name, `add "${host}" to hosts of [secrets.${name}] to allow it for this host`);
  }
  requireCover(`[secrets.${name}]`, url);
}

/** Refuses plain http to another machine, where everybody on the way reads along. */
function requireCover(source: string, url: URL): void {
  if (url.protocol === "https:" || isLoopbackName(url.hostname)) return;
  throw new ToolError(
    "secret_exposed",
    `Cannot send the value of ${source} to "${url.host}": it would go over plain http; use an https address`,
  );
}

function refused(name: string, way: string): ToolError {
  return new ToolError("secret_refused", `Cannot use the secret "${name}": ${way}`);
}
