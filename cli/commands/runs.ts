import { reviewOutcomeSchema } from "../../lib/base/records/agent_event.ts";
import { type Run, runStatusSchema } from "../../lib/base/records/run.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../command.ts";
import { type ReachedGateway, reachGateway, withGateway } from "../reach_gateway.ts";
import { answerQuestion } from "../terminal/ask_person.ts";
import { runEvents, showRunEvents, untilInterrupt } from "../terminal/show_run_events.ts";
import { MAX_PRINTED, printPage } from "../terminal/print_page.ts";
import { printable, toDefinitions } from "../terminal/terminal_text.ts";

const RUN_ID = {
  type: "positional",
  required: true,
  description: "Id of the run, from postern run list",
} as const;
const STATUSES = runStatusSchema.options;
const MAX_SHOWN_RESULT = 60;
const MAX_SHOWN_MESSAGE = 40;

/** Command `postern run list`: the newest runs. */
export const runsListCommand = defineCliCommand({
  args: {
    status: {
      type: "enum",
      options: [...STATUSES],
      valueHint: "status",
      description: `Only those that are ${STATUSES.join(", ")}`,
    },
  },
  example: "postern run list --status needs_review",
  run: (context, { status }) =>
    withGateway(context, async (gateway) => {
      await printPage(context, gateway.call("GET /v1/runs", { query: { status, limit: MAX_PRINTED } }), {
        heads: ["ID", "STATUS", "KIND", "ACCEPTED", "MODEL", "MESSAGE", "OUTCOME"],
        toRow: (run) => [run.id, statusOf(run), run.kind, run.created_at, run.model, shownMessage(run), outcomeOf(run)],
        none: status === undefined ? "There is no run yet" : "There is no such run",
      });
    }),
});

/** Command `postern run show <id>`: state, message and result of a run. */
export const runsShowCommand = defineCliCommand({
  args: { id: RUN_ID },
  example: "postern run show run_0123456789",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const run = await gateway.call("GET /v1/runs/:id", { params: { id } });
      context.print(run, printable(describeRun(run, context)));
    }),
});

/** Command `postern run events <id>`: what a run said and did. The text goes to stdout, the rest to stderr. */
export const runsEventsCommand = defineCliCommand({
  args: {
    id: RUN_ID,
    follow: { type: "boolean", default: false, description: "Wait for events to come, to the run's end" },
    after: { type: "string", valueHint: "seq", description: "Only events after this one (default: 0, all)" },
  },
  example: "postern run events run_0123456789 --follow",
  run: (context, { id, follow, after = "0" }) => {
    if (!/^\d{1,15}$/.test(after)) throw new UsageError(`Cannot use --after "${after}": it must be a whole number`);
    return withGateway(context, (gateway) => showRunEvents(id, { context, gateway, after: Number(after), follow }));
  },
});

function shownMessage({ message }: Run): string {
  const text = message ?? "";
  return text.length > MAX_SHOWN_MESSAGE ? `${text.slice(0, MAX_SHOWN_MESSAGE)}...` : text;
}

/** Returns the state of a run, with what a queued one waits for. */
function statusOf({ status, waiting_for: waitingFor }: Run): string {
  return waitingFor === undefined ? status : `${status} (waits for its ${waitingFor})`;
}

function outcomeOf({ result, error }: Run): string {
  const text = error === null ? result ?? "" : `${error.code}: ${error.message}`;
  return text.length > MAX_SHOWN_RESULT ? `${text.slice(0, MAX_SHOWN_RESULT)}...` : text;
}

function describeRun(run: Run, { io: { columns }, named }: CommandContext): string {
  const rows = [
    ["status", statusOf(run)],
    ["kind", run.kind],
    ["model", run.model],
    ["accepted", run.created_at],
    ["started", run.started_at],
    ["ended", run.ended_at],
    ["conversation", run.conversation_id],
    ["parent", run.parent_id],
    ["tokens", String(run.usage.total_tokens)],
  ].flatMap(([name, value]) => (value === null ? [] : [[String(name), String(value)] as const]));
  const error = run.error === null ? "" : `\n\n${run.error.code}: ${run.error.message}`;
  const review = run.status === "needs_review" ? `\n\n${named(reviewHint(run.id))}` : "";
  const message = typeof run.message === "string" ? `\n\n> ${run.message.replaceAll("\n", "\n> ")}` : "";
  return `${run.id}\n${toDefinitions(rows, columns)}${message}${error}${review}${
    run.result === null ? "" : `\n\n${run.result}`
  }`;
}

