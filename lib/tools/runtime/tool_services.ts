import type { Files } from "../../system/files/files.ts";
import type { Mailbox } from "../../memory/mailbox.ts";
import type { Memory } from "../../memory/memory.ts";
import type { Plans } from "../../memory/plans.ts";
import type { Git } from "../../system/git/git.ts";
import type { UrlPolicy } from "../../system/net/url_policy.ts";
import type { CommandLookup } from "../../system/process/command_lookup.ts";
import type { Processes } from "../../system/process/processes.ts";
import type { Workers } from "../../system/process/workers.ts";
import type { SubAgents } from "../agents/sub_agents.ts";
import type { Boards } from "../../hardware/boards.ts";
import type { Schedules } from "../schedule/schedules.ts";
import type { Sops } from "../sops/sops.ts";

/** What tools may ask for by name in `needs`. A new service is added here and joined in lib/gateway.ts. */
export interface ToolServices {
  readonly files: Files;
  readonly memory: Memory;
  readonly plans: Plans;
  readonly mailbox: Mailbox;
  readonly commands: CommandLookup;
  readonly processes: Processes;
  readonly workers: Workers;
  readonly git: Git;
  readonly urls: UrlPolicy;
  readonly schedules: Schedules;
  readonly sops: Sops;
  readonly subAgents: SubAgents;
  readonly boards: Boards;
}
export type ServiceName = keyof ToolServices;
