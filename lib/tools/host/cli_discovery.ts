import process from "node:process";
import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { defineTool } from "../runtime/define_tool.ts";
import { requireOpFields } from "../runtime/parse_input.ts";

const COMMAND = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/;

/**
 * `cli_discovery`: tells which commands the machine has, and which runtime the gateway runs on. Runs nothing.
 * Source: docs/design/tools.md "The machine"
 */
export const cliDiscovery = defineTool({
  name: "cli_discovery",
  description: "Says whether a command is installed and allowed, or which runtime and platform this is. Runs nothing",
  access: "read",
  enabled: "always",
  needs: ["commands"],
  input: v.strictObject({
    op: v.pipe(v.picklist(["check_command", "runtime_info"]), v.description("What to find out")),
    command: v.optional(
      v.pipe(v.string(), v.minLength(1), v.maxLength(128), v.description("check_command: its name")),
    ),
  }),
  check: (input) => {
    requireOpFields("cli_discovery", input, { check_command: ["command"] });
    if (input.command === undefined || COMMAND.test(input.command)) return;
    throw new ToolError(
      "invalid_input",
      'Cannot call "cli_discovery": "command" must be a bare name of letters, digits, ".", "_", "+" and "-", without path or arguments',
    );
  },
  async run({ op, command = "" }, context) {
    if (op === "runtime_info") {
      const { deno, node } = process.versions;
      const info = {
        runtime: deno === undefined ? "node" : "deno",
        version: deno ?? node,
        platform: process.platform,
        architecture: process.arch,
      };
      return {
        output: Object.entries(info).map(([name, value]) => `${name}=${value}`).join("\n"),
        isError: false,
        data: info,
      };
    }
    const path = await context.services.commands.find(command);
    const allowed = context.config.security.allowed_commands.includes(command);
    const found = path === undefined ? "not found" : `found at ${path}`;
    const verdict = allowed ? "allowed" : "not in [security] allowed_commands";
    return {
      output: `${command}: ${found}, ${verdict}`,
      isError: false,
      data: { command, path: path ?? null, allowed },
    };
  },
});
