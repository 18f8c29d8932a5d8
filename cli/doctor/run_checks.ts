import { systemClock, withTimeout } from "../../lib/base/clock.ts";
import { messageOf } from "../../lib/base/errors.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { allSecrets, environmentSecrets } from "../../lib/config/secrets.ts";
import { type ControlRecord, readControlFile } from "../../lib/host/control_file.ts";
import type { CommandContext } from "../command.ts";
import { probeGateway, readGatewayStatus } from "../reach_gateway.ts";
import { checkConfiguration } from "./check_configuration.ts";
import { checkRuntime } from "./check_environment.ts";
import { type Check, failure, type Finding, type Installation, type RunningFacts, warning } from "./finding.ts";

/** Time for one check, in ms. Longer than a request to a gateway may take, also on a busy machine */
const LIMIT_MS = 15_000;

/**
 * Runs all checks at once. A check that throws, or takes longer than its limit, is a failure of that check alone. Without a
 * configuration that can be used, only the runtime and the configuration are checked. Masks secrets in the findings.
 * @param checks checks in the order of their findings
 */
export async function runChecks(context: CommandContext, checks: readonly Check[]): Promise<readonly Finding[]> {
  const redactor = createRedactor(environmentSecrets(context.io.env));
  let loaded: LoadedConfig | undefined;
  const first = await runOne({ name: "configuration" }, async () => {
    const configuration = await checkConfiguration(context);
    loaded = configuration.loaded;
    return configuration.findings;
  });
  const rest = loaded === undefined
    ? [
      warning("the rest", "Not looked at: all of it depends on the configuration", "postern doctor, once it is mended"),
    ]
    : await runWith(loaded, { context, checks, addSecret: redactor.add });
  return [checkRuntime(), ...first, ...rest].map(({ name, state, message, fix }) => ({
    name,
    state,
    message: redactor.redact(oneLine(message)),
    fix: fix === null ? null : redactor.redact(oneLine(fix)),
  }));
}

async function runWith(
  loaded: LoadedConfig,
  { context, checks, addSecret }: {
    readonly context: CommandContext;
    readonly checks: readonly Check[];
    readonly addSecret: (secret: string) => void;
  },
): Promise<readonly Finding[]> {
  for (const secret of await allSecrets(loaded.config, context.io.env)) {
    addSecret(secret);
  }
  const record = await readControlFile(loaded.dataDir);
  if (record !== undefined) addSecret(record.token);
  const running = record === undefined ? undefined : await askRunning(record);
  const installation: Installation = { context, loaded, running, addSecret };
  const found = await Promise.all(checks.map((check) => runOne(check, () => check.run(installation))));
  return found.flat();
}

async function askRunning(record: ControlRecord): Promise<RunningFacts> {
  const [health, status] = await Promise.all([probeGateway(record), readGatewayStatus(record)]);
  return { record, health, status };
}

/** Runs a check within its time limit. @returns its findings, or a failure when it throws or takes too long */
async function runOne(
  { name, limitMs = LIMIT_MS }: Pick<Check, "name" | "limitMs">,
  run: () => Promise<Finding | readonly Finding[]>,
): Promise<readonly Finding[]> {
  try {
    const found = await withTimeout(run(), { ms: limitMs, clock: systemClock });
    return [found ?? failure(name, `No result within ${limitMs / 1000} s`, "postern doctor, once more")].flat();
  } catch (error) {
    const reason = messageOf(error);
    return [failure(name, `The check failed: ${reason}`, "see the message")];
  }
}

function oneLine(text: string): string {
  return text.split("\n").map((line) => line.trim()).filter((line) => line !== "").join("; ");
}
