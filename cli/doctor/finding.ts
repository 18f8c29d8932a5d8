import type { StatusReply } from "../../handlers/status.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import type { ControlRecord } from "../../lib/host/control_file.ts";
import type { Health } from "../../lib/host/daemon/daemon_state.ts";
import type { CommandContext } from "../command.ts";

/** `warning`: it works, yet not as it could; `failure`: something does not work. */
export type FindingState = "ok" | "warning" | "failure";

/** What one check found. */
export interface Finding {
  /** Of what was looked at, as `data directory` */
  readonly name: string;
  readonly state: FindingState;
  /** One line */
  readonly message: string;
  /** The command that mends it, or what to do; null: nothing is due */
  readonly fix: string | null;
}

/** A gateway that runs, as it says. */
export interface RunningFacts {
  readonly record: ControlRecord;
  readonly health: Health;
  /** undefined where it does not answer */
  readonly status: StatusReply | undefined;
}

/** What checks look at. */
export interface Patient {
  readonly context: CommandContext;
  readonly loaded: LoadedConfig;
  /** The gateway that runs on the data directory, whoever started it, and what it says of itself */
  readonly running: RunningFacts | undefined;
  /** Told of what must not be shown */
  readonly addSecret: (secret: string) => void;
}

/** Looks at one thing; changes nothing. What it throws is a failure of this check alone. */
export interface Check {
  readonly name: string;
  /** Milliseconds after which it counts as failed. Default 15,000 */
  readonly limitMs?: number;
  readonly look: (patient: Patient) => Promise<Finding | readonly Finding[]>;
}

/** Nothing is due. */
export function fine(name: string, message: string): Finding {
  return { name, state: "ok", message, fix: null };
}

/** It works, yet not as it could. */
export function warning(name: string, message: string, fix: string): Finding {
  return { name, state: "warning", message, fix };
}

/** Something does not work. */
export function failure(name: string, message: string, fix: string): Finding {
  return { name, state: "failure", message, fix };
}
