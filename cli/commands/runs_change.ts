import { reviewOutcomeSchema } from "../../lib/base/records/agent_event.ts";
import type { Run } from "../../lib/base/records/run.ts";
import { answerQuestion } from "../terminal/answer_question.ts";
import { CommandError, UsageError } from "../cli_error.ts";
import { type CommandContext, defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { type ReachedGateway, reachGateway } from "../reach_gateway.ts";
import { runEvents } from "../terminal/run_events.ts";
import { RUN_ID, runPath } from "../terminal/run_path.ts";
import { showRunEvents } from "../terminal/show_run_events.ts";
import { untilInterrupt } from "../terminal/until_interrupt.ts";

/** `postern runs cancel <id>` */
export const runsCancelCommand = defineCliCommand({
  args: { id: RUN_ID },
  example: "postern runs cancel run_0123456789",
  run: (context, { id }) =>
    withAgent(context, async (gateway) => {
      const run = await gateway.request({ method: "POST", path: runPath(id, "/cancel") }) as Run;
      context.print(run, `${run.id}: ${run.status}`);
    }),
});

/** `postern runs resolve <id> resume|close`: the decision about a run that a crash left with an effect in flight. */
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
        "What became of the call that was cut off: done; not_done makes it again; unknown does not. The model is told (default: unknown)",
    },
    note: { type: "string", valueHint: "text", description: "Kept with the decision" },
  },
  example: "postern runs resolve run_0123456789 resume --outcome done",
  run: (context, { id, action, outcome, note }) => {
    if (action !== "resume" && action !== "close") {
      throw new UsageError(`Cannot do "${action}" with a run: use resume or close`);
    }
    return withAgent(context, async (gateway) => {
      const body = { action, outcome, note };
      const run = await gateway.request({ method: "POST", path: runPath(id, "/resolve"), body }) as Run;
      context.print(run, `${run.id}: ${run.status}`);
      if (action === "resume") await stay(context, gateway, run.id);
    });
  },
});

/** `postern runs start <message>`: work that goes on without this terminal. */
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
  example: 'postern runs start "Summarise the notes of this week"',
  async run(context, args) {
    const message = args._.length > 0 ? args._.join(" ") : await context.io.readStdin();
    if (message === undefined || message.trim() === "") {
      throw new CommandError("Cannot start a run: the message is empty");
    }
    const { model, agent, conversation: conversation_id } = args;
    return await withAgent(context, async (gateway) => {
      const body = { message, model, agent, conversation_id };
      const run = await gateway.request({ method: "POST", path: "/v1/runs", body }) as Run;
      if (args.follow) {
        context.say(`Started ${run.id}`);
        return await showRunEvents(run.id, { context, gateway, after: 0, follow: true });
      }
      context.print(run, run.id);
      await stay(context, gateway, run.id);
    });
  },
});

/** Runs a command that may put runs to work. @returns exit code 0 */
async function withAgent(context: CommandContext, work: (gateway: ReachedGateway) => Promise<void>): Promise<number> {
  const gateway = await reachGateway(context, { agent: true });
  try {
    await work(gateway);
    return EXIT.ok;
  } finally {
    await gateway.close();
  }
}

/** Without a running gateway the run is at work in this process: works to its end, to a question that nobody answers, or to Ctrl-C. */
async function stay(context: CommandContext, gateway: ReachedGateway, id: string): Promise<void> {
  if (gateway.running !== undefined) return;
  context.say("No gateway runs, so this command works on it to its end; Ctrl-C leaves the rest to the next gateway.");
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
