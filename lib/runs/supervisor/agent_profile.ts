import { type HttpError, refuse } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import type { AgentProviders } from "../../providers/agent_providers.ts";
import { isDefaultModel } from "../../providers/models/model_names.ts";
import type { Provider } from "../../providers/provider.ts";

/** The provider and the model that answer a run's turns. */
export interface RunModel {
  readonly provider: Provider;
  /** Name of the model at the provider. */
  readonly providerModel: string;
  /** Name of the model in replies. */
  readonly model: string;
}

/** Settings that a run takes from a configured agent. */
export interface AgentProfile extends RunModel {
  /** Text in place of `[agent] system_prompt`; empty: none. */
  readonly systemPrompt: string;
  /** Patterns of tool names; empty: none. `delegate` never matches. */
  readonly tools: readonly string[];
  readonly maxIterations: number;
}

/**
 * Returns the profile of a configured agent.
 * @param model name at the provider, or as an earlier run of the agent shows it; empty: the agent's own model
 * @throws {HttpError} 400 `invalid_request` for an unknown name; {ProviderError} when its provider cannot be used
 */
export type AgentOf = (name: string, model?: string) => Promise<AgentProfile>;

/** Returns the function that finds profiles. An agent that is not `agentic` calls no tools. */
export function createAgentOf({ agents, providers }: {
  /** Returns the newest `[agents.<name>]`. */
  readonly agents: () => Config["agents"];
  readonly providers: Pick<AgentProviders, "of">;
}): AgentOf {
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

/** Finds no profile, for a gateway without agents. */
export const noAgents: AgentOf = (name) => Promise.reject(unknownAgent(name, []));

/** Returns the reason why an agent is unknown, with the names of the known agents. */
export function reasonUnknown(known: readonly string[]): string {
  const names = known.length === 0 ? "none is configured; add [agents.<name>]" : `the agents are ${known.join(", ")}`;
  return `there is no such agent; ${names}`;
}

function unknownAgent(name: string, known: readonly string[]): HttpError {
  const message = `Cannot use the agent ${JSON.stringify(name.slice(0, 64))}: ${reasonUnknown(known)}`;
  return refuse("invalid_request", message, { param: "agent" });
}
