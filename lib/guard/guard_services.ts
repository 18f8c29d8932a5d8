import { existsSync } from "node:fs";
import type { RecordAccess } from "../access/identity.ts";
import type { Kit } from "../base/kit.ts";
import { lazily } from "../base/lazily.ts";
import { defineWing, type OpenedList } from "../base/opened_list.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import type { Redactor } from "../base/redact.ts";
import type { Config } from "../config/config.ts";
import { trustStorePath } from "../config/trust_store.ts";
import type { LoginEvent } from "../memory/browser_logins.ts";
import type { Commit, TrustedServer } from "../providers/discovery/provider_memory.ts";
import type { Store, Write } from "../storage/store.ts";
import { type Approvals, keepTidy, type TellOfApproval } from "./approvals.ts";
import type { ApprovalNews } from "./approval_records.ts";
import type { SharedApprovalNewsOptions } from "./approval_news.ts";
import type { AnswerLinks } from "./answer_links.ts";
import { type Audit, type AuditOptions, createAudit } from "./audit/audit.ts";
import { accessEvent, loginEvent } from "./audit/audit_event.ts";
import { StoredApprovals } from "./stored_approvals.ts";
import { Halts } from "./halts.ts";
import type { AskProgram } from "./program_approver.ts";
import type { TaintedFiles, TaintWorkspace } from "./tainted_files.ts";
import type { TrustedDocuments } from "./trusted_documents.ts";

/** Needs of `guardWing`. */
export interface GuardNeeds {
  readonly kit: Kit;
  readonly config: () => Pick<Config, "security" | "runs" | "gateway">;
  readonly storage: { readonly store: Store };
  /** Masks secrets in the audit. */
  readonly telemetry: { readonly redactor: Pick<Redactor, "redact"> };
  readonly program: {
    /** Folder of the list of configuration files that a person accepted. Default: no acceptance is recorded */
    readonly folders: { readonly trustDir?: string | undefined };
    /** Where the program answers approvals, it is asked once `ready` resolves. Default: people alone are asked */
    readonly additions?: {
      readonly hooks?: { readonly onApproval?: AskProgram | undefined; readonly ready: Promise<void> } | undefined;
    } | undefined;
  };
  readonly cluster: GuardCluster;
}

/** Gateways with which this one shares approvals, and each of which has an audit of its own. */
export interface GuardCluster {
  /** Opens the chain that this gateway writes among others, see `AuditOptions` */
  readonly openChain: AuditOptions["openChain"];
  /** Opens the news of approvals. Undefined: nobody else settles one */
  openApprovalNews(parts: Omit<SharedApprovalNewsOptions, "bus">): ApprovalNews | undefined | Promise<ApprovalNews>;
  /** Has halts look at their record when another gateway changes it. @returns a function that tells the others of a change */
  watchHalts(look: () => Promise<void>, opened: OpenedList): (() => void) | Promise<() => void>;
  /** Workspace whose files gateways mark. Undefined: nobody else marks any */
  readonly taintWorkspace: TaintWorkspace | undefined;
  /** Aborts when the gateway closes. Undefined: nothing waits for a database then */
  readonly closing: AbortSignal | undefined;
}

/** Audit and approvals of one gateway. */
export interface GuardServices {
  readonly audit: Audit;
  readonly approvals: Approvals;
  /** Links that answer an approval; loaded at the first one. */
  readonly answerLinks: () => Promise<AnswerLinks>;
  /** Has people told of approvals. */
  readonly tellOfApprovals: (tell: TellOfApproval) => void;
  /** Work that a person has halted. */
  readonly halts: Halts;
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

/** Everything that decides what may happen, and records it. */
export const guardWing = defineWing({ name: "guard", start: startGuard });

/** Creates audit and approvals, and records the configuration files that a person accepted before this start. */
async function startGuard(needs: GuardNeeds, opened: OpenedList): Promise<GuardServices> {
  const { kit: { clock, random, log, metrics }, config, storage: { store }, cluster } = needs;
  const { redact } = needs.telemetry.redactor;
  const { trustDir } = needs.program.folders;
  const audit = await createAudit({
    ...{ store, clock, log, redact },
    openChain: cluster.openChain,
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
  const halts = new Halts({ store, clock, log, audit: audit.append, tell: () => tellHalt() });
  const tellHalt = await cluster.watchHalts(() => halts.look(), opened);
  await halts.look();
  let tell: TellOfApproval | undefined;
  const stored = new StoredApprovals({
    ...{ store, clock, random, log, metrics },
    tell: async (...given) => await tell?.(...given),
    news: await cluster.openApprovalNews({ store, clock, log }),
    audit: audit.append,
  });
  const approvals = await withProgram(stored, needs, opened);
  opened.own(await keepTidy(approvals, { clock, log, days: () => config().runs.retention_days }), (stop) => stop());
  const tainted = lazily(async () => {
    const { StoredTaintedFiles } = await import("./tainted_files.ts");
    return new StoredTaintedFiles({
      ...{ store, clock, audit: audit.append },
      workspace: cluster.taintWorkspace,
      closing: cluster.closing,
    });
  });
  const taintedFiles: TaintedFiles = {
    of: async (...given) => await (await tainted()).of(...given),
    namesIn: async (...given) => await (await tainted()).namesIn(...given),
    mark: async (...given) => await (await tainted()).mark(...given),
    markWritten: async (...given) => await (await tainted()).markWritten(...given),
    written: async (...given) => await (await tainted()).written(...given),
    list: async (...given) => await (await tainted()).list(...given),
    clear: async (...given) => await (await tainted()).clear(...given),
  };
  const trusted = lazily(async () => {
    const { StoredTrustedDocuments } = await import("./trusted_documents.ts");
    return new StoredTrustedDocuments({ store, clock, audit: audit.append });
  });
  const trustedDocuments: TrustedDocuments = {
    isTrusted: async (...given) => await (await trusted()).isTrusted(...given),
    examine: async (...given) => await (await trusted()).examine(...given),
    trust: async (...given) => await (await trusted()).trust(...given),
    untrust: async (...given) => await (await trusted()).untrust(...given),
    list: async (...given) => await (await trusted()).list(...given),
  };
  return {
    audit,
    approvals,
    answerLinks: lazily(async () => {
      const { AnswerLinks } = await import("./answer_links.ts");
      return new AnswerLinks({ store, clock, random, audit: audit.append, approvals, config });
    }),
    tellOfApprovals: (next) => void (tell = next),
    halts,
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
  { program: { additions: { hooks } = {} }, kit: { clock, log }, telemetry }: GuardNeeds,
  opened: OpenedList,
): Promise<Approvals> {
  if (hooks?.onApproval === undefined) return approvals;
  const { createProgramApprover } = await import("./program_approver.ts");
  const { onApproval: ask, ready } = hooks;
  const approver = createProgramApprover({ approvals, ask, ready, clock, log, redact: telemetry.redactor.redact });
  return opened.own(approver, ({ close }) => close()).approvals;
}
