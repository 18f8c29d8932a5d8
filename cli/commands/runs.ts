import { type Run, runStatusSchema } from "../../lib/base/records/run.ts";
import { UsageError } from "../cli_error.ts";
import { defineCliCommand } from "../command.ts";
import { RUN_ID, runPath } from "../terminal/run_path.ts";
import { showRunEvents } from "../terminal/show_run_events.ts";
import { harmless } from "../terminal/terminal_text.ts";
import { toTable } from "../terminal/to_table.ts";
import { withGateway } from "../with_gateway.ts";

const STATUSES = runStatusSchema.options;
const MAX_SHOWN = 100;
const MAX_SHOWN_RESULT = 60;
const MAX_SHOWN_MESSAGE = 40;

/** `postern runs list` */
export const runsListCommand = defineCliCommand({
  args: {
    status: {
      type: "enum",
      options: [...STATUSES],
      valueHint: "status",
      description: `Only those that are ${STATUSES.join(", ")}`,
    },
  },
  example: "postern runs list --status needs_review",
  run: (context, { status }) =>
    withGateway(context, async (gateway) => {
      const only = status === undefined ? "" : `&status=${status}`;
      const { data, has_more } = await gateway.request({
        method: "GET",
        path: `/v1/runs?limit=${MAX_SHOWN}${only}`,
      }) as {
        data: readonly Run[];
        has_more: boolean;
      };
      const rows = data.map((
        run,
      ) => [run.id, run.status, run.kind, run.created_at, run.model, messageOf(run), outcomeOf(run)]);
      context.print(
        data,
        rows.length === 0
          ? status === undefined ? "There is no run yet" : "There is no such run"
          : toTable(["ID", "STATUS", "KIND", "ACCEPTED", "MODEL", "MESSAGE", "OUTCOME"], rows),
      );
      if (has_more) context.say(`These are the newest ${MAX_SHOWN}; there are more.`);
    }),
});

/** `postern runs show <id>` */
export const runsShowCommand = defineCliCommand({
  args: { id: RUN_ID },
  example: "postern runs show run_0123456789",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const run = await gateway.request({ method: "GET", path: runPath(id) }) as Run;
      context.print(run, harmless(describeRun(run)));
    }),
});

/** `postern runs events <id>`: what the run said and did; the text goes to stdout, the rest to stderr. */
export const runsEventsCommand = defineCliCommand({
  args: {
    id: RUN_ID,
    follow: { type: "boolean", default: false, description: "Wait for events to come, to the run's end" },
    after: { type: "string", valueHint: "seq", description: "Only events after this one (default: 0, all)" },
  },
  example: "postern runs events run_0123456789 --follow",
  run: (context, { id, follow, after = "0" }) => {
    if (!/^\d{1,15}$/.test(after)) throw new UsageError(`Cannot use --after "${after}": it must be a whole number`);
    return withGateway(context, (gateway) => showRunEvents(id, { context, gateway, after: Number(after), follow }));
  },
});

function messageOf({ message }: Run): string {
  const text = message ?? "";
  return text.length > MAX_SHOWN_MESSAGE ? `${text.slice(0, MAX_SHOWN_MESSAGE)}...` : text;
}

function outcomeOf({ result, error }: Run): string {
  const text = error === null ? result ?? "" : `${error.code}: ${error.message}`;
  return text.length > MAX_SHOWN_RESULT ? `${text.slice(0, MAX_SHOWN_RESULT)}...` : text;
}

function describeRun(run: Run): string {
  const rows = [
    ["status", run.status],
    ["kind", run.kind],
    ["model", run.model],
    ["accepted", run.created_at],
    ["started", run.started_at],
    ["ended", run.ended_at],
    ["conversation", run.conversation_id],
    ["parent", run.parent_id],
    ["tokens", String(run.usage.total_tokens)],
  ].flatMap(([name, value]) => (value === null ? [] : [`  ${String(name).padEnd(13)}${value}`]));
  const error = run.error === null ? "" : `\n\n${run.error.code}: ${run.error.message}`;
  const review = run.status === "needs_review" ? `\n\n${reviewHint(run.id)}` : "";
  const message = typeof run.message === "string" ? `\n\n> ${run.message.replaceAll("\n", "\n> ")}` : "";
  return `${run.id}\n${rows.join("\n")}${message}${error}${review}${run.result === null ? "" : `\n\n${run.result}`}`;
}

function reviewHint(id: string): string {
  return `A person decides: look whether the call took effect (postern runs events ${id} shows it), then\n` +
    `  postern runs resolve ${id} resume --outcome done|not_done|unknown   the model is told, and the run goes on\n` +
    `  postern runs resolve ${id} close                                    the run ends here`;
}
