import type { StatusReply } from "../../handlers/routes/health.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import type { ControlRecord } from "../../lib/host/control_file.ts";
import type { Health } from "../../lib/host/daemon/daemon_state.ts";
import type { CommandContext } from "../command.ts";

/** State of a finding. `warning`: works, but not as well as possible or not safely. `failure`: something does not work. */
export type FindingState = "ok" | "warning" | "failure";

/** Result of one check. */
export interface Finding {
  /** Name of the thing that was checked, such as `data directory` */
  readonly name: string;
  readonly state: FindingState;
  /** Sentence of one line, without a full stop */
  readonly message: string;
  /** Command that mends the problem, or what a person must do. Null: nothing to do */
  readonly fix: string | null;
}

/** Facts that a running gateway reports. */
export interface RunningFacts {
  readonly record: ControlRecord;
  readonly health: Health;
  /** Status of the gateway. Undefined when it does not answer */
  readonly status: StatusReply | undefined;
}

/** Installation that the checks examine. */
export interface Installation {
  readonly context: CommandContext;
  readonly loaded: LoadedConfig;
  /** Gateway that runs on the data directory, whoever started it. Undefined when none runs */
  readonly running: RunningFacts | undefined;
  /** Takes a secret that must be masked in all findings */
  readonly addSecret: (secret: string) => void;
}

/** Check of one thing, which changes nothing. An error that it throws is a failure of this check alone. */
export interface Check {
  readonly name: string;
  /** Time after which the check counts as failed, in ms. Default 15,000 */
  readonly limitMs?: number;
  readonly run: (installation: Installation) => Promise<Finding | readonly Finding[]>;
}

/** Returns the finding that all is well. */
export function fine(name: string, message: string): Finding {
  return { name, state: "ok", message, fix: null };
}

/** Returns a warning. @param fix command that mends the problem, or what to do */
export function warning(name: string, message: string, fix: string): Finding {
  return { name, state: "warning", message, fix };
}

/** Returns a failure. @param fix command that mends the problem, or what to do */
export function failure(name: string, message: string, fix: string): Finding {
  return { name, state: "failure", message, fix };
}
