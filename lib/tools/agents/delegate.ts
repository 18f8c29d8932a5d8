import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";

/** Long, since a chain of agents takes its time: the limits of its runs and the caller's own limit end it earlier. */
const TIMEOUT_MS = 3_600_000;

/** `delegate`: runs a configured agent to its answer (docs/design/runs.md "Sub-agents"). */
export const delegate = defineTool({
  name: "delegate",
  description:
    "Gives a prompt to a configured agent, waits, and returns its answer. The agent sees nothing of this conversation",
  access: "state",
  // The sub-agent begins with the taint
  carriesTaint: true,
  repeatable: true,
  enabled: (config) => Object.keys(config.agents).length > 0,
  enabledBy: '[agents.helper] model = "gpt-5-mini"',
  needs: ["subAgents"],
  timeoutMs: () => TIMEOUT_MS,
  input: v.strictObject({
    agent: v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.description("Name of the configured agent")),
    prompt: v.pipe(v.string(), v.minLength(1), v.description("What the agent is to do, with everything it must know")),
  }),
  async run(input, context) {
    const { answer, taint } = await context.services.subAgents.delegate(input, context);
    return { output: answer, isError: false, data: { agent: input.agent, answer }, taint };
  },
});
