import { exactLine, exactText } from "../../lib/base/text.ts";
import type { InstructionsInfo } from "../../lib/base/records/extension_views.ts";
import { type CommandContext, CommandError, defineCliCommand } from "../command.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { isYes } from "../terminal/require_yes.ts";

/** Command `postern instructions show`: the instructions of the workspace, and what changed since they were trusted. */
export const instructionsShowCommand = defineCliCommand({
  args: {},
  example: "postern instructions show",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const info = await readInstructions(gateway);
      context.print(info, describe(info));
    }),
});

/** Command `postern instructions trust`: shows the instructions of the workspace and asks. Counts for exactly the content that was shown. */
export const instructionsTrustCommand = defineCliCommand({
  args: {
    digest: { type: "string", valueHint: "sha256", description: "Trust them only with this content" },
    yes: { type: "boolean", description: "Trust them without a question" },
  },
  example: "postern instructions trust --yes",
  run: (context, { digest, yes }) =>
    withGateway(context, async (gateway) => {
      const info = await readInstructions(gateway);
      if (info.digest === null) {
        throw new CommandError(`Cannot trust the instructions: ${exactLine(info.reason ?? "")}`);
      }
      if (digest !== undefined && digest !== info.digest) {
        throw new CommandError(
          `Cannot trust the instructions: their digest is ${info.digest}, and not the one that was given`,
        );
      }
      if (yes !== true && digest === undefined) await askToTrust(context, info);
      const body = { digest: info.digest, before: info.trusted_digest };
      const trusted = await gateway.call("POST /v1/workspace-instructions/trust", { body });
      const still = trusted.reason === null ? "" : `, and ${exactLine(trusted.reason)}`;
      context.print(trusted, `Trusted ${trusted.file} as it is now${still}`);
    }),
});

/** Command `postern instructions untrust`: takes the trust back. */
export const instructionsUntrustCommand = defineCliCommand({
  args: {},
  example: "postern instructions untrust",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const info = await gateway.call("POST /v1/workspace-instructions/untrust");
      context.print(info, "The instructions of the workspace are not trusted any more");
    }),
});

async function readInstructions(gateway: ReachedGateway): Promise<InstructionsInfo> {
  return await gateway.call("GET /v1/workspace-instructions");
}

async function askToTrust({ io, say }: CommandContext, info: InstructionsInfo): Promise<void> {
  say(describe(info));
  const answer = await io.ask(`Tell every run of ${info.file}? [y/N] `);
  if (answer === undefined) {
    throw new CommandError(
      `Nothing was trusted: there is no terminal to ask; look at them, then say --digest ${info.digest}`,
    );
  }
  if (!isYes(answer)) throw new CommandError("Nothing was trusted");
}

/** Returns the instructions for a person: what would be told to a model, or what changed of it. */
function describe(info: InstructionsInfo): string {
  const { file, path, state, reason, digest, bytes, used_bytes: used, text, difference } = info;
  if (file === null) return exactLine(reason ?? "");
  const cut = used !== null && bytes !== null && used < bytes ? `; runs are told of the first ${used}` : "";
  return [
    `File:   ${exactLine(path ?? file)}`,
    `State:  ${state}${reason === null ? "" : `: ${exactLine(reason)}`}`,
    ...(digest === null ? [] : [`Bytes:  ${bytes}${cut}`, `Digest: ${digest}`]),
    ...(difference === null ? [] : ["Changed since it was trusted:", exactText(difference)]),
    ...(text === null || difference !== null ? [] : ["", exactText(text).trimEnd()]),
  ].join("\n");
}
