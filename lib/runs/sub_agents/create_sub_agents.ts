import { lazily } from "../../base/lazily.ts";
import type { SubAgents } from "../../tools/agents/sub_agents.ts";
import type { SubAgentsOptions } from "./sub_agent_service.ts";

/** The sub-agents. They are loaded when an agent first asks for one. */
export function createSubAgents(options: SubAgentsOptions): SubAgents {
  const load = lazily(async () => {
    const { createSubAgentService } = await import("./sub_agent_service.ts");
    return createSubAgentService(options);
  });
  return {
    spawn: async (...given) => await (await load()).spawn(...given),
    list: async (...given) => await (await load()).list(...given),
    status: async (...given) => await (await load()).status(...given),
    result: async (...given) => await (await load()).result(...given),
    message: async (...given) => await (await load()).message(...given),
    cancel: async (...given) => await (await load()).cancel(...given),
    delegate: async (...given) => await (await load()).delegate(...given),
    delegations: async (...given) => await (await load()).delegations(...given),
  };
}
