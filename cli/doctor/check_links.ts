import { systemClock } from "../../lib/base/clock.ts";
import { ConfigError, messageOf } from "../../lib/base/errors.ts";
import { VERSION } from "../../lib/base/version.ts";
import { checkClusterToken, GatewayLinkError, GatewayLinks } from "../../lib/cluster/gateway_links.ts";
import type { GatewayView } from "../../lib/cluster/leases.ts";
import type { OpenedOverview } from "../../lib/cluster/open_overview.ts";
import type { Config } from "../../lib/config/config.ts";
import { failure, type Finding, warning } from "./finding.ts";

/** Gateways that are asked, the first ones by their ids. */
const MAX_ASKED = 20;
/** Time for all of them, in ms. */
const ASKING_MS = 6_000;

/** Options of `checkLinks` and `checkToken`. */
export interface LinkCheckOptions {
  readonly config: Config;
  /** Reads an environment variable */
  readonly environment: (name: string) => string | undefined;
  /** True: a gateway runs on the data directory, which has other variables than this terminal perhaps. */
  readonly isRunning: boolean;
}

/** Checks that a start finds the token of the cluster, where the configuration names one. */
export function checkToken(name: string, { config, environment, isRunning }: LinkCheckOptions): readonly Finding[] {
  const { token_env: variable } = config.cluster;
  try {
    if (variable !== "") checkClusterToken(environment(variable), variable);
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const fix = `export ${variable}=... where the gateway is started, the same at all gateways`;
    if (!isRunning) return [failure(name, error.message, fix)];
    return [warning(name, `A start from this terminal is refused, and no link is looked at: ${error.message}`, fix)];
  }
}

/**
 * Asks each gateway at its `advertise_url` who it is, with the token of the cluster. The token goes where gateways send it too: to addresses in
 * leases that pass the check of the own one.
 * @returns a warning for each address that does not answer, refuses the token, or leads to another gateway
 */
export async function checkLinks(
  name: string,
  { store, leases }: Pick<OpenedOverview, "store" | "leases">,
  options: LinkCheckOptions,
): Promise<readonly Finding[]> {
  const { config: { cluster: { token_env: variable, insecure } }, environment } = options;
  const linked = (await leases.list()).filter(({ leftMs, about }) => leftMs > 0 && about.advertise_url !== undefined);
  const [first] = linked;
  if (first === undefined || checkToken(name, options).length > 0) return [];
  if (variable === "") {
    const message = `${placeOf(first)} has cluster.advertise_url, and this configuration has no cluster.token_env`;
    return [warning(name, message, "set cluster.token_env to a variable with the token of the other gateways")];
  }
  const { createDirectFetch } = await import("../../lib/system/net/direct_fetch.ts");
  const direct = createDirectFetch();
  const { fetch } = direct;
  const links = new GatewayLinks({ store, fetch, insecure, token: environment(variable), clock: systemClock, id: "" });
  const asking = new AbortController();
  const late = new GatewayLinkError(`was silent for ${ASKING_MS / 1_000} s`);
  const timer = systemClock.after(ASKING_MS, () => asking.abort(late));
  try {
    const found = await Promise.all(
      linked.slice(0, MAX_ASKED).map((gateway) => ask(name, { links, gateway, signal: asking.signal })),
    );
    return found.filter((problem) => problem !== undefined);
  } finally {
    timer.clear();
    await direct.close();
  }
}

async function ask(
  name: string,
  { links, gateway, signal }: {
    readonly links: GatewayLinks;
    readonly gateway: GatewayView;
    readonly signal: AbortSignal;
  },
): Promise<Finding | undefined> {
  const place = placeOf(gateway);
  const fix = `correct cluster.advertise_url of ${gateway.id}`;
  const to = await links.find(gateway);
  // The gateway has ended meanwhile
  if (to === undefined) return undefined;
  if (to.address === undefined) return warning(name, `The link to ${place} cannot be made: ${to.problem}`, fix);
  const what = `The link to ${place} at ${to.address}`;
  try {
    const answering = await links.whoAnswers(to, signal);
    return answering === gateway.id ? undefined : warning(name, `${what} leads to another gateway: ${answering}`, fix);
  } catch (error) {
    if (!(error instanceof GatewayLinkError)) throw error;
    const { status, message, cause } = error;
    // An earlier version does not tell who it is
    if (status === 404 && gateway.about.version !== VERSION) return undefined;
    const why = cause === undefined ? "" : ` (${reasonOf(cause)})`;
    const isToken = status === 401 || status === 403;
    return warning(name, `${what} ${message}${why}`, isToken ? "give all gateways the same token" : fix);
  }
}

/** Returns why a request got no answer: the code of the system's error inside, such as `ECONNREFUSED`. */
function reasonOf(error: unknown): string {
  const inner = error instanceof Error && error.cause !== undefined ? error.cause : error;
  const code = typeof inner === "object" && inner !== null && "code" in inner ? inner.code : undefined;
  return typeof code === "string" ? code : messageOf(inner);
}

function placeOf({ id, about: { host, pid } }: GatewayView): string {
  return `${id} (${host}:${pid})`;
}
