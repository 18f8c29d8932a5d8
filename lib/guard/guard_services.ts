import { existsSync } from "node:fs";
import type { RecordAccess } from "../access/identity.ts";
import type { Clock } from "../base/clock.ts";
import { lazyService } from "../base/lazily.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Random } from "../base/random.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Metrics } from "../base/telemetry/metrics.ts";
import type { Config } from "../config/config.ts";
import { trustStorePath } from "../config/trust_store.ts";
import type { LoginEvent } from "../memory/browser_logins.ts";
import type { Commit, TrustedServer } from "../providers/discovery/provider_memory.ts";
import type { Store, Write } from "../storage/store.ts";
import { type Approvals, keepTidy } from "./approvals.ts";
import type { ApprovalNews } from "./approval_records.ts";
import { type Audit, type AuditOptions, createAudit } from "./audit/audit.ts";
import { accessEvent, loginEvent } from "./audit/audit_event.ts";
import { createApprovals } from "./create_approvals.ts";
import type { AskProgram } from "./program_approver.ts";
import type { TaintedFiles, TaintWorkspace } from "./tainted_files.ts";
import type { TrustedDocuments } from "./trusted_documents.ts";

/** Gateways with which this one shares approvals, and each of which has an audit of its own. */
export interface GuardCluster {
  /** Opens the chain that this gateway writes among others, see `AuditOptions` */
  readonly openChain: AuditOptions["openChain"];
  /** Opens the news of approvals. Undefined: nobody else settles one */
  openApprovalNews(
    parts: Pick<GuardServicesOptions, "store" | "clock" | "log">,
  ): ApprovalNews | undefined | Promise<ApprovalNews>;
}

/** Options of `createGuardServices`. */
export interface GuardServicesOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** The newest configuration. */
  readonly config: () => Pick<Config, "security" | "runs">;
  /** Masks secrets in the audit. */
  readonly redact: (text: string) => string;
  /** Folder of the list of configuration files that a person accepted. Default: no acceptance is recorded */
  readonly trustDir?: string | undefined;
  /** Program around the gateway. Where it answers approvals, it is asked once `ready` resolves. Default: people alone are asked */
  readonly program?: { readonly onApproval?: AskProgram | undefined; readonly ready: Promise<void> } | undefined;
  readonly cluster: GuardCluster;
  /** Workspace of a gateway in a cluster. Default: the gateway is alone */
  readonly workspace?: TaintWorkspace | undefined;
  /** Aborts when the gateway closes. Default: never */
  readonly closing?: AbortSignal | undefined;
  readonly opened: OpenedList;
}

/** Audit and approvals of one gateway. */
export interface GuardServices {
  readonly audit: Audit;
  readonly approvals: Approvals;
  /** Files that outside content reached. */
  readonly taintedFiles: TaintedFiles;
  /** Skills and instructions of a workspace that a person trusts. */
  readonly trustedDocuments: TrustedDocuments;
  /** Records a change of who may call. */
  readonly recordAccess: RecordAccess;
  /** Records the configuration files that a person has accepted since the last call. */
  readonly recordTrust: () => Promise<void>;
  /** Records a change or use of a login of the agent's browser, in one transaction with its writes. */
  readonly recordLogin: (event: LoginEvent, writes?: readonly Write[]) => Promise<unknown>;
  /** Returns what stores the trust in a model server in one transaction with its audit event. @param by person who trusts it */
  readonly recordServerTrust: (by: Actor) => (server: TrustedServer) => Commit;
}

/** Creates audit and approvals, and records the configuration files that a person accepted before this start. */
export async function createGuardServices(options: GuardServicesOptions): Promise<GuardServices> {
  const { store, clock, random, log, metrics, config, redact, trustDir, opened } = options;
  const audit = await createAudit({
    ...{ store, clock, log, redact },
    openChain: options.cluster.openChain,
    enabled: () => config().security.audit.enabled,
    retentionDays: () => config().security.audit.retention_days,
  });
  opened.own(audit, (open) => open.close());
  const recordTrust = async () => {
    // Most users have accepted no file, and then there is nothing to load
    if (trustDir === undefined || !existsSync(trustStorePath(trustDir))) return;
    const { recordTrust } = await import("./audit/record_trust.ts");
    await recordTrust({ store, audit: audit.append, log, trustDir });
  };
  await recordTrust();
  const stored = createApprovals({
    ...{ store, clock, random, log, metrics },
    news: await options.cluster.openApprovalNews({ store, clock, log }),
    audit: audit.append,
  });
  const approvals = await withProgram(stored, options);
  opened.own(await keepTidy(approvals, { clock, log, days: () => config().runs.retention_days }), (stop) => stop());
  const taintedFiles = lazyService(async () => {
    const { createTaintedFiles } = await import("./tainted_files.ts");
    return createTaintedFiles({ ...options, audit: audit.append });
  }, ["of", "namesIn", "mark", "markWritten", "written", "list", "clear"]);
  const trustedDocuments = lazyService(async () => {
    const { createTrustedDocuments } = await import("./trusted_documents.ts");
    return createTrustedDocuments({ store, clock, audit: audit.append });
  }, ["isTrusted", "examine", "trust", "untrust", "list"]);
  return {
    audit,
    approvals,
    taintedFiles,
    trustedDocuments,
    recordAccess: (change, writes) => audit.append(accessEvent(change), writes),
    recordTrust,
    recordLogin: (event, writes) => audit.append(loginEvent(event), writes),
    recordServerTrust: (by) => ({ origin, uid }) => (writes) =>
      audit.append({
        type: "trust",
        subject: "model_server",
        name: origin,
        sha256: null,
        uid,
        given_at: new Date(clock.now()).toISOString(),
        by: storedActor(by),
      }, writes),
  };
}

async function withProgram(
  approvals: Approvals,
  { program, clock, log, redact, opened }: GuardServicesOptions,
): Promise<Approvals> {
  if (program?.onApproval === undefined) return approvals;
  const { createProgramApprover } = await import("./program_approver.ts");
  const { onApproval: ask, ready } = program;
  const approver = createProgramApprover({ approvals, ask, ready, clock, log, redact });
  return opened.own(approver, ({ close }) => close()).approvals;
}
