import { HttpError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import type { AgentProviders } from "../../providers/agent_providers.ts";
import { isDefaultModel } from "../../providers/models/model_names.ts";
import type { Provider } from "../../providers/provider.ts";

/** The provider and the model that answer a run's turns. */
export interface RunModel {
  readonly provider: Provider;
  /** As the provider knows it */
  readonly providerModel: string;
  /** As the reply names it */
  readonly model: string;
}

/** What a run takes over from the configured agent it is of. */
export interface AgentProfile extends RunModel {
  /** In place of `[agent] system_prompt`; empty: none */
  readonly systemPrompt: string;
  /** Patterns of tool names; empty: none. `delegate` is never among them, whatever they say */
  readonly tools: readonly string[];
  readonly maxIterations: number;
}

/**
 * The profile of a configured agent.
 * @param model in place of the agent's own, as its provider knows it or as an earlier run of the agent shows it; empty: its own
 * @throws {HttpError} 400 `invalid_request` for an unknown name; {ProviderError} when its provider cannot be used
 */
export type AgentOf = (name: string, model?: string) => Promise<AgentProfile>;

export interface AgentOfOptions {
  /** `[agents.<name>]`, the newest ones */
  readonly agents: () => Config["agents"];
  readonly providers: Pick<AgentProviders, "of">;
}

/** An agent that is not `agentic` calls no tools, whatever its list says. */
export function createAgentOf({ agents, providers }: AgentOfOptions): AgentOf {
  return async (name, asked = "") => {
    const configured = agents();
    const agent = Object.hasOwn(configured, name) ? configured[name] : undefined;
    if (agent === undefined) throw unknownAgent(name, Object.keys(configured));
    const named = isDefaultModel(asked) ? "" : asked;
    const hasOwn = agent.provider !== "";
    // Without a provider of its own a model is found as for any other request: by its name
    const resolved = await providers.of(name, hasOwn || named === "" ? agent : { ...agent, model: named });
    const { provider } = resolved;
    const prefix = `${provider.name}/`;
    const wanted = named.startsWith(prefix) ? named.slice(prefix.length) : named;
    const providerModel = hasOwn && wanted !== "" ? wanted : resolved.model;
    return {
      provider,
      providerModel,
      model: `${prefix}${providerModel}`,
      systemPrompt: agent.system_prompt,
      tools: agent.agentic ? agent.allowed_tools : [],
      maxIterations: agent.max_iterations,
    };
  };
}

/** For a gateway without agents. */
export const noAgents: AgentOf = (name) => Promise.reject(unknownAgent(name, []));

/** Why an agent cannot be used, with the names of those that can. */
export function reasonUnknown(known: readonly string[]): string {
  const names = known.length === 0 ? "none is configured; add [agents.<name>]" : `the agents are ${known.join(", ")}`;
  return `there is no such agent; ${names}`;
}

function unknownAgent(name: string, known: readonly string[]): HttpError {
  const message = `Cannot use the agent ${JSON.stringify(name.slice(0, 64))}: ${reasonUnknown(known)}`;
  return new HttpError("invalid_request", message, { status: 400, type: "invalid_request_error", param: "agent" });
}