function reviewHint(id: string): string {
  return `A person decides: look whether the call took effect (postern run events ${id} shows it), then\n` +
    `  postern run resolve ${id} resume --outcome done|not_done|unknown\n` +
    "      The model is told, and the run goes on.\n" +
    `  postern run resolve ${id} close\n` +
    "      The run ends here.";
}

/** Command `postern run cancel <id>`: stops a run. */
export const runsCancelCommand = defineCliCommand({
  args: { id: RUN_ID },
  example: "postern run cancel run_0123456789",
  run: (context, { id }) =>
    withAgent(context, async (gateway) => {
      const run = await gateway.call("POST /v1/runs/:id/cancel", { params: { id } });
      context.print(run, `${run.id}: ${run.status}`);
    }),
});

/** Command `postern run resolve <id> resume|close`: decides about a run that was cut off in the middle of a call with an effect. */
export const runsResolveCommand = defineCliCommand({
  args: {
    id: RUN_ID,
    action: {
      type: "positional",
      required: true,
      description: "resume: the run goes on; close: it ends here",
    },
    outcome: {
      type: "enum",
      options: [...reviewOutcomeSchema.options],
      valueHint: "outcome",
      description:
        "Outcome of the call that was cut off: done, not_done (it is made again) or unknown (it is not). The model is told (default: unknown)",
    },
    note: { type: "string", valueHint: "text", description: "Kept with the decision" },
  },
  example: "postern run resolve run_0123456789 resume --outcome done",
  run: (context, { id, action, outcome, note }) => {
    if (action !== "resume" && action !== "close") {
      throw new UsageError(`Cannot do "${action}" with a run: use resume or close`);
    }
    return withAgent(context, async (gateway) => {
      const body = { action, outcome, note };
      const run = await gateway.call("POST /v1/runs/:id/resolve", { params: { id }, body });
      context.print(run, `${run.id}: ${run.status}`);
      if (action === "resume") await stay(context, gateway, run.id);
    });
  },
});

/** Command `postern run start <message>`: starts a run that goes on without this terminal. */
export const runsStartCommand = defineCliCommand({
  args: {
    "...message": {
      type: "positional",
      required: false,
      description: "What to do; without it standard input is read",
    },
    model: { type: "string", valueHint: "name", description: "Model, as provider/model (default: the configured one)" },
    agent: { type: "string", valueHint: "name", description: "An agent of [agents.<name>]" },
    conversation: { type: "string", valueHint: "id", description: "Record it under this conversation" },
    follow: { type: "boolean", default: false, description: "Show the answer as it comes, to the run's end" },
  },
  example: 'postern run start "Summarise the notes of this week"',
  async run(context, args) {
    const message = args._.length > 0 ? args._.join(" ") : await context.io.readStdin();
    if (message === undefined || message.trim() === "") {
      throw new CommandError("Cannot start a run: the message is empty");
    }
    const { model, agent, conversation: conversation_id } = args;
    return await withAgent(context, async (gateway) => {
      const body = { message, model, agent, conversation_id };
      const run = await gateway.call("POST /v1/runs", { body });
      if (args.follow) {
        context.say(`Started ${run.id}`);
        return await showRunEvents(run.id, { context, gateway, after: 0, follow: true });
      }
      context.print(run, run.id);
      await stay(context, gateway, run.id);
    });
  },
});

/** Reaches the gateway with its agent, does the work, and closes the connection. @returns exit code 0 */
async function withAgent(context: CommandContext, work: (gateway: ReachedGateway) => Promise<void>): Promise<number> {
  const gateway = await reachGateway(context, { agent: true });
  try {
    await work(gateway);
    return EXIT.ok;
  } finally {
    await gateway.close();
  }
}

/** Waits for a run that works in this process, as no gateway runs: until it ends, asks a question that nobody answers, or Ctrl-C. */
async function stay(context: CommandContext, gateway: ReachedGateway, id: string): Promise<void> {
  if (gateway.running !== undefined) return;
  context.say(
    "No gateway is running, so this command does the work of the run itself; Ctrl-C leaves the rest to the next gateway.",
  );
  const { signal, stop } = untilInterrupt(context);
  try {
    for await (const event of runEvents(gateway, id, { after: 0, follow: true, signal })) {
      if (event.type === "approval_needed" && !await answerQuestion(context, gateway, event.approval_id)) return;
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    stop();
  }
}
