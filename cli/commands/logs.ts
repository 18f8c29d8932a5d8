import type { ReplyOf } from "../../handlers/routes.ts";
import { unlessAborted } from "../../lib/base/cancel.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { LOG_LEVELS, type LogLevel, RECENT_LINES } from "../../lib/base/telemetry/log.ts";
import { CommandError, defineCliCommand } from "../command.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { toLogLine } from "../serve/log_sink.ts";
import { untilInterrupt } from "../terminal/show_run_events.ts";
import { takesColour } from "../terminal/terminal_text.ts";

const POLL_MS = 1000;

/** Line of the log as the gateway sends it. */
type Line = ReplyOf<"GET /v1/logs">["data"][number];

/** Command `postern logs`: the last lines of the running gateway's log, oldest first, and with --follow those to come. */
export const logsCommand = defineCliCommand({
  args: {
    follow: { type: "boolean", alias: "f", default: false, description: "Wait for further lines, until Ctrl-C" },
    run: { type: "string", valueHint: "id", description: "Only lines about this run" },
    level: {
      type: "enum",
      options: [...LOG_LEVELS],
      valueHint: "level",
      description: `Only lines of this level and more urgent ones: ${
        LOG_LEVELS.join(", ")
      } (default: all that are kept)`,
    },
  },
  example: "postern logs -f --level warn",
  run: (context, { follow, run, level }) =>
    withGateway(context, async (gateway) => {
      if (gateway.running === undefined) {
        const way =
          "start one with postern gateway; the log of a daemon that ended is daemon.log in the data directory";
        throw new CommandError(`Cannot show the log: no gateway is running on this data directory; ${way}`);
      }
      const { signal, stop } = untilInterrupt(context);
      const colour = takesColour(context.io, "stdout");
      try {
        for (let since = 0;;) {
          const lines = await linesSince(gateway, { since, level, signal });
          since = lines.at(-1)?.seq ?? since;
          for (const { time, seq: _, ...line } of lines) {
            const { run_id: ofRun, parent_id: ofParent, route } = line.fields;
            // Each look at the log is a line of it
            if (route === "/v1/logs" || (run !== undefined && ofRun !== run && ofParent !== run)) continue;
            const record = { ...line, time: Date.parse(time) };
            const format = context.flags.json ? "json" : "pretty";
            context.io.stdout(`${toLogLine(record, { format, withDate: true, colour })}\n`);
          }
          if (!follow) return;
          await unlessAborted(new Promise<void>((resolve) => systemClock.after(POLL_MS, resolve)), signal);
        }
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        stop();
      }
    }),
});

interface Wanted {
  /** Seq of the last line that was shown; 0: none was */
  readonly since: number;
  readonly level: LogLevel | undefined;
  readonly signal: AbortSignal;
}

/** Returns the newer lines, oldest first. */
async function linesSince(gateway: ReachedGateway, { since, level, signal }: Wanted): Promise<readonly Line[]> {
  const { data } = await gateway.call("GET /v1/logs", { query: { limit: RECENT_LINES, since, level }, signal });
  return data.toReversed();
}
