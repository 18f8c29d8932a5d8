import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { haltedPart } from "../../lib/base/records/gateway_status.ts";
import type { Services } from "../../lib/services.ts";
import type { CommandContainment } from "../../lib/system/process/containment.ts";
import type { CommandContext } from "../command.ts";
import { printableLine, toDefinitions } from "../terminal/terminal_text.ts";

/** Facts that a gateway prints once it is started. With --json they are printed as this object. */
export interface BannerFacts {
  readonly version: string;
  readonly pid: number;
  readonly address: string;
  readonly dashboard: string;
  readonly host: string;
  readonly port: number;
  /** Code for the first client. Null: there is none, as while a token is stored or with pairing off */
  readonly pairing_code: string | null;
  readonly provider: string | null;
  readonly model: string | null;
  readonly provider_reason: string;
  /** False when the model is shown no tools, since its chat template knows none. Null: its server does not say */
  readonly supports_tools: boolean | null;
  /** Work that a person has halted, in words */
  readonly halted: readonly string[];
  /** Containment of the commands that tools run */
  readonly containment: CommandContainment;
  readonly workspace: string;
  readonly data_dir: string;
  /** Schema of the PostgreSQL database that has the records. Null: they are in the data directory */
  readonly schema: string | null;
  /** Id of this gateway in its cluster. Null: it is alone */
  readonly gateway: string | null;
  /** Address of this gateway for the others of its cluster. Null: they cannot reach it, or there is none */
  readonly advertise_url: string | null;
  /** Path of the configuration file. Null: every value is the default */
  readonly config_file: string | null;
}

/** Code for the first client, or the reason why a start shows none. */
export type FirstPairing = { readonly code: string } | { readonly code: null; readonly reason: string };

/** Reason of a start that shows no code, since there is a client. */
export const PAIRED: FirstPairing = { code: null, reason: "Paired already" };

/** Sources of the banner's facts. */
export interface BannerParts {
  readonly services: Services;
  readonly loaded: LoadedConfig;
  readonly server: { readonly url: string; readonly host: string; readonly port: number };
  readonly pairing: FirstPairing;
  readonly containment: CommandContainment;
  readonly supportsTools: boolean | undefined;
  readonly pid: number;
}

/** Gathers the facts that the banner shows. */
export function bannerFacts(
  { services, loaded, server, pairing, containment, supportsTools, pid }: BannerParts,
): BannerFacts {
  const inUse = services.agent?.providers.inUse;
  return {
    version: services.version,
    pid,
    address: server.url,
    dashboard: server.url,
    host: server.host,
    port: server.port,
    pairing_code: pairing.code,
    provider: inUse?.name ?? null,
    model: inUse?.model ?? null,
    provider_reason: inUse?.reason ?? "there is no agent: provider.kind is none, or --no-agent was given",
    supports_tools: supportsTools ?? null,
    halted: services.halts.list().map((halt) => `${haltedPart(halt)}, since ${halt.halted_at}`),
    containment,
    workspace: loaded.workspace,
    data_dir: loaded.dataDir,
    schema: loaded.config.storage.driver === "postgres" ? loaded.config.storage.schema : null,
    gateway: services.cluster.id ?? null,
    advertise_url: services.cluster.advertiseUrl ?? null,
    config_file: loaded.file?.path ?? null,
  };
}

/** Returns the banner for people, wrapped to the terminal's width where it is known. The pairing code has a plain line of its own, since scripts look for it. */
export function bannerText(
  facts: BannerFacts,
  { columns, named, ...options }: PairingTextOptions & { readonly columns: number | undefined },
): string {
  const model = facts.provider === null
    ? "none"
    : `${facts.provider}/${facts.model === "" ? "(its default model)" : facts.model}`;
  const rows = ([
    ["Address", facts.address],
    ["Dashboard", facts.dashboard],
    ["Provider", `${model}, since ${named(facts.provider_reason)}`],
    ...facts.supports_tools === false
      ? [["Tools", "none reach this model, whose chat template knows none: it invents what they would say"] as const]
      : [],
    ...facts.halted.map((words) => ["Halted", `${words}; ${named("postern resume")} lets it go on`] as const),
    ["Sandbox", facts.containment.text],
    ["Workspace", facts.workspace],
    ...facts.schema === null
      ? [["Records", facts.data_dir] as const]
      : [["Records", `PostgreSQL, schema "${facts.schema}"`] as const, ["Data", facts.data_dir] as const],
    ...facts.gateway === null
      ? []
      : [["Cluster", `${clusterPlace(facts)}; ${named("postern cluster status")} shows all gateways`] as const],
    ["Configuration", facts.config_file ?? named("no file, all defaults (postern init writes one)")],
  ] as const).map(([name, value]) => [name, printableLine(value)] as const);
  return `Postern ${facts.version} is running

${toDefinitions(rows, columns)}

${pairingText(facts.dashboard, { ...options, named })}
Stop it with Ctrl-C.
`;
}

function clusterPlace({ gateway, advertise_url }: BannerFacts): string {
  return advertise_url === null ? `${gateway}` : `${gateway}, which the others reach at ${advertise_url}`;
}

/** Options of `pairingText`. */
export interface PairingTextOptions {
  /** True: clients need a token, as `[gateway] require_pairing` says */
  readonly requiresPairing: boolean;
  readonly pairing: FirstPairing;
  /** Data directory that the command line names. Undefined: commands find the gateway without it */
  readonly dataDir: string | undefined;
  /** As of `CommandContext` */
  readonly named: CommandContext["named"];
}

/** Returns how to pair with a gateway: the code on a plain line of its own, or the reason why there is none. */
export function pairingText(
  dashboard: string,
  { requiresPairing, pairing, dataDir, named }: PairingTextOptions,
): string {
  if (!requiresPairing) return "Pairing is off: every program on this machine may use the gateway.\n";
  if (pairing.code === null) {
    const where = dataDir === undefined ? "" : ` --data-dir ${/\s/.test(dataDir) ? JSON.stringify(dataDir) : dataDir}`;
    return `${pairing.reason}. A further code: ${named("postern pair")}${where}\n`;
  }
  return `Pairing code: ${pairing.code}
  Type it into the dashboard, or trade it for a token with
  curl -X POST -H "X-Pairing-Code: ${pairing.code}" ${new URL("pair", dashboard).href}
`;
}
