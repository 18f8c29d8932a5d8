import * as v from "valibot";
import type { Config } from "../../config/config.ts";
import { boundLines } from "../../system/process/bounds.ts";
import type { Captured } from "../../system/process/command_output.ts";
import { FLOOD_BYTES, type ProcessResult } from "../../system/process/run_command.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { keepFolder, withFolder } from "./command_folder.ts";
import {
  admitCommand,
  aftermathData,
  aftermathLines,
  type AllowedCommands,
  boundFiles,
  callCommand,
  commandAccess,
  commandEffects,
  noNetworkLines,
  relayData,
  relayLines,
  uncoveredLines,
  wallLines,
  writtenTaint,
} from "./command_rules.ts";

/** Milliseconds beside the command's own: to find the sandbox, and to look through the workspace before and after the command */
const START_MS = 60_000;

const PLAIN =
  "Runs one allowed command in the workspace; returns status, stdout and stderr. Quoting as in a shell, but no pipes, redirections, variables or wildcards";
const CONTAINED =
  "Runs a line of bash in a sandbox of the workspace; returns status, stdout and stderr. A line that begins with `cd` moves the conversation to that folder";

/** `shell`: runs one allowed command, without a shell (docs/design/paths_and_commands.md "Commands"). */
export const shell = defineTool({
  name: "shell",
  description: PLAIN,
  descriptionUnder: ({ security: { shell } }) => shell.syntax === "plain" ? PLAIN : CONTAINED,
  access: "write",
  accessUnder: commandAccess,
  enabled: "always",
  alwaysOffered: true,
  needs: ["processes", "commands", "commandFolders"],
  // The command's own limit comes first and keeps what it wrote
  timeoutMs: ({ security }) => security.shell.timeout_secs * 1000 + START_MS,
  input: v.strictObject({
    command: v.pipe(
      v.string(),
      v.minLength(1),
      v.maxLength(1_048_576),
      v.description("Command and arguments, such as `ls -l src`"),
    ),
  }),
  textField: "command",
  admit: ({ command }, config) => admitCommand(command, config, rulesOf(config)),
  screen: ({ command }, context) => context.services.processes.screen(callCommand(command, context, rulesOf)),
  bind: ({ command }, context) => boundFiles(command, context),
  effectsUnder: ({ command }, config) => commandEffects(command, config),
  fill: async ({ command }, context) => ({ command: await withFolder(command, context) }),
  async run({ command }, context) {
    const { shell: limits } = context.config.security;
    const result = await context.services.processes.run({
      ...callCommand(command, context, rulesOf),
      localSockets: limits.local_sockets,
      taint: writtenTaint("shell", context),
      timeoutMs: limits.timeout_secs * 1000,
      maxOutputBytes: limits.max_output_bytes,
      signal: context.signal,
    });
    const status = statusOf(result);
    const { contained } = result;
    const isFailure = status !== "0";
    const texts = [result.stdout.text, result.stderr.text];
    const folder = await keepFolder(command, context);
    return {
      output: [
        `status=${status}`,
        ...folder === "" ? [] : [`folder=${folder}`],
        section("stdout", result.stdout),
        section("stderr", result.stderr),
        ...uncoveredLines(result.ending),
        ...(result.ending.kind === "flood" ? [`[Stopped: it wrote more than ${FLOOD_BYTES} bytes]`] : []),
        ...boundLines(status, result.bounds),
        ...noNetworkLines({
          ...{ contained, isFailure, texts },
          network: limits.network,
          isTimeout: result.ending.kind === "timeout",
        }),
        ...wallLines({ contained, isFailure, command, texts }, context.config),
        ...relayLines(result.refused),
        ...aftermathLines(result),
      ].join("\n"),
      isError: false,
      data: {
        status,
        contained,
        stdout_truncated: result.stdout.truncated,
        stderr_truncated: result.stderr.truncated,
        ...relayData(result.refused),
        ...aftermathData(result),
      },
    };
  },
});

function rulesOf({ security: { allowed_commands: allowed } }: Config): AllowedCommands {
  return { allowed, list: "[security] allowed_commands" };
}

function statusOf({ ending }: ProcessResult): string {
  switch (ending.kind) {
    case "exit":
      return String(ending.code);
    case "signal":
      return `signal:${ending.name}`;
    case "timeout":
    case "uncovered":
      return ending.kind;
    case "flood":
      return "signal:SIGKILL";
  }
}

/** Reads an output of the tool again: the status, and whether the command printed nothing. When in doubt it printed something. */
export function readShellOutput(output: string): { readonly status: string; readonly isQuiet: boolean } {
  const status = /^status=(\S*)/.exec(output)?.[1] ?? "";
  const isQuiet = /^status=\S*\n(?:folder=[^\n]*\n)?stdout:\nstderr:(?![^]*\nstderr:)/.test(output);
  return { status, isQuiet };
}

function section(name: string, { text, bytes, truncated }: Captured): string {
  const kept = text.endsWith("\n") ? text.slice(0, -1) : text;
  const notice = truncated
    ? `\n[${name} cut at [security.shell] max_output_bytes, of ${bytes} bytes: ask for less at a time]`
    : "";
  return `${name}:${kept === "" ? "" : `\n${kept}`}${notice}`;
}
